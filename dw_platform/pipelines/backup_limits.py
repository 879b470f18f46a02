"""The subsystem `backup`: how many copies run at once, and what moves that number."""

from dataclasses import dataclass, field

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupLimits:
    """What backups may do at once; everything here can be changed while it runs."""

    jobs: int = field(
        default=1, metadata=bounded(at_least=1, unit="tables", reason="backed up at once; a sensor follows the disks")
    )
    streams: int | None = field(
        default=None,
        metadata=bounded(at_least=1, unit="files", reason="copied at once by a job at most; none: 4 for each disk"),
    )
    grow_below: float = field(
        default=0.6, metadata=bounded(above=0.0, at_most=1.0, reason="disk utilisation below which one more copies")
    )
    shrink_above: float = field(
        default=0.8, metadata=bounded(above=0.0, at_most=1.0, reason="disk utilisation above which one less copies")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
        if self.grow_below >= self.shrink_above:
            raise InvalidValueError("grow_below", self.grow_below, f"below shrink_above ({self.shrink_above:g})")
