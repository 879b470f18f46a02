"""Policies refuse what would hurt, retention is a plan first, and offsets only rise."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.log import CorruptTopicError, FileDisk, FsyncPolicy, Log, LogPolicy, Retention, SubscriberOffsets
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.retention import SegmentAge, plan_retention
from dw_platform.log.segment import new_header
from dw_platform.store import MemoryStore, PersistentStore, internal_key

HOUR_MS = 3_600_000


def segments(count: int, size: int = 100) -> list[SegmentAge]:
    """Closed segments of ten records each; number n got its last record at hour n."""
    return [
        SegmentAge(
            SegmentInfo(new_header(10 * number, previous_end=10 * number, created_ms=0), size, 10 * number + 10),
            number * HOUR_MS,
        )
        for number in range(count)
    ]


def dropped(retention: Retention, *, hour: float = 5, read_up_to: int | None = None) -> int:
    plan = plan_retention(segments(5), retention, now_ms=int(hour * HOUR_MS), active_bytes=50, read_up_to=read_up_to)
    assert len(plan.drop) + len(plan.keep) == 5
    assert len(plan.reasons) == len(plan.drop)
    return len(plan.drop)


def test_age_is_that_of_the_newest_record() -> None:
    three_hours = Retention(max_age=timedelta(hours=3), max_bytes=None)
    assert dropped(three_hours, hour=3) == 0
    assert dropped(three_hours, hour=3.1) == 1
    assert dropped(three_hours, hour=100) == 5


def test_size_counts_the_active_segment_but_never_drops_it() -> None:
    assert dropped(Retention(max_age=None, max_bytes=550)) == 0
    assert dropped(Retention(max_age=None, max_bytes=549)) == 1
    assert dropped(Retention(max_age=None, max_bytes=1)) == 5


def test_what_every_subscriber_has_read_goes_and_the_rest_stays() -> None:
    assert dropped(Retention.until_read()) == 0
    assert dropped(Retention.until_read(), read_up_to=19) == 1
    assert dropped(Retention.until_read(), read_up_to=20) == 2


def test_what_is_unread_stays_however_old_where_the_topic_asks_for_it() -> None:
    day = timedelta(days=1)
    assert dropped(Retention(max_age=day, max_bytes=1, keep_unread=True), hour=1000, read_up_to=20) == 2
    assert dropped(Retention(max_age=day, max_bytes=1), hour=1000, read_up_to=20) == 5
    assert dropped(Retention.forever(), hour=10**6, read_up_to=50) == 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: FsyncPolicy.every_messages(0),
        lambda: FsyncPolicy.every_interval(timedelta(0)),
        lambda: FsyncPolicy.every_interval(timedelta(hours=1)),
        lambda: Retention(max_age=timedelta(0)),
        lambda: Retention(max_bytes=0),
        lambda: LogPolicy(segment_bytes=10),
        lambda: LogPolicy(segment_age=timedelta(0)),
        lambda: LogPolicy(max_record_bytes=0),
        lambda: LogPolicy(max_record_bytes=1 << 31),
    ],
)
def test_a_dangerous_policy_cannot_be_built(build: Callable[[], Any]) -> None:
    with pytest.raises(InvalidValueError):
        build()


@pytest.fixture
def store() -> PersistentStore:
    return MemoryStore()


def test_a_committed_offset_only_rises(store: PersistentStore) -> None:
    offsets = SubscriberOffsets(store)
    assert offsets.committed("orders", "billing") == {}
    assert offsets.commit("orders", "billing", {0: 10, 3: 5}) == {0: 10, 3: 5}
    assert offsets.commit("orders", "billing", {0: 7, 3: 6, 1: 0}) == {0: 10, 1: 0, 3: 6}
    assert SubscriberOffsets(store).committed("orders", "billing") == {0: 10, 1: 0, 3: 6}
    with pytest.raises(InvalidValueError):
        offsets.commit("orders", "billing", {0: -1})


def test_the_slowest_subscriber_counts_and_one_that_has_read_nothing_counts_too(store: PersistentStore) -> None:
    offsets = SubscriberOffsets(store)
    assert offsets.lowest("orders", 0) is None
    offsets.commit("orders", "billing", {0: 10})
    offsets.commit("orders", "audit", {0: 4})
    offsets.commit("orders-archive", "other", {0: 1})
    assert offsets.lowest("orders", 0) == 4
    offsets.register("orders", "new", {0: 8})
    assert offsets.lowest("orders", 0) == 4
    assert offsets.lowest("orders", 1) == 0
    assert offsets.groups("orders") == {"audit": {0: 4}, "billing": {0: 10}, "new": {0: 8}}
    offsets.register("orders", "audit", {0: 0})
    assert offsets.forget("orders", "audit")
    assert not offsets.forget("orders", "audit")
    assert offsets.lowest("orders", 0) == 8


def test_offsets_that_are_no_offsets_are_reported(store: PersistentStore) -> None:
    store.put(internal_key("log", "offsets", "orders", "billing"), b"[1]")
    with pytest.raises(CorruptTopicError, match="holds no offsets"):
        SubscriberOffsets(store).lowest("orders", 0)


def test_a_damaged_description_is_reported_with_its_file(tmp_path: Any) -> None:
    log = Log(tmp_path, disk=FileDisk())
    log.create_topic("orders")
    (tmp_path / "orders" / "topic.json").write_text('{"format": 9}')
    with pytest.raises(CorruptTopicError) as caught:
        log.describe("orders")
    assert caught.value.file.endswith("orders/topic.json")
