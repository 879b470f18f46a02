"""What file I/O may do at once and in an hour; everything here can be changed while it runs."""

from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.fileio.dispatch import PriorityWeights
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits

# Deeper than any single device asks for; a larger number would only hide a mistake.
DEEPEST = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class IoLimits:
    """The limits of file I/O in one process."""

    queue_depth: int | None = field(
        default=None,
        metadata=bounded(
            at_least=1, at_most=DEEPEST, unit="requests", reason="under way at once; none: NVMe 128, SSD 32, HDD 8"
        ),
    )
    weights: PriorityWeights = PriorityWeights()  # noqa: RUF009  it is frozen
    quota_bytes_per_hour: int | None = field(
        default=None, metadata=bounded(at_least=1, unit="bytes", reason="of each caller; none: no quota")
    )
    quota_requests_per_hour: int | None = field(
        default=None, metadata=bounded(at_least=1, unit="requests", reason="of each caller; none: no quota")
    )
    quota_soft_share: float = field(
        default=0.8, metadata=bounded(above=0.0, at_most=1.0, reason="of a quota; from here on its caller is slowed")
    )
    quota_longest_wait: timedelta = field(
        default=timedelta(seconds=30), metadata=bounded(at_least=timedelta(0), reason="of one slowed request")
    )
    sample_every: timedelta = field(
        default=timedelta(seconds=1),
        metadata=bounded(at_least=timedelta(milliseconds=10), reason="the averages remember about three samples"),
    )
    detect_every: timedelta = field(
        default=timedelta(minutes=5), metadata=bounded(above=timedelta(0), reason="io_uring and direct I/O")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
