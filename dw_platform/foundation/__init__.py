"""What every other package stands on: errors, time, units, smoothing, durable files, events."""

from dw_platform.foundation.clock import Clock, FakeClock, SystemClock
from dw_platform.foundation.durable import fsync_directory, replace_file
from dw_platform.foundation.ema import Ema
from dw_platform.foundation.errors import (
    InvalidValueError,
    MissingExtraError,
    PermanentError,
    PlatformError,
    TransientError,
    UserError,
)
from dw_platform.foundation.events import EventHub
from dw_platform.foundation.hashing import fnv1a_64, fnv1a_64_each
from dw_platform.foundation.units import format_bytes, format_duration, parse_bytes, parse_duration

__all__ = [
    "Clock",
    "Ema",
    "EventHub",
    "FakeClock",
    "InvalidValueError",
    "MissingExtraError",
    "PermanentError",
    "PlatformError",
    "SystemClock",
    "TransientError",
    "UserError",
    "fnv1a_64",
    "fnv1a_64_each",
    "format_bytes",
    "format_duration",
    "fsync_directory",
    "parse_bytes",
    "parse_duration",
    "replace_file",
]
