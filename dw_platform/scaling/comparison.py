"""What a comparison of rules comes to: sums, ratios, and the traces on which somebody else was better in everything."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from dw_platform.scaling.simulator import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """How much better than a rival a rule should be, in the sum of all traces."""

    late: float = 0.8
    changes: float = 0.5
    consumers: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One rule beside one rival: each measure as a share of the rival's; less than 1 is better."""

    rival: str
    late: float
    changes: float
    consumers: float

    def missed(self, aim: Aim) -> tuple[str, ...]:
        """Return the measures in which the aim is missed."""
        return tuple(name for name in ("late", "changes", "consumers") if getattr(self, name) > getattr(aim, name))


def summed(outcomes: Iterable[Outcome], *, trace: str | None = None) -> dict[str, Outcome]:
    """Return each rule's sums, over all traces or over those of one name; in the order in which rules come."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for outcome in outcomes:
        if trace in {None, outcome.trace}:
            sums[outcome.rule] = [mine + its for mine, its in zip(sums[outcome.rule], outcome.measures, strict=True)]
    return {
        rule: Outcome(rule=rule, trace=trace or "all", late_s=late_s, changes=changes, consumer_s=consumer_s)
        for rule, (late_s, changes, consumer_s) in sums.items()
    }


def against(own: Outcome, rival: Outcome) -> Against:
    """Return how `own` compares with `rival`."""
    late, changes, consumers = (_share(mine, its) for mine, its in zip(own.measures, rival.measures, strict=True))
    return Against(rival=rival.rule, late=late, changes=changes, consumers=consumers)


def beaten_on(outcomes: Iterable[Outcome], own: str) -> list[Outcome]:
    """Return the outcomes of others that were better than `own` on the same trace in all three measures.

    `outcomes` are of traces with different names, so sums come first where there were several seeds.
    """
    by_trace: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_trace[outcome.trace].append(outcome)
    return [
        other
        for together in by_trace.values()
        for mine in together
        if mine.rule == own
        for other in together
        if other.better_than(mine)
    ]


def _share(mine: int, its: int) -> float:
    if mine == its:
        return 1.0
    return mine / its if its else float("inf")
