"""Limits that change while the platform runs, metrics that show why, and one scale of pressure for all subsystems."""

from dw_platform.scaling.catalogue import LimitCatalogue
from dw_platform.scaling.control import LimitControl
from dw_platform.scaling.errors import UndecodableRecordError, UnknownSubsystemError
from dw_platform.scaling.gauge import GaugeReading, PressureChanged, PressureGauge
from dw_platform.scaling.limits import (
    LimitInfo,
    Limits,
    apply_changes,
    bounded,
    check_limits,
    describe_limits,
    limits_to_json,
)
from dw_platform.scaling.pressure import DEFAULT_THRESHOLDS, PressureLevel, PressureThresholds, next_level
from dw_platform.scaling.records import LimitRecord, LimitStatus
from dw_platform.scaling.registry import ScalingRegistry
from dw_platform.scaling.snapshot import MetricsSnapshot
from dw_platform.scaling.stream_policy import StreamScalePolicy
from dw_platform.scaling.stream_reading import PartitionOffsets, StreamReading
from dw_platform.scaling.stream_scale import StreamScaleDecision, decide_stream_scale
from dw_platform.scaling.stream_state import StreamScaleState, restore_state
from dw_platform.scaling.streams import PartitionDecision, ScalabilityConfig, decide_partitions
from dw_platform.scaling.subsystem import BackpressureAware, ScalableSubsystem

__all__ = [
    "DEFAULT_THRESHOLDS",
    "BackpressureAware",
    "GaugeReading",
    "LimitCatalogue",
    "LimitControl",
    "LimitInfo",
    "LimitRecord",
    "LimitStatus",
    "Limits",
    "MetricsSnapshot",
    "PartitionDecision",
    "PartitionOffsets",
    "PressureChanged",
    "PressureGauge",
    "PressureLevel",
    "PressureThresholds",
    "ScalabilityConfig",
    "ScalableSubsystem",
    "ScalingRegistry",
    "StreamReading",
    "StreamScaleDecision",
    "StreamScalePolicy",
    "StreamScaleState",
    "UndecodableRecordError",
    "UnknownSubsystemError",
    "apply_changes",
    "bounded",
    "check_limits",
    "decide_partitions",
    "decide_stream_scale",
    "describe_limits",
    "limits_to_json",
    "next_level",
    "restore_state",
]
