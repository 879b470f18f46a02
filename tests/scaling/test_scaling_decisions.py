import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.scaling import LimitCatalogue, LimitControl, UndecodableRecordError
from dw_platform.scaling.applier import DecisionApplier, Proposal
from dw_platform.scaling.decisions import DECISIONS, DecisionLog, ScalingDecision, decision_id, decision_key
from dw_platform.scaling.hold import Hold, Holds, ScalingMode, effective_mode, hold_key
from dw_platform.store import Entry, MemoryStore, PersistentStore, StoreUnavailableError
from tests.scaling.sample_queue import QueueLimits

CATALOGUE = LimitCatalogue({"queue": QueueLimits(partitions=4), "other": QueueLimits()})
PROPOSAL = Proposal(
    sensor="lag",
    tick="tick-1",
    subsystem="queue",
    limit="partitions",
    value=8,
    reason="lag 12,000 > 10,000",
    inputs={"lag": 12_000},
)


class CrashingStore:
    """A store whose process dies at its n-th write: before it, or after it is durable and before anybody knows."""

    def __init__(self, inner: MemoryStore, *, at_write: int, after: bool) -> None:
        self._inner, self._left, self._after = inner, at_write, after
        self.crashed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put(self, key: str, value: bytes) -> Entry:
        return self._write(lambda: self._inner.put(key, value), key)

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        return self._write(lambda: self._inner.compare_and_set(key, value, expected=expected), key)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        return self._inner.delete(key, expected=expected)

    def _write(self, write: Callable[[], Entry], key: str) -> Entry:
        self._left -= 1
        if self.crashed or (self._left == 0 and not self._after):
            self.crashed = True
            raise StoreUnavailableError(key, "the process died before its write")
        entry = write()
        if self._left == 0:
            self.crashed = True
            raise StoreUnavailableError(key, "the process died after its write")
        return entry


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def applier(store: PersistentStore, clock: FakeClock) -> DecisionApplier:
    return DecisionApplier(store, LimitControl(store, CATALOGUE, clock=clock), clock)


def partitions(store: PersistentStore, clock: FakeClock) -> int:
    limits = LimitControl(store, CATALOGUE, clock=clock).effective("queue")
    assert isinstance(limits, QueueLimits)
    return limits.partitions


def test_a_proposal_is_put_in_force_and_recorded_with_what_it_was_decided_from(
    store: MemoryStore, clock: FakeClock
) -> None:
    decision = applier(store, clock).apply(PROPOSAL)
    assert decision is not None
    assert (decision.before, decision.after, decision.applied, decision.mode) == (4, 8, True, ScalingMode.ACT)
    assert partitions(store, clock) == 8
    assert DecisionLog(store).newest() == (decision,)
    record = LimitControl(store, CATALOGUE, clock=clock).current("queue")
    assert record is not None
    assert record.changed_by == "sensor:lag"
    assert "lag 12,000 > 10,000" in record.reason
    assert decision.id in record.reason


def test_what_is_recorded_is_the_value_as_it_is_in_force_not_as_it_was_written(
    store: MemoryStore, clock: FakeClock
) -> None:
    decision = applier(store, clock).apply(replace(PROPOSAL, limit="max_bytes", value="1MiB"))
    assert decision is not None
    assert (decision.before, decision.after) == (65_536, 2**20)


def test_a_tick_that_runs_again_changes_and_records_nothing(store: MemoryStore, clock: FakeClock) -> None:
    first = applier(store, clock).apply(PROPOSAL)
    clock.advance(60)
    control = LimitControl(store, CATALOGUE, clock=clock)
    control.set("queue", {"partitions": 5}, changed_by="operator", reason="too many")
    again = applier(store, clock).apply(replace(PROPOSAL, value=16))
    assert again == first
    assert partitions(store, clock) == 5
    assert len(DecisionLog(store).newest()) == 1


def test_a_proposal_that_changes_nothing_is_not_recorded(store: MemoryStore, clock: FakeClock) -> None:
    assert applier(store, clock).apply(replace(PROPOSAL, value=4)) is None
    assert DecisionLog(store).newest() == ()


CRASHES = [(write, after) for write in range(1, 5) for after in (False, True)]


@pytest.mark.parametrize(("write", "after"), CRASHES)
def test_after_a_crash_at_any_write_the_repeated_tick_ends_with_one_true_record(
    store: MemoryStore, clock: FakeClock, write: int, *, after: bool
) -> None:
    LimitControl(store, CATALOGUE, clock=clock).set("queue", {"sample_rate": 0.1}, changed_by="me", reason="less")
    crashing = CrashingStore(store, at_write=write, after=after)
    with pytest.raises(StoreUnavailableError):
        applier(crashing, clock).apply(PROPOSAL)  # type: ignore[arg-type]
    assert crashing.crashed
    clock.advance(30)
    # The repeated tick would propose another value by now; what was begun is finished.
    decision = applier(store, clock).apply(replace(PROPOSAL, value=16 if write > 1 or after else 8))
    assert decision is not None
    assert (decision.before, decision.after, decision.applied) == (4, 8, True)
    assert partitions(store, clock) == 8
    assert DecisionLog(store).newest() == (decision,)
    history = LimitControl(store, CATALOGUE, clock=clock).history("queue")
    assert [decision.id in record.reason for record in history] == [True, False]


@pytest.mark.parametrize(("write", "after"), CRASHES)
def test_after_a_crash_whose_tick_never_runs_again_the_record_says_what_is_in_force(
    store: MemoryStore, clock: FakeClock, write: int, *, after: bool
) -> None:
    LimitControl(store, CATALOGUE, clock=clock).set("queue", {"sample_rate": 0.1}, changed_by="me", reason="less")
    with pytest.raises(StoreUnavailableError):
        applier(CrashingStore(store, at_write=write, after=after), clock).apply(PROPOSAL)  # type: ignore[arg-type]
    applier(store, clock).settle("queue")
    recorded = {decision.id: decision.applied for decision in DecisionLog(store).newest()}
    in_force = partitions(store, clock) == 8
    assert recorded.get(PROPOSAL.id, False) is in_force


def test_an_operators_change_after_the_crash_is_not_overwritten(store: MemoryStore, clock: FakeClock) -> None:
    with pytest.raises(StoreUnavailableError):
        applier(CrashingStore(store, at_write=2, after=True), clock).apply(PROPOSAL)  # type: ignore[arg-type]
    assert partitions(store, clock) == 8
    control = LimitControl(store, CATALOGUE, clock=clock)
    control.set("queue", {"partitions": 6}, changed_by="operator", reason="enough")
    decision = applier(store, clock).apply(PROPOSAL)
    assert decision is not None
    assert (decision.after, decision.applied) == (8, True)
    assert partitions(store, clock) == 6


def test_a_change_between_deciding_and_setting_is_what_the_record_calls_before(
    store: MemoryStore, clock: FakeClock
) -> None:
    with pytest.raises(StoreUnavailableError):
        applier(CrashingStore(store, at_write=1, after=True), clock).apply(PROPOSAL)  # type: ignore[arg-type]
    LimitControl(store, CATALOGUE, clock=clock).set("queue", {"partitions": 6}, changed_by="operator", reason="enough")
    decision = applier(store, clock).apply(PROPOSAL)
    assert decision is not None
    assert (decision.before, decision.after, decision.applied) == (6, 8, True)


def test_a_value_that_somebody_else_has_set_meanwhile_is_in_force_and_no_change_of_this_decision(
    store: MemoryStore, clock: FakeClock
) -> None:
    with pytest.raises(StoreUnavailableError):
        applier(CrashingStore(store, at_write=1, after=True), clock).apply(PROPOSAL)  # type: ignore[arg-type]
    control = LimitControl(store, CATALOGUE, clock=clock)
    control.set("queue", {"partitions": 8}, changed_by="operator", reason="me too")
    decision = applier(store, clock).apply(PROPOSAL)
    assert decision is not None
    assert (decision.before, decision.after, decision.applied) == (8, 8, True)
    (record,) = control.history("queue")
    assert record.changed_by == "operator"


def test_a_hold_keeps_the_limit_and_records_once_what_would_have_been(store: MemoryStore, clock: FakeClock) -> None:
    Holds(store, clock=clock).set("queue", by="ada", reason="migration", duration=timedelta(hours=1))
    first = applier(store, clock).apply(PROPOSAL)
    assert first is not None
    assert (first.mode, first.applied, first.after) == (ScalingMode.HELD, False, 8)
    clock.advance(30)
    assert applier(store, clock).apply(replace(PROPOSAL, tick="tick-2")) == first
    other = applier(store, clock).apply(replace(PROPOSAL, tick="tick-3", value=9))
    assert other is not None
    assert other.after == 9
    assert partitions(store, clock) == 4
    clock.advance(3_600)
    assert applier(store, clock).apply(replace(PROPOSAL, tick="tick-4")) is not None
    assert partitions(store, clock) == 8


def test_a_hold_that_came_after_the_crash_stops_the_second_try(store: MemoryStore, clock: FakeClock) -> None:
    with pytest.raises(StoreUnavailableError):
        applier(CrashingStore(store, at_write=1, after=True), clock).apply(PROPOSAL)  # type: ignore[arg-type]
    Holds(store, clock=clock).set("queue", by="ada", reason="migration")
    decision = applier(store, clock).apply(PROPOSAL)
    assert decision is not None
    assert not decision.applied
    assert partitions(store, clock) == 4


def test_a_recommendation_is_recorded_and_not_applied(store: MemoryStore, clock: FakeClock) -> None:
    decision = applier(store, clock).apply(PROPOSAL, ScalingMode.RECOMMEND)
    assert decision is not None
    assert (decision.mode, decision.applied) == (ScalingMode.RECOMMEND, False)
    assert partitions(store, clock) == 4


def test_a_value_that_the_limit_does_not_allow_is_recorded_once_as_refused(
    store: MemoryStore, clock: FakeClock
) -> None:
    first = applier(store, clock).apply(replace(PROPOSAL, value=0))
    assert first is not None
    assert not first.applied
    assert "refused: partitions cannot be 0: at least 1" in first.reason
    assert applier(store, clock).apply(replace(PROPOSAL, value=0, tick="tick-2")) == first
    assert applier(store, clock).apply(replace(PROPOSAL, value=0)) == first
    assert partitions(store, clock) == 4


def test_two_sensors_that_run_the_same_tick_make_one_change(store: MemoryStore, clock: FakeClock) -> None:
    one, other = applier(store, clock), applier(store, clock)
    one.settle("queue")
    other.settle("queue")
    assert one.apply(PROPOSAL) == other.apply(PROPOSAL)
    assert len(LimitControl(store, CATALOGUE, clock=clock).history("queue")) == 1


def test_a_store_that_does_not_answer_is_no_decision(store: MemoryStore, clock: FakeClock) -> None:
    down = CrashingStore(store, at_write=1, after=False)
    with pytest.raises(StoreUnavailableError):
        applier(down, clock).apply(PROPOSAL)  # type: ignore[arg-type]
    assert DecisionLog(store).newest() == ()
    assert partitions(store, clock) == 4


def decision(number: int, clock: FakeClock) -> ScalingDecision:
    clock.advance(1)
    return ScalingDecision(
        id=decision_id("lag", str(number), "queue.partitions"),
        at=clock.now(),
        subsystem="queue" if number % 2 else "other",
        limit="partitions",
        before=number,
        after=number + 1,
        reason="lag",
        decided_by="sensor:lag",
        mode=ScalingMode.ACT,
        applied=True,
    )


def test_the_newest_decisions_come_first_and_the_oldest_go_when_there_are_too_many(
    store: MemoryStore, clock: FakeClock
) -> None:
    log = DecisionLog(store, kept=10)
    for number in range(25):
        log.add(decision(number, clock))
    found = [each.before for each in log.newest()]
    assert found[:10] == list(range(24, 14, -1))
    assert len(found) <= 11
    assert [each.before for each in log.newest("queue", limit=2)] == [23, 21]


def test_one_record_that_cannot_be_read_hides_no_other(store: MemoryStore, clock: FakeClock) -> None:
    log = DecisionLog(store)
    kept = log.add(decision(1, clock))
    store.put(decision_key("broken"), b"{}")
    assert log.newest() == (kept,)
    with pytest.raises(UndecodableRecordError):
        log.find("broken")


JSON = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(before=JSON, after=JSON, inputs=st.dictionaries(st.text(), JSON, max_size=3), mode=st.sampled_from(ScalingMode))
def test_a_decision_comes_back_from_the_store_and_makes_a_plain_row(
    before: object, after: object, inputs: dict[str, object], mode: ScalingMode
) -> None:
    written = ScalingDecision(
        id="a/b%c",
        at=FakeClock().now(),
        subsystem="queue",
        limit="partitions",
        before=before,
        after=after,
        reason="lag",
        decided_by="sensor:lag",
        inputs=inputs,
        mode=mode,
        applied=mode is ScalingMode.ACT,
    )
    assert ScalingDecision.decode(Entry(decision_key(written.id), written.encode(), 1)) == written
    row = written.as_row()
    assert json.loads(row["before"]) == before
    assert all(isinstance(row[name], str) for name in ("before", "after", "inputs", "mode"))


def test_ids_differ_by_sensor_tick_and_limit_and_by_nothing_else() -> None:
    ids = {decision_id(*parts) for parts in [("a", "bc", "x"), ("ab", "c", "x"), ("a", "bc", "y"), ("a", "b", "cx")]}
    assert len(ids) == 4
    assert decision_id("a", "bc", "x") in ids


@pytest.mark.parametrize("wrong", [{"reason": " "}, {"id": ""}, {"applied": True, "mode": ScalingMode.HELD}])
def test_a_record_that_explains_nothing_or_contradicts_itself_is_refused(
    clock: FakeClock, wrong: dict[str, object]
) -> None:
    with pytest.raises(InvalidValueError):
        replace(decision(1, clock), **wrong)  # type: ignore[arg-type]


def test_a_hold_ends_by_itself_or_when_it_is_lifted(store: MemoryStore, clock: FakeClock) -> None:
    holds = Holds(store, clock=clock)
    timed = holds.set("queue", by="ada", reason="migration", duration=timedelta(hours=1))
    forever = holds.set("other", by="ada", reason="broken sensor")
    assert set(holds.all()) == {timed, forever}
    assert effective_mode(ScalingMode.ACT, holds.current("queue"), clock.now()) is ScalingMode.HELD
    clock.advance(3_600)
    assert holds.current("queue") is None
    assert holds.all() == (forever,)
    assert effective_mode(ScalingMode.RECOMMEND, timed, clock.now()) is ScalingMode.RECOMMEND
    assert holds.lift("other")
    assert not holds.lift("other")


def test_a_hold_that_ends_before_it_begins_is_refused(store: MemoryStore, clock: FakeClock) -> None:
    with pytest.raises(InvalidValueError):
        Holds(store, clock=clock).set("queue", by="ada", reason="x", duration=timedelta(0))


def test_a_hold_that_cannot_be_read_is_an_error_and_never_no_hold(store: MemoryStore, clock: FakeClock) -> None:
    store.put(hold_key("queue"), b"?")
    with pytest.raises(UndecodableRecordError):
        applier(store, clock).apply(PROPOSAL)
    assert partitions(store, clock) == 4
    assert not list(store.list(DECISIONS))


def test_a_hold_comes_back_from_the_store(clock: FakeClock) -> None:
    for until in (None, clock.now() + timedelta(minutes=1)):
        hold = Hold(subsystem="a/b", at=clock.now(), until=until, by="ada", reason="x")
        assert Hold.decode(Entry(hold_key("a/b"), hold.encode(), 1)) == hold
