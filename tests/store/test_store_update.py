import pytest

from dw_platform.foundation import FakeClock
from dw_platform.store import Entry, MemoryStore, StaleVersionError, update


def test_an_update_creates_and_then_changes() -> None:
    store = MemoryStore()
    for expected in (b"x", b"xx"):
        entry = update(store, "key", lambda current: (current.value if current else b"") + b"x")
        assert entry == store.get("key")
        assert entry is not None
        assert entry.value == expected


def test_an_update_that_returns_none_writes_nothing() -> None:
    store = MemoryStore()
    assert update(store, "key", lambda _: None) is None
    entry = store.put("key", b"value")
    assert update(store, "key", lambda _: None) == entry
    assert store.get("key") == entry


def test_an_update_starts_again_from_what_another_writer_left() -> None:
    store = MemoryStore()
    seen: list[bytes | None] = []

    def change(current: Entry | None) -> bytes:
        seen.append(current.value if current else None)
        if len(seen) == 1:
            store.put("key", b"other")
        return (current.value if current else b"") + b" mine"

    entry = update(store, "key", change, clock=FakeClock())
    assert entry is not None
    assert entry.value == b"other mine"
    assert seen == [None, b"other"]


def test_an_update_that_loses_every_race_says_so() -> None:
    store, calls = MemoryStore(), []

    def interfere(_: Entry | None) -> bytes:
        calls.append(store.put("key", b"other"))
        return b"mine"

    with pytest.raises(StaleVersionError):
        update(store, "key", interfere, attempts=5, clock=FakeClock())
    assert len(calls) == 5


def test_an_error_in_the_change_leaves_the_entry_alone() -> None:
    store = MemoryStore()
    entry = store.put("key", b"value")

    def fail(_: Entry | None) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        update(store, "key", fail)
    assert store.get("key") == entry
