import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import (
    PartitionOffsets,
    ScalabilityConfig,
    StreamReading,
    StreamScalePolicy,
    StreamScaleState,
    decide_stream_scale,
    restore_state,
)
from dw_platform.scaling.aligned import consumers_for, most_partitions, share_of_busiest, useful_consumers
from dw_platform.scaling.stream_state import PartitionState
from tests.scaling.stream_drive import POLICY, START, Drive, minutes

RATES = st.floats(0, 20_000)


@st.composite
def states(draw: st.DrawFn) -> StreamScaleState:
    count = draw(st.integers(1, 6))
    known = {}
    for number in range(count):
        position = draw(st.integers(0, 10**6))
        known[number] = PartitionState(
            position=position,
            end=position + draw(st.integers(0, 10**6)),
            rate=draw(RATES),
            still_s=draw(st.sampled_from([0.0, 15.0, 90.0])),
            hot=draw(st.booleans()),
        )
    moments = st.none() | st.integers(0, 7_200).map(lambda ago: START - timedelta(seconds=ago))
    return StreamScaleState(
        at=START,
        partitions=known,
        running=draw(st.integers(0, 30)),
        capacity=draw(st.just(0.0) | st.floats(0.1, 5_000)),
        wanted=draw(st.none() | st.integers(0, 30)),
        changed_at=draw(moments),
        calm_since=draw(moments),
        calm_peak=draw(st.integers(0, 30)),
        shrunk_at=draw(moments),
        regrets=draw(st.integers(0, 50)),
        batch=draw(st.integers(0, 10**7)),
    )


@st.composite
def readings_after(draw: st.DrawFn, state: StreamScaleState) -> StreamReading:
    offsets = {}
    for number, before in state.partitions.items():
        end = before.end + draw(st.integers(0, 10**6))
        offsets[number] = PartitionOffsets(draw(st.integers(before.position, end)), end)
    seconds = draw(st.integers(1, 400))
    return StreamReading(at=START + timedelta(seconds=seconds), partitions=offsets, consumers=draw(st.integers(0, 30)))


@settings(deadline=None)
@given(data=st.data(), state=states(), least=st.integers(0, 4))
def test_whatever_is_decided_is_within_bounds_and_has_a_reason(
    data: st.DataObject, state: StreamScaleState, least: int
) -> None:
    reading = data.draw(readings_after(state))
    policy = replace(POLICY, min_consumers=least)
    decision = decide_stream_scale(reading, state, policy)
    most = min(policy.scalability.max_consumers, len(reading.partitions))
    assert min(least, most) <= decision.consumers <= most
    assert len(reading.partitions) <= decision.partitions <= policy.scalability.max_partitions
    assert policy.min_batch <= decision.batch <= policy.max_batch
    assert 0 <= decision.slots <= decision.consumers
    assert decision.reason


@settings(deadline=None)
@given(data=st.data(), state=states())
def test_a_state_comes_back_from_its_text_and_decides_the_same(data: st.DataObject, state: StreamScaleState) -> None:
    reading = data.draw(readings_after(state))
    after = decide_stream_scale(reading, state, POLICY).state
    restored = restore_state(after.encode())
    assert restored.ignored is None
    assert restored.state.encode() == after.encode()
    rounded = restored.state
    later = replace(reading, at=reading.at + POLICY.sample_every)
    assert (
        decide_stream_scale(later, rounded, POLICY).state
        == decide_stream_scale(later, restore_state(rounded.encode()).state, POLICY).state
    )


@settings(deadline=None)
@given(
    partitions=st.integers(1, 24),
    consumers=st.integers(1, 16),
    capacity=st.floats(1, 5_000),
    rates=st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)),
    lag=st.integers(0, 100_000),
    more=st.integers(0, 1_000_000),
    calm=st.none() | st.integers(0, 900),
    changed=st.none() | st.integers(0, 900),
)
def test_more_lag_never_gives_fewer_consumers_from_the_same_state(
    *,
    partitions: int,
    consumers: int,
    capacity: float,
    rates: tuple[int, int],
    lag: int,
    more: int,
    calm: int | None,
    changed: int | None,
) -> None:
    before, read = rates
    state = StreamScaleState(
        at=START,
        partitions={n: PartitionState(position=0, end=lag, rate=before / 15) for n in range(partitions)},
        running=consumers,
        wanted=consumers,
        capacity=capacity,
        calm_since=None if calm is None else START - timedelta(seconds=calm),
        calm_peak=1,
        changed_at=None if changed is None else START - timedelta(seconds=changed),
    )

    def decided(extra: int) -> int:
        offsets = PartitionOffsets(min(read, lag), lag + extra)
        reading = StreamReading(
            at=START + POLICY.sample_every, partitions=dict.fromkeys(range(partitions), offsets), consumers=consumers
        )
        return decide_stream_scale(reading, state, POLICY).consumers

    assume(min(read, lag) > 0)  # what is not read at all does not count, however large its lag
    assert decided(more) >= decided(0)


@settings(deadline=None, max_examples=50)
@given(share=st.floats(0.5, 0.94), consumers=st.sampled_from([1, 2, 4, 8]), looks=st.integers(1, 30))
def test_nothing_changes_while_the_load_is_inside_the_band(share: float, consumers: int, looks: int) -> None:
    # The band begins where one consumer fewer, each with whole partitions, would have its target share to do.
    fewer = 8 / most_partitions(consumers - 1, 8) if consumers > 1 else 0
    assume(share * consumers > POLICY.target_share * fewer + 0.05)
    drive = Drive(partitions=8, consumers=consumers).learned(1_000)
    for _ in range(looks):
        assert drive.obey(share * consumers * 1_000, 1_000).consumers == consumers


def test_a_surge_is_answered_at_the_next_look_and_in_one_step() -> None:
    drive = Drive(consumers=2).learned(100)
    assert drive.obey(150, 100, looks=4).consumers == 2
    decision = drive.obey(600, 100)
    assert decision.consumers == 8
    assert "400%" not in decision.reason
    assert "300% to do" in decision.reason


def test_without_a_known_capacity_consumers_are_doubled_while_the_group_is_behind() -> None:
    drive = Drive(partitions=8, consumers=1)
    drive.look()
    assert drive.step(90, 90).consumers == 1
    decision = drive.step(90, 90)
    assert decision.consumers == 1
    assert "not known" in decision.reason


def test_capacity_is_learned_only_from_consumers_that_had_more_to_read_than_they_could() -> None:
    drive = Drive(consumers=2)
    drive.look()
    for _ in range(5):
        drive.step(90, 90)
    assert drive.state.capacity == 0
    drive.step(900, 240)
    drive.step(900, 240)
    assert drive.state.capacity == pytest.approx(120, rel=0.02)


def test_an_interval_in_which_a_consumer_came_or_went_teaches_nothing() -> None:
    drive = Drive(consumers=2).learned(100)
    before = drive.state.capacity
    drive.consumers = 4
    drive.step(900, 20)
    assert drive.state.capacity == before


def test_the_busiest_consumer_tells_the_capacity_while_others_keep_up() -> None:
    # 3 consumers, 8 partitions: two of them have 3, and fall behind alone.
    drive = Drive(partitions=8, consumers=3)
    drive.look()
    for _ in range(8):
        for number in range(8):
            drive.ends[number] = drive.ends.get(number, 0) + 15 * 50
            read = 15 * (40 if number % 3 < 2 else 50)
            drive.positions[number] = drive.positions.get(number, 0) + read
        drive.now += POLICY.sample_every
        drive.look()
    assert drive.state.capacity == pytest.approx(120, rel=0.02)


def test_consumers_leave_only_when_fewer_have_been_enough_for_the_whole_of_shrink_after() -> None:
    drive = Drive(consumers=8).learned(100)
    drive.obey(700, 100, looks=8)
    looks = int(POLICY.shrink_after / POLICY.sample_every)
    smooth = 12  # looks until the average has forgotten the old rate
    counts = [drive.obey(150, 100).consumers for _ in range(looks + smooth)]
    assert counts[: looks - 1] == [8] * (looks - 1)
    assert counts[-1] < 8
    changed = [now for now, before in zip(counts[1:], counts, strict=False) if now != before]
    assert len(changed) <= 2


def test_a_reduction_goes_to_the_most_that_was_needed_while_it_was_waited_for() -> None:
    drive = Drive(consumers=8).learned(100)
    drive.obey(700, 100, looks=4)
    drive.obey(50, 100, looks=12)
    drive.obey(320, 100, looks=4)
    counts = [drive.obey(50, 100).consumers for _ in range(25)]
    assert min(count for count in counts if count) >= 1
    first_change = next(count for count in counts if count != 8)
    assert first_change == 4


def test_a_reduction_that_was_taken_back_doubles_the_wait_for_the_next() -> None:
    drive = Drive(consumers=8).learned(100)
    drive.obey(700, 100, looks=4)

    def looks_until_fewer() -> int:
        for look in range(1, 1_000):
            if drive.obey(50, 100).consumers < 8:
                return look
        raise AssertionError

    first = looks_until_fewer()
    drive.obey(750, 100, looks=6)
    assert drive.consumers == 8
    assert drive.state.regrets == 1
    second = looks_until_fewer()
    assert second >= first + POLICY.shrink_after / POLICY.sample_every - 2


def test_lowered_bounds_count_at_once_and_what_was_needed_before_them_does_not() -> None:
    drive = Drive(partitions=16, consumers=16).learned(100)
    drive.obey(1_400, 100, looks=4)
    drive.obey(700, 100, looks=3)
    drive.policy = replace(POLICY, scalability=replace(POLICY.scalability, max_consumers=4))
    assert drive.obey(100, 100).consumers == 4
    counts = [drive.obey(100, 100).consumers for _ in range(60)]
    assert max(counts) == 4
    assert counts[-1] == 2


def test_within_the_time_to_settle_nothing_is_added() -> None:
    policy = replace(POLICY, settle=minutes(5))
    drive = Drive(consumers=1, policy=policy).learned(100)
    assert drive.step(180, 100).consumers == 2
    decision = drive.step(2_000, 100)
    assert decision.consumers == 2
    assert "settling" in decision.reason
    assert "1 of them read so far" in decision.reason


def test_a_look_that_comes_too_early_changes_nothing_and_is_not_remembered() -> None:
    drive = Drive(consumers=2).learned(100)
    drive.obey(150, 100, looks=2)
    before = drive.state
    drive.now += timedelta(seconds=5)
    drive.ends[0] += 10**9
    decision = drive.look()
    assert decision.consumers == 2
    assert decision.state == before
    assert "5 s ago" in decision.reason


def test_a_poisoned_partition_never_adds_a_consumer_and_is_named() -> None:
    drive = Drive(partitions=8, consumers=2).learned(100)
    drive.obey(150, 100, looks=4)
    for look in range(200):
        decision = drive.step(150, 200, stuck=3)
        assert decision.consumers == 2, f"look {look}: {decision.reason}"
    assert decision.poisoned == (3,)
    assert "partition 3 is not read at all" in decision.reason


@settings(deadline=None)
@given(partition=st.integers(0, 7), lag=st.integers(1, 10**9), looks=st.integers(1, 20))
def test_however_large_the_lag_of_a_poisoned_partition_is_it_never_scales(partition: int, lag: int, looks: int) -> None:
    drive = Drive(partitions=8, consumers=2).learned(100)
    drive.ends[partition] += lag
    drive.look()
    drive.state = replace(drive.state, at=None)  # begin with that lag
    drive.look()
    for _ in range(looks):
        assert drive.step(150, 200, stuck=partition).consumers <= 2


def test_when_nothing_at_all_is_read_the_reason_says_so_and_nothing_is_added() -> None:
    drive = Drive(partitions=4, consumers=2).learned(100)
    for _ in range(10):
        decision = drive.step(500, 0)
    assert decision.consumers == 2
    assert "nothing is read" in decision.reason


def test_without_consumers_what_waits_is_not_poisoned() -> None:
    policy = replace(POLICY, min_consumers=0)
    drive = Drive(partitions=4, consumers=0, policy=policy)
    drive.look()
    decision = drive.step(100, 0)
    for _ in range(10):
        decision = drive.step(100, 0)
    assert decision.poisoned == ()
    assert decision.consumers >= 1


def test_while_none_of_the_wanted_consumers_reads_no_more_are_added() -> None:
    drive = Drive(partitions=8, consumers=2).learned(100)
    drive.obey(150, 100, looks=4)
    drive.consumers = 0
    for _ in range(20):
        decision = drive.step(150, 0)
        assert decision.consumers == 2
    assert "0 of them read so far" in decision.reason
    assert decision.poisoned == ()


def _with_hot_partition(drive: Drive, rest: float, hot: float, read: float) -> None:
    """Let the rest keep up while partition 0 gets `hot` more, and is read at `read` records a second."""
    before = drive.positions[0]
    drive.pass_time(rest, 10**9)
    drive.ends[0] += round(hot * 15)
    drive.positions[0] = min(before + round(read * 15), drive.ends[0])


def test_a_hot_partition_that_moves_at_one_consumers_pace_adds_nobody_and_is_named() -> None:
    # Its consumer has three others to read, 3 records/s each, and spends the rest of its 100 on it.
    drive = Drive(partitions=8, consumers=2).learned(100)
    for _ in range(200):
        _with_hot_partition(drive, rest=24, hot=300, read=91)
        decision = drive.look()
        assert decision.consumers == 2, decision.reason
    assert decision.hot == (0,)
    assert decision.poisoned == ()
    assert "spread its keys" in decision.reason


def test_a_hot_partition_gets_room_when_its_consumer_has_much_else_to_read_and_no_more_than_that() -> None:
    drive = Drive(partitions=8, consumers=2).learned(100)
    drive.obey(150, 100, looks=4)
    counts = set()
    for _ in range(50):
        _with_hot_partition(drive, rest=150, hot=300, read=40)
        counts.add(drive.look().consumers)
    assert max(counts) == 8
    none = Drive(partitions=8, consumers=2, policy=replace(POLICY, hot_room=0.0)).learned(100)
    none.obey(150, 100, looks=4)
    for _ in range(50):
        _with_hot_partition(none, rest=100, hot=300, read=40)
        decision = none.look()
        assert decision.consumers <= 4  # it counts as the load of one consumer, its lag not at all
    assert decision.hot == (0,)


def test_a_hot_partition_is_hot_until_its_lag_is_gone() -> None:
    drive = Drive(partitions=8, consumers=8).learned(100)
    for _ in range(20):
        _with_hot_partition(drive, rest=280, hot=300, read=100)
        drive.look()
    for _ in range(3):
        _with_hot_partition(drive, rest=280, hot=0, read=100)
        decision = drive.look()
    assert decision.hot == (0,)
    drive.positions[0] = drive.ends[0]
    drive.pass_time(280, 10**9)
    assert drive.look().hot == ()


def test_a_topic_that_was_made_anew_is_measured_anew() -> None:
    drive = Drive(partitions=4, consumers=2).learned(100)
    drive.obey(150, 100, looks=4)
    drive.positions, drive.ends = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 10)
    drive.now += POLICY.sample_every
    decision = drive.look()
    assert decision.consumers == 2
    assert decision.state.partitions[0].rate == 0


def test_a_state_that_missed_many_looks_keeps_the_capacity_and_measures_rates_anew() -> None:
    drive = Drive(consumers=4).learned(100)
    drive.obey(280, 100, looks=4)
    drive.now += timedelta(hours=3)
    drive.ends[0] += 10**7
    decision = drive.look()
    assert decision.consumers == 4
    assert "the first look" in decision.reason
    assert decision.state.capacity == drive.state.capacity > 0


def test_partitions_slots_and_batch_follow_from_the_same_look() -> None:
    policy = replace(POLICY, scalability=replace(POLICY.scalability, target_throughput_per_partition=100))
    drive = Drive(partitions=4, consumers=4, policy=policy).learned(100)
    decision = drive.obey(390, 100, looks=20)
    assert decision.partitions == 10  # twice of what carries 390 records/s at 80 % of 100
    assert decision.slots == 1
    assert decision.batch == 2_048  # the power of two nearest to 5 s of 4 consumers' reading
    assert {drive.obey(390, 100).batch for _ in range(20)} == {2_048}


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        "{}",
        '{"orders": 5}',
        '{"version": 0, "at": null}',
        '{"version": 1}',
        "[" * 100_000,
        StreamScaleState(at=START).encode().replace("+00:00", ""),
    ],
)
def test_a_cursor_of_another_version_or_of_something_else_is_a_new_start_with_a_reason(text: str) -> None:
    restored = restore_state(text)
    assert restored.state == StreamScaleState()
    assert restored.ignored is not None
    assert "start anew" in restored.ignored


@pytest.mark.parametrize("text", [None, ""])
def test_no_cursor_is_a_new_start_without_a_complaint(text: str | None) -> None:
    assert restore_state(text).ignored is None


def test_the_cursor_of_a_topic_with_many_partitions_stays_small() -> None:
    partitions = {n: PartitionState(position=10**12, end=10**12 + n, rate=12_345.678) for n in range(64)}
    text = StreamScaleState(at=START, partitions=partitions).encode()
    assert json.loads(text)["version"] == 1
    assert len(text) < 5_000


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"target_share": 0.95}, "target_share"),
        ({"grow_share": 1.1}, "grow_share"),
        ({"min_consumers": 17}, "min_consumers"),
        ({"shrink_after": timedelta(hours=2)}, "shrink_after"),
        ({"in_flight": timedelta(seconds=10)}, "in_flight"),
        ({"min_batch": 2**21}, "min_batch"),
        ({"sample_every": timedelta(0)}, "sample_every"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_built(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        StreamScalePolicy(scalability=ScalabilityConfig(), **wrong)  # type: ignore[arg-type]
    assert error.value.field == field


@settings(deadline=None)
@given(load=st.floats(0, 1e6), partitions=st.integers(1, 200), capacity=st.floats(0.01, 1e5))
def test_the_fewest_consumers_for_a_load_carry_it_and_one_fewer_would_not(
    load: float, partitions: int, capacity: float
) -> None:
    count = consumers_for(load, partitions, capacity)
    assert count <= partitions
    if 0 < count < partitions:
        assert share_of_busiest(load, count, partitions, capacity) <= 1 + 1e-9
    if count > 1:
        assert share_of_busiest(load, count - 1, partitions, capacity) > 1 - 1e-9


@settings(deadline=None)
@given(at_most=st.integers(1, 300), partitions=st.integers(1, 300))
def test_useful_consumers_are_as_fast_as_the_most_there_may_be(at_most: int, partitions: int) -> None:
    useful = useful_consumers(at_most, partitions)
    assert 1 <= useful <= min(at_most, partitions)
    assert most_partitions(useful, partitions) == most_partitions(min(at_most, partitions), partitions)
    assert useful_consumers(useful, partitions) == useful
