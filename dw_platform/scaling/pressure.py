"""One scale of pressure for bus, streams, file I/O and scheduling, and the rule that moves along it.

Occupancy (0 empty, 1 full) maps to a level. A level is entered at one threshold and left at a lower one, so
occupancy that hovers around a threshold changes the level once, not with every sample.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

from dw_platform.foundation import InvalidValueError


class PressureLevel(IntEnum):
    """How hard a subsystem asks others to slow down; levels compare, `NORMAL < WARNING < CRITICAL < SHEDDING`."""

    NORMAL = 0
    WARNING = 1
    CRITICAL = 2
    SHEDDING = 3

    @property
    def label(self) -> str:
        """The word that headers, JSON and people see: `normal`, `warning`, `critical`, `shedding`."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> "PressureLevel":
        """Return the level that `label` names."""
        for level in cls:
            if level.label == label:
                return level
        raise InvalidValueError("pressure", label, f"one of {', '.join(level.label for level in cls)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureThresholds:
    """Where each level is entered and where it is left again, as fractions of what the subsystem can hold."""

    warning: float = 0.70
    """From here on producers are told, so that they slow down before they have to."""

    critical: float = 0.85
    """From here on publishers wait."""

    shedding: float = 0.95
    """From here on work that can be refused is refused; the rest of the room is for work that cannot."""

    warning_exit: float = 0.60
    """Below this Warning ends."""

    critical_exit: float = 0.75
    """Below this Critical ends."""

    shedding_exit: float = 0.90
    """Below this Shedding ends."""

    def __post_init__(self) -> None:
        self._require_rising("warning", "critical", "shedding")
        self._require_rising("warning_exit", "critical_exit", "shedding_exit")
        for level in ("warning", "critical", "shedding"):
            enter, leave = getattr(self, level), getattr(self, f"{level}_exit")
            if leave >= enter:
                raise InvalidValueError(f"{level}_exit", leave, f"below {level} ({enter:g}), or the level would flap")

    def _require_rising(self, *names: str) -> None:
        floor, floor_name = 0.0, "0"
        for name in names:
            value: float = getattr(self, name)
            if not floor < value <= 1:  # written so that NaN fails as well
                raise InvalidValueError(name, value, f"above {floor_name} and at most 1")
            floor, floor_name = value, f"{name} ({value:g})"

    def enter(self, level: PressureLevel) -> float:
        """Return the occupancy from which a lower level rises to `level`."""
        return (0.0, self.warning, self.critical, self.shedding)[level]

    def leave(self, level: PressureLevel) -> float:
        """Return the occupancy below which `level` ends."""
        return (0.0, self.warning_exit, self.critical_exit, self.shedding_exit)[level]


DEFAULT_THRESHOLDS = PressureThresholds()


def next_level(current: PressureLevel, occupancy: float, thresholds: PressureThresholds) -> PressureLevel:
    """Return the level after `current` at `occupancy`; it may jump several levels in either direction.

    A level not above the current one is kept down to its exit threshold, a higher one needs its enter threshold.
    """
    filled = filled_fraction(occupancy)
    bounds = {
        level: thresholds.leave(level) if level <= current else thresholds.enter(level) for level in PressureLevel
    }
    return max(level for level, bound in bounds.items() if filled >= bound)


def filled_fraction(occupancy: float) -> float:
    """Return `occupancy` as a fraction; fuller than full is full, negative or not a number is refused.

    A lowered limit leaves more in a queue than now fits. That is a reading, not a mistake.
    """
    if not math.isfinite(occupancy) or occupancy < 0:
        raise InvalidValueError("occupancy", occupancy, "a number from 0 (empty) to 1 (full)")
    return min(float(occupancy), 1.0)
