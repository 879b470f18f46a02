"""How many consumers read a stream: the platform's decision against published rules, in a simulator.

Nothing is timed, so the figures depend on the seeds alone and are the same on every machine. Eight kinds of loads, one
of each for every seed; each rule meets the same load, start-up time and pauses. The rivals work with the defaults of
their documentation. Where there is no default, for the lag that each consumer may have, several values are tried:
15 s of one consumer's reading, half of the age at which a record is late here, and the small values that a search
found best for them, which nobody could know beforehand.

A whole run draws the loads of the first seed into docs/images/control; the same seeds draw the same pictures.
"""

import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.control_plot import draw
from benchmarks.harness import Options
from dw_platform.scaling.comparison import Aim, against, beaten_on, summed
from dw_platform.scaling.own_rule import own
from dw_platform.scaling.rival_flink import flink
from dw_platform.scaling.rivals import KedaTrigger, hpa, keda
from dw_platform.scaling.simulated_stream import StreamSetup
from dw_platform.scaling.simulator import Outcome, RuleMaker, simulate
from dw_platform.scaling.traces import LoadShape, made_up

NAME = "control"
DESCRIPTION = "consumers of a stream: late seconds, changes and consumer-seconds of this platform, HPA, KEDA and Flink"

SEEDS, QUICK_SEEDS = 10, 1
OWN = "this platform"
PICTURES = Path(__file__).parents[1] / "docs" / "images" / "control"
SETUP = StreamSetup()
# KEDA's own default is 10 records, which is a hundredth of a second of one consumer's reading.
_KEDA_DEFAULT_S = 10 / SETUP.capacity

RULES: dict[str, RuleMaker] = {
    OWN: own(),
    "HPA, 15 s": hpa(15),
    "HPA, 5 s": hpa(5),
    "HPA, 1.5 s": hpa(1.5),
    "HPA, 1 s": hpa(1),
    "KEDA, 15 s": keda(15),
    "KEDA, 1.5 s": keda(1.5),
    "KEDA, 1.5 s, no persistent lag": keda(1.5, KedaTrigger(exclude_persistent_lag=True)),
    "KEDA, 1.5 s, partitions with lag": keda(1.5, KedaTrigger(limit_to_partitions_with_lag=True)),
    "KEDA, 10 records": keda(_KEDA_DEFAULT_S),
    "Flink": flink,
}
DRAWN = (OWN, "HPA, 15 s", "HPA, 1.5 s", "Flink")


def run(options: Options) -> dict[str, Any]:
    """Play every seed and compare the sums; `--repeats` is the number of seeds."""
    seeds = range(options.repeats or (QUICK_SEEDS if options.quick else SEEDS))
    with ProcessPoolExecutor(options.processes or 1) as pool:
        played = list(pool.map(_quick_seed if options.quick else _seed, seeds))
    outcomes = [outcome for seed in played for outcome in seed]
    totals = [summed(seed) for seed in played]
    whole = summed(outcomes)
    traces = {name: summed(outcomes, trace=name) for name in dict.fromkeys(outcome.trace for outcome in outcomes)}
    if not options.quick:
        _draw_all()
    return {
        "seeds": len(seeds),
        "setup": {name: getattr(SETUP, name) for name in StreamSetup.__slots__},
        "measures": [row for rule in RULES for row in _rows(rule, totals, whole)],
        "traces": {
            name: {rule: list(outcome.measures) for rule, outcome in sums.items()} for name, sums in traces.items()
        },
        "checks": _checks(whole, [outcome for sums in traces.values() for outcome in sums.values()], played),
    }


def _seed(seed: int, only: tuple[str, ...] | None = None) -> list[Outcome]:
    traces = made_up(LoadShape(capacity=SETUP.capacity), seed, only)
    return [outcome for trace in traces for outcome in simulate(trace, RULES, SETUP)]


def _quick_seed(seed: int) -> list[Outcome]:
    return _seed(seed, ("step", "poisoned partition"))


def _rows(rule: str, totals: list[dict[str, Outcome]], whole: dict[str, Outcome]) -> list[dict[str, Any]]:
    """Return a rule's three measures; a ratio is the platform's sum over the rule's."""
    ratios = against(whole[OWN], whole[rule])
    rows = []
    for what, unit, index, ratio in (
        ("late", "s", 0, ratios.late),
        ("changes", "changes", 1, ratios.changes),
        ("consumers", "consumer-s", 2, ratios.consumers),
    ):
        runs = [seed[rule].measures[index] for seed in totals]
        row: dict[str, Any] = {"name": f"{rule}: {what}", "unit": unit, "runs": runs, "median": _median(runs)}
        rows.append(
            row
            if rule == OWN
            else row | {"peer": f"{OWN} / it", "ratio": round(ratio, 3) if math.isfinite(ratio) else None}
        )
    return rows


def _finite(ratio: float) -> float | None:
    """Return the ratio as JSON can hold it; None where the rule has 0 and the platform has not."""
    return round(ratio, 3) if math.isfinite(ratio) else None


def _median(runs: list[int]) -> float:
    ordered = sorted(runs)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _checks(whole: dict[str, Outcome], by_trace: list[Outcome], played: list[list[Outcome]]) -> dict[str, Any]:
    aim = Aim()
    checks: dict[str, Any] = {
        "no rule is better in all three on any load, in sums": not beaten_on(by_trace, OWN),
        "no rule is better in all three on any load, in any seed": not [
            worse for seed in played for worse in beaten_on(seed, OWN)
        ],
    }
    wish = f"at most {aim.late} x late, {aim.changes} x changes, {aim.consumers:g} x consumers of"
    for rule, total in whole.items():
        if rule != OWN:
            missed = against(whole[OWN], total).missed(aim)
            checks[f"{wish} {rule}"] = "met" if not missed else f"missed in {', '.join(missed)}"
    return checks


def _draw_all() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    rules = {name: RULES[name] for name in DRAWN}
    for trace in made_up(LoadShape(capacity=SETUP.capacity), 0):
        every_s = max(15, trace.seconds // 720)
        outcomes = simulate(trace, rules, SETUP, plot_every_s=every_s)
        picture = draw(trace.name, outcomes, capacity=SETUP.capacity, limit_s=SETUP.max_age_s)
        (PICTURES / f"{trace.name.replace(' ', '-')}.svg").write_text(picture)
