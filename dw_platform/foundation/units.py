"""Sizes and durations as people write them: `64KiB`, `100GB`, `90d`, `1h30m`, `15s`.

Decimal units (KB, MB, GB, TB) are powers of 1000 and binary ones (KiB, MiB, GiB, TiB) powers of 1024,
so that a limit written in a file means what the letters say.
"""

import re
from datetime import timedelta
from fractions import Fraction

from dw_platform.foundation.errors import InvalidValueError

_BYTE_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
# ASCII, because without it "5\u017f" counts as "5s"; 30 digits, because Python refuses to convert thousands of them.
_FLAGS = re.IGNORECASE | re.ASCII
_NUMBER = r"(\d{1,30}(?:\.\d{1,30})?)"
_BYTES = re.compile(_NUMBER + r"\s*(b|[kmgt]i?b)?", _FLAGS)
_BYTES_ALLOWED = "a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 64KiB"

_MICROSECONDS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION_PART = re.compile(_NUMBER + r"\s*(ms|s|m|h|d)", _FLAGS)
_DURATION_ALLOWED = "a number with ms, s, m, h or d, such as 15s, 1h30m or 90d"


def parse_bytes(text: str | int) -> int:
    """Return the number of bytes that `text` names, rounded down; a bare number is bytes."""
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise InvalidValueError("size", text, "not negative")
        return text
    match = _BYTES.fullmatch(str(text).strip())
    if not match:
        raise InvalidValueError("size", text, _BYTES_ALLOWED)
    return int(Fraction(match[1]) * _BYTE_UNITS[(match[2] or "b").lower()])


def parse_duration(text: str | timedelta) -> timedelta:
    """Return the duration that `text` names, to the microsecond.

    A bare number is refused, because its unit would be a guess.
    """
    if isinstance(text, timedelta):
        return text
    compact = str(text).strip()
    parts = _DURATION_PART.findall(compact)
    if not parts or "".join(_DURATION_PART.sub("", compact).split()):
        raise InvalidValueError("duration", text, _DURATION_ALLOWED)
    microseconds = sum(Fraction(number) * _MICROSECONDS[unit.lower()] for number, unit in parts)
    try:
        return timedelta(microseconds=round(microseconds))
    except OverflowError:
        raise InvalidValueError("duration", text, f"at most {timedelta.max.days} days") from None


def format_bytes(count: int) -> str:
    """Return `count` in the largest binary unit that keeps at least one whole digit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(size, 1) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration(duration: timedelta) -> str:
    """Return `duration` the way `parse_duration` reads it, exactly and without zero parts.

    A negative one gets a minus sign; it can be shown but not read back, because no setting may be negative.
    """
    if duration < timedelta(0):
        return f"-{format_duration(-duration)}"
    remaining = duration // timedelta(microseconds=1)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, remaining = divmod(remaining, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if remaining:
        parts.append(f"{remaining / _MICROSECONDS['ms']:g}ms")  # at most 999.999, so six digits are exact
    return "".join(parts) or "0s"
