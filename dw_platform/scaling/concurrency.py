"""How many copies may work on the disks at once: a pure decision, for backups and their sensor.

Two ways of reading a device, chosen by the policy:

- `utilisation`: one more below 60 % busy, one less above 80 %. Busy means that at least one request was under way,
  which is the truth about a disk that serves one request at a time. A device that serves many looks busy with one
  reader, so there this way stops early.
- `latency`: how many requests wait inside the device, told from how much longer they take than when it was quiet.
  It grows into parallel devices, as long as the last growth brought throughput.

Both leave a gap between growing and shrinking, and move by one, so a limit rests or moves between two neighbours.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.limits import bounded, check_limits
from dw_platform.scaling.pressure import filled_fraction

# Four copies keep a disk busy while each of them also reads, compresses and hashes.
COPIES_PER_DISK = 4

# The quickest time ever seen is forgotten by 1 % a reading: a device that became slower for good (a cloud disk that
# used up its burst) would otherwise look overloaded for ever. At a reading every 30 s it takes half an hour to double.
_FORGET = 1.01


class Follow(StrEnum):
    """What a decision reads from the device."""

    UTILISATION = "utilisation"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPolicy:
    """How far concurrency may go, and what moves it."""

    floor: int = field(default=1, metadata=bounded(at_least=1, reason="work that has begun always gets on"))
    ceiling: int = field(default=COPIES_PER_DISK, metadata=bounded(at_least=1, reason="4 for each disk"))
    follow: Follow = Follow.UTILISATION
    grow_below: float = field(default=0.6, metadata=bounded(above=0.0, at_most=1.0, reason="utilisation"))
    shrink_above: float = field(default=0.8, metadata=bounded(above=0.0, at_most=1.0, reason="utilisation"))
    queue_low: float = field(
        default=2.0, metadata=bounded(above=0.0, unit="requests", reason="fewer wait in the device: room for one more")
    )
    queue_high: float = field(
        default=4.0, metadata=bounded(above=0.0, unit="requests", reason="more wait in the device: one less")
    )
    least_gain: float = field(
        default=0.05, metadata=bounded(at_least=0.0, reason="throughput the last growth must have brought to go on")
    )

    def __post_init__(self) -> None:
        check_limits(self)
        if self.floor > self.ceiling:
            raise InvalidValueError("floor", self.floor, f"at most ceiling ({self.ceiling})")
        if self.grow_below >= self.shrink_above:
            raise InvalidValueError("grow_below", self.grow_below, f"below shrink_above ({self.shrink_above:g})")
        # A step changes the number of waiting requests by up to one; a narrower band could be jumped over for ever.
        if self.queue_high - self.queue_low < 1:
            raise InvalidValueError("queue_low", self.queue_low, f"1 or more below queue_high ({self.queue_high:g})")

    @classmethod
    def for_disks(cls, disks: int, *, follow: Follow = Follow.UTILISATION) -> "ConcurrencyPolicy":
        """Return the policy of a machine with that many disks; none seen (a network drive) counts as one."""
        return cls(ceiling=COPIES_PER_DISK * max(disks, 1), follow=follow)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTrail:
    """What `latency` remembers of one piece of work: a new one starts with an empty trail.

    It holds the last reading, the quickest time seen, and the last reading at another limit.
    """

    limit: int = 0
    await_ms: float = 0.0
    bytes_per_s: float = 0.0
    best_await_ms: float = 0.0
    other_limit: int = 0
    other_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value >= 0 for value in asdict(self).values()):
            raise InvalidValueError("trail", asdict(self), "numbers that are finite and not negative")

    def after(self, limit: int, *, await_ms: float, bytes_per_s: float) -> "LatencyTrail":
        """Return the trail after a reading that was taken while `limit` was in force.

        A quiet device (`await_ms` of 0: no request ended) teaches nothing and leaves the trail as it is.
        """
        if not (math.isfinite(await_ms) and math.isfinite(bytes_per_s) and await_ms > 0 and bytes_per_s >= 0):
            return self
        if self.limit not in {0, limit}:
            return self._read(limit, await_ms, bytes_per_s, other=(self.limit, self.bytes_per_s))
        return self._read(limit, await_ms, bytes_per_s, other=(self.other_limit, self.other_bytes_per_s))

    def to_json(self) -> str:
        """Return the trail as text, for a cursor."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; anything else is refused."""
        try:
            content: dict[str, Any] = json.loads(text)
            return cls(**content)
        except (ValueError, TypeError) as error:
            raise InvalidValueError("trail", text, "what LatencyTrail.to_json has written") from error

    def _read(self, limit: int, await_ms: float, bytes_per_s: float, *, other: tuple[int, float]) -> "LatencyTrail":
        best = min(await_ms, self.best_await_ms * _FORGET) if self.best_await_ms else await_ms
        return replace(
            self,
            limit=limit,
            await_ms=await_ms,
            bytes_per_s=bytes_per_s,
            best_await_ms=best,
            other_limit=other[0],
            other_bytes_per_s=other[1],
        )


@dataclass(frozen=True, slots=True)
class ConcurrencyDecision:
    """How many may work at once, and why."""

    limit: int
    reason: str


def decide_concurrency(
    current: int,
    *,
    utilisation: float | None,
    policy: ConcurrencyPolicy,
    latency: LatencyTrail | None = None,
) -> ConcurrencyDecision:
    """Return the next limit: at most one away from `current`, unless `current` is out of bounds.

    A policy that follows latency falls back to utilisation until the trail has a reading at `current`. What is not
    known changes nothing.
    """
    if not policy.floor <= current <= policy.ceiling:
        within = min(max(current, policy.floor), policy.ceiling)
        return ConcurrencyDecision(within, f"{current} is outside {policy.floor} to {policy.ceiling}")
    if policy.follow is Follow.LATENCY and latency is not None and latency.limit == current:
        return _by_latency(current, latency, policy)
    return _by_utilisation(current, utilisation, policy)


def _by_utilisation(current: int, utilisation: float | None, policy: ConcurrencyPolicy) -> ConcurrencyDecision:
    if utilisation is None:
        return ConcurrencyDecision(current, "the utilisation of the disks is not known")
    busy = filled_fraction(utilisation)
    if busy < policy.grow_below:
        return _more(current, policy, f"{busy:.0%} busy, below {policy.grow_below:.0%}")
    if busy > policy.shrink_above:
        return _fewer(current, policy, f"{busy:.0%} busy, above {policy.shrink_above:.0%}")
    return ConcurrencyDecision(current, f"{busy:.0%} busy is inside the band")


def _by_latency(current: int, trail: LatencyTrail, policy: ConcurrencyPolicy) -> ConcurrencyDecision:
    # Little's law: the share of the time that a request spends waiting is the share of the requests that wait.
    queued = current * (1 - trail.best_await_ms / trail.await_ms)
    facts = f"{trail.await_ms:.2f} ms against {trail.best_await_ms:.2f} ms at best: {queued:.1f} requests wait"
    if queued > policy.queue_high:
        return _fewer(current, policy, facts)
    if queued >= policy.queue_low:
        return ConcurrencyDecision(current, f"{facts}, inside the band")
    if trail.other_limit == current - 1 and trail.bytes_per_s < trail.other_bytes_per_s * (1 + policy.least_gain):
        return ConcurrencyDecision(current, f"{facts}, but the step to {current} brought no throughput")
    return _more(current, policy, facts)


def _more(current: int, policy: ConcurrencyPolicy, facts: str) -> ConcurrencyDecision:
    if current >= policy.ceiling:
        return ConcurrencyDecision(current, f"{facts}, but {policy.ceiling} is the most")
    return ConcurrencyDecision(current + 1, facts)


def _fewer(current: int, policy: ConcurrencyPolicy, facts: str) -> ConcurrencyDecision:
    if current <= policy.floor:
        return ConcurrencyDecision(current, f"{facts}, but {policy.floor} is the least")
    return ConcurrencyDecision(current - 1, facts)
