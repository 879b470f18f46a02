import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.control_plot import draw
from benchmarks.control_replay import main as replay
from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.comparison import Aim, against, beaten_on, summed
from dw_platform.scaling.own_rule import own
from dw_platform.scaling.recorded_trace import recorded
from dw_platform.scaling.rival_flink import flink
from dw_platform.scaling.rivals import Hpa, Keda, KedaTrigger, hpa
from dw_platform.scaling.simulated_stream import SimulatedStream, StreamSetup
from dw_platform.scaling.simulator import Outcome, View, simulate
from dw_platform.scaling.stream_reading import PartitionOffsets
from dw_platform.scaling.traces import HotSpell, LoadShape, StuckSpell, Trace, kinds, made_up

SETUP = StreamSetup(capacity=100, first_consumers=2, max_consumers=8, start_s=10, pause_s=2)
MINUTE, HOUR = 60, 3_600


class Fixed:
    """A rule that never changes its mind."""

    every_s = 15

    def __init__(self, consumers: int) -> None:
        self._consumers = consumers

    def decide(self, _: View) -> int:
        return self._consumers


def steady(rate: float, seconds: int = 600, partitions: int = 8, **ill: object) -> Trace:
    return Trace(name="steady", offered=[rate] * seconds, partitions=partitions, **ill)  # type: ignore[arg-type]


def played(trace: Trace, consumers: int, setup: StreamSetup = SETUP) -> Outcome:
    (outcome,) = simulate(trace, {"fixed": lambda *_: Fixed(consumers)}, setup)
    return outcome


@settings(deadline=None, max_examples=50)
@given(
    rates=st.lists(st.floats(0, 2_000), min_size=1, max_size=60),
    consumers=st.lists(st.integers(0, 10), min_size=1, max_size=60),
    partitions=st.integers(1, 9),
)
def test_no_record_is_lost_and_nobody_reads_more_than_it_can(
    rates: list[float], consumers: list[int], partitions: int
) -> None:
    stream = SimulatedStream(Trace(name="x", offered=rates, partitions=partitions), SETUP)
    for second, _ in enumerate(rates):
        before = sum(partition.read for partition in stream.partitions)
        stream.step(second)
        read = sum(partition.read for partition in stream.partitions)
        assert read - before <= stream.running * SETUP.capacity + 1e-6
        for partition in stream.partitions:
            assert partition.committed <= partition.read <= partition.came + 1e-6
        stream.scale_to(consumers[second % len(consumers)], second)
    assert sum(partition.came for partition in stream.partitions) == pytest.approx(sum(rates))


def test_the_age_is_that_of_the_oldest_record_that_nobody_has_read() -> None:
    stream = SimulatedStream(steady(100, partitions=1), SETUP, consumers=0)
    for second in range(40):
        stream.step(second)
    assert stream.oldest(39) == 39
    assert stream.late(39) == 1
    stream.partitions[0].read = 3_050
    assert stream.oldest(39) == 9


def test_a_new_consumer_reads_after_it_has_started_and_costs_from_the_decision_on() -> None:
    stream = SimulatedStream(steady(0), SETUP)
    stream.step(0)
    stream.scale_to(4, 0)
    running = []
    for second in range(1, 15):
        stream.step(second)
        running.append(stream.running)
    assert running == [2] * 9 + [4] * 5
    assert stream.consumer_seconds == 2 + 14 * 4
    assert stream.changes == 1


def test_consumers_that_have_not_started_go_first_and_wanting_the_same_is_no_change() -> None:
    stream = SimulatedStream(steady(0), SETUP)
    stream.scale_to(6, 0)
    stream.scale_to(6, 1)
    stream.scale_to(3, 2)
    assert (stream.running, stream.wanted, stream.changes) == (2, 3, 2)


def test_nobody_reads_while_partitions_move() -> None:
    stream = SimulatedStream(steady(50), SETUP)
    stream.step(0)
    stream.scale_to(1, 0)
    stream.step(1)
    assert stream.busiest == 0
    stream.step(2)
    assert stream.busiest == 1


def test_positions_are_seen_when_they_are_committed() -> None:
    stream = SimulatedStream(steady(80, partitions=8), SETUP)
    for second in range(21):
        stream.step(second)
    lags = [offsets.end - offsets.position for offsets in stream.offsets().values()]
    assert all(partition.waiting == 0 for partition in stream.partitions)
    assert sorted(set(lags)) == [0, 10, 20, 30, 40]


def test_enough_consumers_are_never_late_and_too_few_are() -> None:
    assert played(steady(190), 2).late_s == 0
    assert played(steady(300), 2).late_s > 300


def test_a_partition_that_nobody_could_read_is_nobodys_fault_and_the_others_are() -> None:
    stuck = steady(190, stuck=(StuckSpell(partition=3, start=0, end=600),))
    assert played(stuck, 2).late_s == 0
    assert played(steady(300, stuck=(StuckSpell(partition=3, start=0, end=600),)), 2).late_s > 300


def test_a_hot_partition_is_excused_only_as_far_as_a_consumer_of_its_own_is_late() -> None:
    hot = (HotSpell(partition=0, start=0, end=300, extra=150),)
    assert played(steady(80, 1_200, hot=hot), 8, replace(SETUP, first_consumers=8)).late_s == 0
    assert played(steady(80, 1_200, hot=hot), 1).late_s > 100


def test_the_same_seed_is_the_same_load_and_another_is_another() -> None:
    shape = LoadShape(partitions=4)
    assert [trace.name for trace in made_up(shape, 0)] == list(kinds())
    assert made_up(shape, 7, ["noise"]) == made_up(shape, 7, ["noise"])
    assert made_up(shape, 7, ["noise"]) != made_up(shape, 8, ["noise"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"offered": []},
        {"offered": [-1.0]},
        {"offered": [float("nan")]},
        {"stuck": (StuckSpell(partition=2, start=0, end=1),)},
    ],
)
def test_a_load_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Trace(**({"name": "x", "offered": [1.0], "partitions": 2} | wrong))  # type: ignore[arg-type]


def view(lag: int, wanted: int, second: int = 15, partitions: int = 4) -> View:
    offsets = {n: PartitionOffsets(1_000 + second, 1_000 + second + lag // partitions) for n in range(partitions)}
    return View(second=second, partitions=offsets, running=wanted, wanted=wanted, busy=1.0)


def test_hpa_wants_the_total_over_the_target_rounded_up() -> None:
    assert Hpa(100, at_least=1, at_most=50).decide(view(1_000, 6)) == 10


def test_hpa_leaves_ten_percent_alone() -> None:
    rule = Hpa(100, at_least=1, at_most=50)
    assert rule.decide(view(1_096, 10, 15)) == 10
    assert rule.decide(view(1_108, 10, 30)) == 12


def test_hpa_adds_four_or_doubles_whichever_is_more() -> None:
    assert Hpa(1, at_least=1, at_most=50).decide(view(10_000, 2)) == 6
    assert Hpa(1, at_least=1, at_most=50).decide(view(10_000, 10)) == 20


def test_hpa_goes_down_to_the_highest_of_five_minutes() -> None:
    rule = Hpa(100, at_least=1, at_most=50)
    assert rule.decide(view(1_000, 10, 15)) == 10
    assert rule.decide(view(400, 10, 30)) == 10
    assert rule.decide(view(200, 10, 45)) == 10
    assert rule.decide(view(200, 10, 15 + 300)) == 4
    assert rule.decide(view(200, 4, 30 + 300)) == 2


def test_keda_asks_for_no_more_than_partitions_and_none_after_the_cooldown() -> None:
    rule = Keda(10, at_most=50)
    assert rule.decide(view(100_000, 3, 30)) == 4
    assert rule.decide(view(0, 4, 60)) == 4
    assert rule.decide(view(0, 1, 300)) == 1
    assert rule.decide(view(0, 1, 330)) == 0
    assert rule.decide(view(8, 0, 345)) == 0
    assert rule.decide(view(8, 0, 360)) == 1


def test_keda_can_leave_out_partitions_that_stand_still() -> None:
    offsets = {0: PartitionOffsets(5, 100_005), 1: PartitionOffsets(50, 60)}
    moved = {0: PartitionOffsets(5, 100_005), 1: PartitionOffsets(60, 70)}
    rule = Keda(10, at_most=50, trigger=KedaTrigger(exclude_persistent_lag=True))
    assert rule.decide(View(second=15, partitions=offsets, running=1, wanted=1, busy=1)) == 2
    later = View(second=15 + 315, partitions=moved, running=2, wanted=2, busy=1)
    assert rule.decide(later) == 1


def test_flink_waits_for_a_whole_window_and_then_sizes_for_seventy_percent_and_the_restart() -> None:
    # 2 consumers of 100 get 150/s: busy 0.75, inside 0.4 to 1.0, nothing to do.
    (inside,) = simulate(steady(150, 2 * HOUR, partitions=16), {"flink": flink}, SETUP)
    assert inside.changes == 0
    # 1 consumer gets 130/s: the first decision is possible 20 min after the start.
    setup = StreamSetup(capacity=100, first_consumers=1, max_consumers=16, start_s=10, pause_s=2)
    (outcome,) = simulate(steady(130, HOUR, partitions=16), {"flink": flink}, setup, plot_every_s=MINUTE)
    first = next(moment for moment in outcome.moments if moment.consumers != 1)
    assert 20 * MINUTE <= first.second <= 22 * MINUTE
    # (lag 36,000 / 1,800 s + 130 * 300 / 1,800 + 130 / 0.7) over 100 are 2.3, and 3 does not divide 16.
    assert first.consumers == 4


def test_flink_shrinks_after_an_hour_and_not_below_forty_percent_at_once() -> None:
    setup = StreamSetup(capacity=100, first_consumers=16, max_consumers=16, start_s=10, pause_s=2)
    (outcome,) = simulate(steady(50, 3 * HOUR, partitions=16), {"flink": flink}, setup, plot_every_s=MINUTE)
    changes = [moment for moment in outcome.moments if moment.consumers != 16]
    assert 80 * MINUTE <= changes[0].second <= 83 * MINUTE
    assert changes[0].consumers == 8  # 6.4, and up to the next that divides 16


def test_the_platforms_rule_makes_fewer_changes_and_is_not_later_where_rules_that_follow_lag_flap() -> None:
    shape = LoadShape(partitions=16)
    (step,) = made_up(shape, 3, ["step"])
    ours, theirs = simulate(step, {"own": own(), "hpa": hpa(15)}, StreamSetup())
    assert ours.changes <= 0.5 * theirs.changes
    assert ours.late_s <= 0.8 * theirs.late_s


@pytest.mark.parametrize("seed", [31, 32, 33])
def test_a_poisoned_partition_adds_no_consumer_in_the_simulator_either(seed: int) -> None:
    (trace,) = made_up(LoadShape(), seed, ["poisoned partition"])
    (spell,) = trace.stuck
    (outcome,) = simulate(trace, {"own": own()}, StreamSetup(), plot_every_s=15)
    before = [m.consumers for m in outcome.moments if spell.start - 300 < m.second <= spell.start]
    during = [m.consumers for m in outcome.moments if spell.start < m.second < spell.end]
    assert max(during) <= max(before)


def outcome(rule: str, trace: str, *measures: int) -> Outcome:
    late, changes, consumers = measures
    return Outcome(rule=rule, trace=trace, late_s=late, changes=changes, consumer_s=consumers)


def test_sums_ratios_and_aims() -> None:
    outcomes = [outcome("own", "a", 1, 2, 30), outcome("own", "b", 3, 4, 30), outcome("hpa", "a", 5, 4, 60)]
    sums = summed(outcomes)
    assert sums["own"].measures == (4, 6, 60)
    assert summed(outcomes, trace="b").keys() == {"own"}
    beside = against(sums["own"], sums["hpa"])
    assert (beside.late, beside.changes, beside.consumers) == (0.8, 1.5, 1.0)
    assert beside.missed(Aim()) == ("changes",)
    assert against(outcome("own", "a", 1, 0, 1), outcome("hpa", "a", 0, 0, 1)).missed(Aim()) == ("late", "changes")


def test_a_rule_is_beaten_where_another_is_better_in_all_three_on_the_same_load() -> None:
    own_a, better, equal = outcome("own", "a", 5, 5, 5), outcome("x", "a", 4, 4, 4), outcome("y", "a", 4, 4, 5)
    elsewhere = outcome("x", "b", 0, 0, 0)
    assert beaten_on([own_a, better, equal, elsewhere, outcome("own", "b", 0, 9, 9)], "own") == [better]


START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [(0, 0.0), (10, 120.0), (30, 600.0), (40, 90.0)]


def test_a_recorded_load_is_what_came_in_since_the_row_before() -> None:
    rows = [{"at": (START + timedelta(seconds=second)).isoformat(), "records_per_s": rate} for second, rate in ROWS]
    trace = recorded("mine", reversed(rows), partitions=4)
    assert trace.offered == [120.0] * 10 + [600.0] * 20 + [90.0] * 10


def test_rows_of_one_time_add_up() -> None:
    rows = [{"t": str(second), "rate": rate / 2} for second, rate in ROWS for _ in range(2)]
    assert list(recorded("mine", rows, partitions=4, at="t", records_per_s="rate").offered)[:2] == [120.0, 120.0]


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "rows"),
        ([{"at": 1, "records_per_s": 1}], "rows"),
        ([{"at": "soon", "records_per_s": 1}] * 2, "at"),
        ([{"at": 1, "lag": 1}] * 2, "records_per_s"),
        ([{"at": 1, "records_per_s": "nan"}] * 2, "records_per_s"),
        ([{"at": 0, "records_per_s": 1}, {"at": 10**9, "records_per_s": 1}], "rows"),
        ([{"at": 0, "records_per_s": 1}, {"at": 5, "records_per_s": -1}], "offered"),
    ],
)
def test_a_recording_that_cannot_be_a_load_is_refused_by_name(rows: list[dict[str, object]], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        recorded("mine", rows, partitions=4)
    assert error.value.field == field


def test_a_picture_is_well_formed_and_has_a_line_for_each_rule_in_both_diagrams() -> None:
    trace = Trace(name="a < b", offered=[500.0] * 900, partitions=8)
    outcomes = simulate(trace, {"own": own(), "hpa": hpa(5)}, SETUP, plot_every_s=15)
    picture = draw(trace.name, outcomes, capacity=SETUP.capacity, limit_s=30)
    root = ET.fromstring(picture)
    classes = [path.get("class") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    assert sorted(str(each) for each in classes) == ["line load", "line r0", "line r0", "line r1", "line r1"]
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "own", "hpa"} <= set(texts)
    assert "prefers-color-scheme: dark" in picture


def _csv(path: Path) -> Path:
    file = path / "load.csv"
    lines = [f"{(START + timedelta(seconds=60 * n)).isoformat()},{300 + 10 * n}" for n in range(10)]
    file.write_text("\n".join(["at,records_per_s", *lines]))
    return file


def _json_lines(path: Path) -> Path:
    file = path / "load.json"
    rows = [{"at": 60 * n, "records_per_s": 300 + 10 * n} for n in range(10)]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def _delta(path: Path) -> Path:
    import pyarrow as pa
    from deltalake import write_deltalake

    at = pa.array([START + timedelta(seconds=60 * n) for n in range(10)], pa.timestamp("us", "UTC"))
    write_deltalake(path / "load", pa.table({"at": at, "records_per_s": [300.0 + 10 * n for n in range(10)]}))
    return path / "load"


@pytest.mark.parametrize("written", [_csv, _json_lines, _delta])
def test_ones_own_load_is_played_against_all_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: Callable[[Path], Path]
) -> None:
    file, picture = written(tmp_path), tmp_path / "load.svg"
    assert replay([str(file), "--capacity", "100", "--partitions", "8", "--picture", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "540 s" in told
    assert "this platform" in told
    assert "Flink" in told
    ET.fromstring(picture.read_text())


@pytest.mark.parametrize(("content", "advice"), [("{", "holds no load"), ("[1]", "not every row"), ("[]", "two times")])
def test_a_file_that_holds_no_load_is_told_apart_from_a_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, advice: str
) -> None:
    file = tmp_path / "load.json"
    file.write_text(content)
    assert replay([str(file)]) == 2
    assert advice in capsys.readouterr().err
