"""When a failing database is left alone and tried again, and that no failure is lost between processes."""

from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.extract.health_policy import (
    HealthPolicy,
    HealthRecord,
    decide_skip,
    failed,
    is_due_to_tell,
    succeeded,
)
from dw_platform.extract.health_record import change_record, health_key, read_record
from dw_platform.foundation import InvalidValueError
from dw_platform.store import FileStore, MemoryStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = HealthPolicy()


def failing(times: int, *, start: datetime = NOON, every: timedelta = timedelta(0)) -> HealthRecord:
    record = None
    for number in range(times):
        record = failed(record, "shop", error="refused", now=start + number * every, policy=POLICY)
    assert record is not None
    return record


def test_two_failures_are_tried_again_at_once_and_three_are_not() -> None:
    assert not decide_skip(None, NOON, POLICY).skip
    assert not decide_skip(failing(2), NOON, POLICY).skip
    decision = decide_skip(failing(3), NOON, POLICY)
    assert (decision.skip, decision.try_again_at) == (True, NOON + MINUTE)
    assert decision.reason == "it failed 3 times in a row (refused); it is tried again in 1m"


def test_pauses_double_with_each_failure_after_the_last_one_up_to_an_hour() -> None:
    record, now, pauses = failing(3), NOON, []
    for _ in range(9):
        assert record.retry_at is not None
        pauses.append((record.retry_at - now) // MINUTE)
        now = record.retry_at
        assert not decide_skip(record, now, POLICY).skip
        record = failed(record, "shop", error="refused", now=now, policy=POLICY)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_checks_that_fail_during_a_pause_count_on_and_do_not_move_its_end() -> None:
    before = failing(3)
    after = failed(before, "shop", error="refused", now=NOON + timedelta(seconds=30), policy=POLICY)
    assert (after.failures, after.retry_at) == (4, before.retry_at)


@given(gaps=st.lists(st.integers(1, 7200), min_size=3, max_size=60))
def test_however_often_it_is_checked_a_schedule_never_waits_longer_than_the_longest_pause(gaps: list[int]) -> None:
    record, now = None, NOON
    for gap in gaps:
        now += timedelta(seconds=gap)
        record = failed(record, "shop", error="refused", now=now, policy=POLICY)
        decision = decide_skip(record, now, POLICY)
        assert decision.try_again_at is None or decision.try_again_at - now <= POLICY.longest_pause
        assert decision.skip == (record.failures >= POLICY.skip_after)


def test_a_success_forgets_failures_and_pauses() -> None:
    record = succeeded(failing(7, every=MINUTE), "shop", latency_s=0.01, now=NOON + timedelta(hours=1))
    assert record == HealthRecord(database="shop", checked_at=NOON + timedelta(hours=1), latency_s=0.01)
    assert failed(record, "shop", error="x", now=NOON, policy=POLICY).failures == 1


def test_it_is_known_since_when_a_database_fails() -> None:
    record = failing(4, every=MINUTE)
    assert (record.failing_since, record.checked_at) == (NOON, NOON + 3 * MINUTE)


def test_a_state_is_told_when_it_changes_and_every_ten_minutes() -> None:
    record = succeeded(None, "shop", latency_s=0.01, now=NOON)
    assert is_due_to_tell(record, NOON, POLICY)
    told = HealthRecord(database="shop", checked_at=NOON, told_at=NOON)
    again = succeeded(told, "shop", latency_s=0.01, now=NOON + MINUTE)
    assert not is_due_to_tell(again, NOON + MINUTE, POLICY)
    assert is_due_to_tell(again, NOON + 10 * MINUTE, POLICY)
    assert is_due_to_tell(failed(again, "shop", error="x", now=NOON + MINUTE, policy=POLICY), NOON + MINUTE, POLICY)


@pytest.mark.parametrize(
    ("field", "value"),
    [("skip_after", 0), ("first_pause", timedelta(0)), ("first_pause", timedelta(hours=2))],
)
def test_a_policy_that_cannot_work_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidValueError) as refused:
        HealthPolicy(**{field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_record_is_kept_exactly_and_a_damaged_one_is_written_anew() -> None:
    store, record = MemoryStore(), failing(4, every=MINUTE)
    assert read_record(store, "a/b") is None
    assert change_record(store, "a/b", lambda _: record) == record
    assert read_record(store, "a/b") == record
    store.put(health_key("a/b"), b'{"failures": "many"}')
    assert read_record(store, "a/b") is None
    assert change_record(store, "a/b", lambda before: before or record) == record


def _fail_ten_times(folder: str) -> None:
    store = FileStore(Path(folder))
    for _ in range(10):
        change_record(
            store, "shop", lambda before: failed(before, "shop", error="refused", now=NOON, policy=HealthPolicy())
        )


def test_failures_that_processes_see_at_the_same_time_are_all_counted(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(_fail_ten_times, [str(tmp_path)] * 4))
    record = read_record(FileStore(tmp_path), "shop")
    assert record is not None
    assert record.failures == 40
