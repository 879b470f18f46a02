import logging
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.store import (
    Change,
    ChangeKind,
    Entry,
    FileStore,
    InvalidKeyError,
    MemoryStore,
    StoreUnavailableError,
    Watcher,
)


class ShakyStore(MemoryStore):
    """A store that goes away when told to, for listings, for reading, or for both."""

    def __init__(self) -> None:
        super().__init__()
        self.lists_away = self.gets_away = False
        self.reads: list[str] = []

    def list_versions(self, prefix: str) -> dict[str, int]:
        self._answer(away=self.lists_away)
        return super().list_versions(prefix)

    def versions_of(self, keys: Collection[str]) -> dict[str, int]:
        self._answer(away=self.lists_away)
        return super().versions_of(keys)

    def get(self, key: str) -> Entry | None:
        self._answer(away=self.gets_away)
        self.reads.append(key)
        return super().get(key)

    def _answer(self, *, away: bool) -> None:
        if away:
            raise StoreUnavailableError("test://", "switched off")


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.kind, change.key) for change in changes]


def test_the_first_poll_reports_what_exists_and_later_ones_what_changed() -> None:
    store = MemoryStore()
    seen: list[Change] = []
    store.put("limits/a", b"1")
    watcher = Watcher(store, "limits/", seen.append)
    assert kinds(watcher.poll()) == [("created", "limits/a")]
    assert watcher.poll() == []
    changed = store.put("limits/a", b"2")
    created = store.put("limits/b", b"3")
    store.put("other", b"x")
    assert watcher.poll() == [
        Change(ChangeKind.CHANGED, "limits/a", changed),
        Change(ChangeKind.CREATED, "limits/b", created),
    ]
    store.delete("limits/a")
    assert watcher.poll() == [Change(ChangeKind.DELETED, "limits/a", None)]
    assert kinds(seen) == [
        ("created", "limits/a"),
        ("changed", "limits/a"),
        ("created", "limits/b"),
        ("deleted", "limits/a"),
    ]


def test_a_known_version_is_not_reported_again_but_a_newer_one_is() -> None:
    store = MemoryStore()
    first, second = store.put("a", b"1"), store.put("b", b"1")
    store.put("b", b"2")
    watcher = Watcher(store, "", lambda _: None, known={"a": first.version, "b": second.version, "c": 4})
    assert kinds(watcher.poll()) == [("changed", "b"), ("deleted", "c")]


def test_certain_keys_are_watched_without_their_neighbours() -> None:
    store = MemoryStore()
    for key in ("a", "ab", "b"):
        store.put(key, b"x")
    watcher = Watcher(store, ["a", "b", "later"], lambda _: None)
    assert kinds(watcher.poll()) == [("created", "a"), ("created", "b")]
    store.put("ab", b"y")
    store.put("later", b"y")
    assert kinds(watcher.poll()) == [("created", "later")]


def test_a_key_deleted_and_created_between_two_polls_has_changed() -> None:
    store = MemoryStore()
    store.put("a", b"1")
    watcher = Watcher(store, "", lambda _: None)
    watcher.poll()
    store.delete("a")
    store.put("a", b"1")
    assert kinds(watcher.poll()) == [("changed", "a")]


def test_only_values_that_changed_are_read() -> None:
    store = ShakyStore()
    for key in "abc":
        store.put(key, b"x")
    watcher = Watcher(store, "", lambda _: None)
    watcher.poll()
    store.put("b", b"y")
    store.reads.clear()
    watcher.poll()
    watcher.poll()
    assert store.reads == ["b"]


def test_an_outage_is_no_change_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = ShakyStore()
    store.put("a", b"1")
    watcher = Watcher(store, "", lambda _: None)
    watcher.poll()
    with caplog.at_level(logging.INFO):
        store.lists_away = True
        assert [watcher.poll() for _ in range(3)] == [[], [], []]
        store.lists_away = False
        assert watcher.poll() == []
        store.put("a", b"2")
        assert kinds(watcher.poll()) == [("changed", "a")]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_change_that_could_not_be_read_is_reported_after_the_outage() -> None:
    store = ShakyStore()
    store.put("a", b"1")
    watcher = Watcher(store, "", lambda _: None)
    watcher.poll()
    store.put("a", b"2")
    store.gets_away = True
    assert watcher.poll() == []
    store.gets_away = False
    assert kinds(watcher.poll()) == [("changed", "a")]


def test_a_listener_that_fails_hears_of_the_next_change(caplog: pytest.LogCaptureFixture) -> None:
    store, seen = MemoryStore(), []

    def fail(change: Change) -> None:
        seen.append(change.key)
        raise ZeroDivisionError

    watcher = Watcher(store, "", fail)
    store.put("a", b"1")
    store.put("b", b"1")
    with caplog.at_level(logging.CRITICAL, logger="dw_platform.foundation.events"):
        watcher.poll()
        store.put("c", b"1")
        watcher.poll()
    assert seen == ["a", "b", "c"]


def test_the_thread_reports_what_another_handle_writes(tmp_path: Path) -> None:
    seen: list[Change] = []
    arrived = threading.Event()

    def listen(change: Change) -> None:
        seen.append(change)
        arrived.set()

    with Watcher(FileStore(tmp_path / "store"), ["limit"], listen, interval_s=0.01):
        entry = FileStore(tmp_path / "store").put("limit", b"5")
        assert arrived.wait(30)
    assert seen == [Change(ChangeKind.CREATED, "limit", entry)]


def test_the_thread_survives_an_outage_and_unexpected_errors(caplog: pytest.LogCaptureFixture) -> None:
    class BuggyStore(ShakyStore):
        def __init__(self) -> None:
            super().__init__()
            self.failed = threading.Event()

        def list_versions(self, prefix: str) -> dict[str, int]:
            if not self.failed.is_set():
                self.failed.set()
                raise ZeroDivisionError
            return super().list_versions(prefix)

    store, arrived = BuggyStore(), threading.Event()
    with (
        caplog.at_level(logging.ERROR),
        Watcher(store, "", lambda _: arrived.set(), interval_s=0.01),
    ):
        assert store.failed.wait(30)
        store.put("a", b"1")
        assert arrived.wait(30)
    assert "store watcher failed, it goes on" in caplog.messages


def test_a_listener_may_stop_its_watcher_and_it_may_start_again() -> None:
    store, seen, stopped = MemoryStore(), [], threading.Event()

    def listen(change: Change) -> None:
        seen.append(change.key)
        watcher.stop()
        stopped.set()

    watcher = Watcher(store, "", listen, interval_s=0.01)
    for key in "ab":
        stopped.clear()
        watcher.start()
        watcher.start()
        store.put(key, b"x")
        assert stopped.wait(30)
    watcher.stop()
    assert seen == ["a", "b"]


def test_a_watcher_that_cannot_work_is_refused_when_made() -> None:
    with pytest.raises(InvalidValueError):
        Watcher(MemoryStore(), "", lambda _: None, interval_s=0)
    with pytest.raises(InvalidKeyError):
        Watcher(MemoryStore(), [""], lambda _: None)
    with pytest.raises(InvalidKeyError):
        Watcher(MemoryStore(), "\0", lambda _: None)
