"""How the number of a stream's consumers follows its load: the numbers, each with its reason."""

from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.limits import bounded, check_limits
from dw_platform.scaling.streams import ScalabilityConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScalePolicy:
    """All of it can be changed while the platform runs."""

    scalability: ScalabilityConfig = field(default_factory=ScalabilityConfig)
    """How far a stream grows, and the age at which its records are late."""

    min_consumers: int = field(default=1, metadata=bounded(at_least=0, unit="consumers"))
    sample_every: timedelta = field(
        default=timedelta(seconds=15),
        metadata=bounded(
            at_least=timedelta(seconds=1), reason="a look that comes earlier decides nothing, so rates stay comparable"
        ),
    )
    in_flight: timedelta = field(
        default=timedelta(seconds=6),
        metadata=bounded(
            at_least=timedelta(0), reason="lag of a reader that keeps up: what comes between two commits, 5 s apart"
        ),
    )
    target_share: float = field(
        default=0.9, metadata=bounded(above=0.0, at_most=1.0, reason="load of the busiest consumer after a change")
    )
    grow_share: float = field(
        default=0.95, metadata=bounded(above=0.0, at_most=1.0, reason="load of the busiest consumer that asks for more")
    )
    catch_up: timedelta = field(
        default=timedelta(seconds=120),
        metadata=bounded(at_least=timedelta(seconds=1), reason="in which what waits should have been read"),
    )
    settle: timedelta = field(
        default=timedelta(seconds=45),
        metadata=bounded(
            at_least=timedelta(0), reason="consumers start and partitions move; nothing is added meanwhile"
        ),
    )
    shrink_after: timedelta = field(
        default=timedelta(minutes=5),
        metadata=bounded(at_least=timedelta(0), reason="for which fewer consumers must have been enough"),
    )
    longest_shrink_after: timedelta = field(
        default=timedelta(hours=1),
        metadata=bounded(
            at_least=timedelta(0),
            reason="a reduction that had to be taken back doubles the wait for the next, up to this",
        ),
    )
    stuck_after: timedelta = field(
        default=timedelta(seconds=60),
        metadata=bounded(at_least=timedelta(seconds=1), reason="without progress, after which a partition is poisoned"),
    )
    hot_room: float = field(
        default=0.9,
        metadata=bounded(
            at_least=0.0, at_most=1.0, reason="of its consumer, for a hot partition; 0 gives it none of its own"
        ),
    )
    batch_for: timedelta = field(
        default=timedelta(seconds=5),
        metadata=bounded(at_least=timedelta(milliseconds=100), reason="of reading, in one batch"),
    )
    min_batch: int = field(default=1_024, metadata=bounded(at_least=1, unit="records"))
    max_batch: int = field(default=1_048_576, metadata=bounded(at_least=1, unit="records"))
    consumers_per_slot: int = field(default=4, metadata=bounded(at_least=1, reason="of a Dagster pool"))

    def __post_init__(self) -> None:
        check_limits(self)
        if self.target_share >= self.grow_share:
            raise InvalidValueError(
                "target_share",
                self.target_share,
                f"below grow_share ({self.grow_share:g}), or each change asks for more",
            )
        if self.min_consumers > self.scalability.max_consumers:
            most = self.scalability.max_consumers
            raise InvalidValueError("min_consumers", self.min_consumers, f"at most max_consumers ({most})")
        if self.shrink_after > self.longest_shrink_after:
            raise InvalidValueError("shrink_after", self.shrink_after, "at most longest_shrink_after")
        if self.in_flight > self.sample_every / 2:
            raise InvalidValueError(
                "in_flight", self.in_flight, "at most half of sample_every, or no lag would be seen"
            )
        if self.min_batch > self.max_batch:
            raise InvalidValueError("min_batch", self.min_batch, f"at most max_batch ({self.max_batch})")

    @property
    def max_lag_s(self) -> float:
        """The age at which a record is late, in seconds."""
        return self.scalability.max_lag_ms / 1_000
