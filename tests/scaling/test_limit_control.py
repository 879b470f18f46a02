from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.scaling import (
    LimitCatalogue,
    LimitControl,
    LimitRecord,
    ScalingRegistry,
    UndecodableRecordError,
    UnknownSubsystemError,
)
from dw_platform.store.memory import MemoryStore
from tests.scaling.sample_queue import QueueLimits, SampleQueue

CONFIGURED = QueueLimits(partitions=4)
KEY = "dw://internal/limits/queue"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def control(store: MemoryStore, clock: FakeClock) -> LimitControl:
    return LimitControl(store, LimitCatalogue({"queue": CONFIGURED, "other": QueueLimits()}), clock=clock)


def set_partitions(control: LimitControl, count: object) -> LimitRecord:
    return control.set("queue", {"partitions": count}, changed_by="operator", reason="more load")


def test_until_something_is_changed_the_configured_limits_are_in_force(control: LimitControl) -> None:
    assert control.current("queue") is None
    assert control.effective("queue") == CONFIGURED
    assert control.history("queue") == ()


def test_a_change_records_who_changed_what_from_which_value_and_why(control: LimitControl, clock: FakeClock) -> None:
    record = control.set(
        "queue", {"max_bytes": "1MiB", "linger": "20ms"}, changed_by="lag sensor", reason="lag 12,000 > 10,000"
    )
    assert record == control.current("queue")
    assert record.values == {"max_bytes": 2**20, "linger": "20ms"}
    assert record.changes == {"max_bytes": (65_536, 2**20), "linger": ("5ms", "20ms")}
    assert (record.changed_by, record.reason, record.at) == ("lag sensor", "lag 12,000 > 10,000", clock.now())


def test_later_changes_add_to_earlier_ones_and_keep_what_was_configured(control: LimitControl) -> None:
    set_partitions(control, 16)
    control.set("queue", {"thresholds": {"warning": 0.65}}, changed_by="operator", reason="warn earlier")
    effective = control.effective("queue")
    assert isinstance(effective, QueueLimits)
    assert (effective.partitions, effective.thresholds.warning, effective.max_bytes) == (16, 0.65, 65_536)


@pytest.mark.parametrize(
    "changes",
    [{"partitions": 0}, {"thresholds.warning": 0.9}, {"sample_rate": "nan"}, {"partitions": 16, "nope": 1}, {}],
)
def test_a_bad_change_is_refused_and_the_limits_in_force_stay(
    control: LimitControl, changes: dict[str, object]
) -> None:
    before = set_partitions(control, 8)
    with pytest.raises(InvalidValueError):
        control.set("queue", changes, changed_by="operator", reason="a try")
    assert control.current("queue") == before
    assert control.history("queue") == (before,)


def test_setting_what_is_already_so_writes_nothing(control: LimitControl) -> None:
    first = set_partitions(control, 16)
    assert set_partitions(control, "16") == first
    assert len(control.history("queue")) == 1


@pytest.mark.parametrize("blank", [{"changed_by": " "}, {"reason": ""}])
def test_a_change_that_nobody_explains_is_refused(control: LimitControl, blank: dict[str, str]) -> None:
    explained = {"changed_by": "operator", "reason": "more load", **blank}
    with pytest.raises(InvalidValueError) as caught:
        control.set("queue", {"partitions": 2}, **explained)
    assert [caught.value.field] == list(blank)


@pytest.mark.parametrize(
    "ask",
    [
        lambda control: control.current("bus"),
        lambda control: control.history("bus"),
        lambda control: control.reset("bus", changed_by="operator", reason="a try"),
        lambda control: control.set("bus", {"partitions": 1}, changed_by="operator", reason="a try"),
    ],
)
def test_an_unknown_subsystem_is_named_with_the_known_ones(
    control: LimitControl, ask: Callable[[LimitControl], object]
) -> None:
    with pytest.raises(UnknownSubsystemError) as caught:
        ask(control)
    assert (caught.value.subsystem, caught.value.known) == ("bus", ("other", "queue"))


def test_a_reset_key_goes_back_to_its_configured_value_and_the_rest_stays(control: LimitControl) -> None:
    control.set("queue", {"partitions": 16, "paused": True}, changed_by="operator", reason="incident")
    record = control.reset("queue", ["partitions", "owner"], changed_by="operator", reason="incident is over")
    assert record is not None
    assert record.values == {"paused": True}
    assert record.changes == {"partitions": (16, 4)}
    assert control.effective("queue") == QueueLimits(partitions=4, paused=True)


def test_a_full_reset_goes_back_to_the_configuration(control: LimitControl) -> None:
    assert control.reset("queue", changed_by="operator", reason="tidy up") is None
    set_partitions(control, 16)
    control.reset("queue", changed_by="operator", reason="incident is over")
    assert control.effective("queue") == CONFIGURED
    assert [record.changes for record in control.history("queue")] == [{"partitions": (16, 4)}, {"partitions": (4, 16)}]


def test_resetting_a_key_that_never_existed_is_refused(control: LimitControl) -> None:
    with pytest.raises(InvalidValueError) as caught:
        control.reset("queue", ["partitons"], changed_by="operator", reason="typo")
    assert caught.value.field == "partitons"


def test_a_limit_that_a_new_version_no_longer_has_can_be_reset(store: MemoryStore, clock: FakeClock) -> None:
    @dataclass(frozen=True)
    class OldLimits:
        partitions: int = 4
        spin: int = 1

    old = LimitControl(store, LimitCatalogue({"queue": OldLimits()}), clock=clock)
    old.set("queue", {"spin": 2, "partitions": 5}, changed_by="operator", reason="tuning")
    new = LimitControl(store, LimitCatalogue({"queue": CONFIGURED}), clock=clock)
    with pytest.raises(InvalidValueError) as caught:
        new.effective("queue")
    assert caught.value.field == "spin"
    new.reset("queue", ["spin"], changed_by="operator", reason="gone since the upgrade")
    assert new.effective("queue") == QueueLimits(partitions=5)


def test_a_record_that_cannot_be_read_is_an_error_until_it_is_reset(control: LimitControl, store: MemoryStore) -> None:
    store.put(KEY, b"{half a rec")
    with pytest.raises(UndecodableRecordError) as caught:
        set_partitions(control, 2)
    assert caught.value.key == KEY
    control.reset("queue", changed_by="operator", reason="damaged")
    assert control.effective("queue") == CONFIGURED
    assert set_partitions(control, 2).values == {"partitions": 2}


def test_history_is_newest_first_over_all_subsystems_and_bounded(store: MemoryStore, clock: FakeClock) -> None:
    catalogue = LimitCatalogue({"queue": CONFIGURED, "other": QueueLimits()})
    control = LimitControl(store, catalogue, clock=clock, history_kept=3)
    for count in range(10, 20):
        clock.advance(1)
        set_partitions(control, count)
    clock.advance(1)
    control.set("other", {"paused": True}, changed_by="operator", reason="maintenance")
    everything = [(record.subsystem, dict(record.values)) for record in control.history()]
    assert everything == [
        ("other", {"paused": True}),
        *(("queue", {"partitions": count}) for count in (19, 18, 17, 16)),
    ]
    assert [record.values["partitions"] for record in control.history("queue", limit=2)] == [19, 18]


def test_history_has_no_gap_when_a_writer_dies_between_archive_and_write(
    control: LimitControl, store: MemoryStore
) -> None:
    record = set_partitions(control, 16)
    entry = store.get(KEY)
    assert entry is not None
    store.put(f"dw://internal/limits-history/queue/{entry.version:020d}", entry.value)
    assert control.history("queue") == (record,)


def test_changes_of_different_limits_at_the_same_time_all_arrive(store: MemoryStore) -> None:
    catalogue = LimitCatalogue({"queue": CONFIGURED})
    changes = [{"partitions": 9}, {"paused": True}, {"owner": "me"}, {"max_items": 3}]

    def change(wanted: dict[str, object]) -> None:
        LimitControl(store, catalogue, clock=FakeClock()).set("queue", wanted, changed_by="operator", reason="race")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(change, changes))
    control = LimitControl(store, catalogue, clock=FakeClock())
    assert control.effective("queue") == QueueLimits(partitions=9, paused=True, owner="me", max_items=3)
    assert len(control.history("queue")) == 4


def test_metrics_of_all_processes_are_listed_with_their_age(
    control: LimitControl, store: MemoryStore, clock: FakeClock
) -> None:
    for node in ("gateway@a", "ingest@b"):
        registry = ScalingRegistry(store, node=node, clock=clock)
        registry.register(SampleQueue(clock=clock))
        registry.publish()
        clock.advance(10)
    store.put("dw://internal/metrics/broken/queue", b"[]")
    found = [(snapshot.node, snapshot.age(clock.now())) for snapshot in control.metrics()]
    assert found == [("gateway@a", timedelta(seconds=20)), ("ingest@b", timedelta(seconds=10))]


def test_what_dead_processes_left_is_forgotten_and_living_ones_stay(
    control: LimitControl, store: MemoryStore, clock: FakeClock
) -> None:
    registries = [ScalingRegistry(store, node=node, clock=clock) for node in ("dead", "living")]
    for registry in registries:
        registry.register(SampleQueue(clock=clock))
        registry.publish()
    clock.advance(3600)
    registries[1].publish()
    assert control.forget_stale(timedelta(minutes=5)) == 2
    assert [snapshot.node for snapshot in control.metrics()] == ["living"]
    assert [status.node for status in control.statuses("queue")] == ["living"]


def test_a_catalogue_refuses_limits_that_could_not_be_stored() -> None:
    @dataclass(frozen=True)
    class Unstorable:
        table: complex = 1j

    with pytest.raises(TypeError, match="table"):
        LimitCatalogue({"queue": Unstorable()})
