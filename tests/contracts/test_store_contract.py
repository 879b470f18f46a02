"""One suite for every backing of the control store."""

import pickle
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dw_platform.foundation import InvalidValueError
from dw_platform.store import (
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    Change,
    Entry,
    InvalidKeyError,
    MemoryStore,
    PersistentStore,
    StaleVersionError,
    ValueTooLargeError,
    Watcher,
    open_store,
)
from tests.store.workers import (
    PROCESSES,
    count_up,
    count_up_under_lease,
    increment,
    run_together,
    write_times,
)

KINDS = ["memory", "file", "sqlite", pytest.param("postgres", marks=pytest.mark.server)]
LASTING_KINDS = KINDS[1:]
ODD_KEYS = [
    "a",
    " ",
    " leading and trailing ",
    "dw://internal/backup/7",
    "..",
    "../../etc/passwd",
    "/",
    "line\nbreak\r\ttab",
    "100%",
    "under_score",
    "back\\slash",
    "quote'\"`;--",
    "*?[a-z]",
    "\x01\x7f",
    "Größe",
    "\u0065\u0301",  # e and an accent: not the same key as the one composed character
    "\u00e9",
    "日本語",
    "\u200f\u202eright to left",
    "\ud7ff",
    "\ue000",
    "\ufeff",
    "\uffff",
    "😀",
    "\U0010ffff",
    "x" * MAX_KEY_BYTES,
    "😀" * (MAX_KEY_BYTES // 4),
]
INVALID_KEYS = ["", "a\0b", "\ud800", "a\udfffb", "x" * (MAX_KEY_BYTES + 1), "ä" * (MAX_KEY_BYTES // 2 + 1)]
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@dataclass
class Place:
    """Where a store is; memory is only where its object is."""

    url: str
    memory: MemoryStore | None = None

    def open(self) -> PersistentStore:
        return self.memory or open_store(self.url)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    match kind:
        case "memory":
            return Place("memory://", MemoryStore())
        case "file":
            return Place(f"file://{tmp_path}/store")
        case "sqlite":
            return Place(f"sqlite:///{tmp_path}/folder/store.db")
        case _:
            return Place(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(place: Place) -> Iterator[PersistentStore]:
    with closing(place.open()) as store:
        yield store


def keys_of(entries: list[Entry]) -> list[str]:
    return [entry.key for entry in entries]


@pytest.mark.parametrize("kind", KINDS)
class TestEveryStore:
    def test_a_missing_key_is_none(self, store: PersistentStore) -> None:
        assert store.get("nothing") is None

    def test_what_was_put_is_read_back_with_its_version(self, store: PersistentStore) -> None:
        entry = store.put("limits", b"\x00\xff value")
        assert entry == Entry("limits", b"\x00\xff value", entry.version)
        assert store.get("limits") == entry

    def test_an_empty_value_is_a_value(self, store: PersistentStore) -> None:
        store.put("empty", b"")
        assert store.get("empty") == Entry("empty", b"", 1)

    def test_each_update_adds_one_to_the_version(self, store: PersistentStore) -> None:
        assert [store.put("key", b"x").version for _ in range(3)] == [1, 2, 3]

    def test_compare_and_set_with_none_creates_only_what_is_absent(self, store: PersistentStore) -> None:
        created = store.compare_and_set("key", b"first", expected=None)
        with pytest.raises(StaleVersionError) as caught:
            store.compare_and_set("key", b"second", expected=None)
        assert (caught.value.key, caught.value.expected, caught.value.actual) == ("key", None, created.version)
        assert store.get("key") == created

    def test_compare_and_set_replaces_the_expected_version(self, store: PersistentStore) -> None:
        first = store.put("key", b"first")
        second = store.compare_and_set("key", b"second", expected=first.version)
        assert second.version > first.version
        assert store.get("key") == second

    def test_compare_and_set_refuses_an_outdated_version(self, store: PersistentStore) -> None:
        first = store.put("key", b"first")
        second = store.put("key", b"second")
        with pytest.raises(StaleVersionError, match="Read it again"):
            store.compare_and_set("key", b"third", expected=first.version)
        assert store.get("key") == second

    def test_compare_and_set_refuses_a_version_of_a_key_that_is_gone(self, store: PersistentStore) -> None:
        with pytest.raises(StaleVersionError) as caught:
            store.compare_and_set("key", b"value", expected=1)
        assert caught.value.actual is None
        assert store.get("key") is None

    def test_delete_tells_whether_there_was_something(self, store: PersistentStore) -> None:
        store.put("key", b"value")
        assert store.delete("key")
        assert store.get("key") is None
        assert not store.delete("key")

    def test_delete_with_an_outdated_version_keeps_the_entry(self, store: PersistentStore) -> None:
        first = store.put("key", b"first")
        second = store.put("key", b"second")
        with pytest.raises(StaleVersionError) as caught:
            store.delete("key", expected=first.version)
        assert caught.value.actual == second.version
        assert store.get("key") == second
        assert store.delete("key", expected=second.version)
        assert not store.delete("key", expected=second.version)

    def test_a_key_created_again_never_has_a_version_it_had_before(self, store: PersistentStore) -> None:
        before = [store.put("key", b"old").version for _ in range(5)]
        store.delete("key")
        again = store.compare_and_set("key", b"new", expected=None)
        assert again.version > max(before)
        with pytest.raises(StaleVersionError):
            store.compare_and_set("key", b"lost", expected=before[-1])

    def test_versions_stay_unique_when_deletions_interleave(self, store: PersistentStore) -> None:
        seen: dict[str, list[int]] = {"a": [], "b": []}
        for round_number in range(4):
            for key, versions in seen.items():
                versions.extend(store.put(key, b"x").version for _ in range(round_number + 1))
            store.delete("a" if round_number % 2 else "b")
        for versions in seen.values():
            assert versions == sorted(set(versions))

    def test_listing_is_in_the_order_of_code_points(self, store: PersistentStore) -> None:
        # U+FFFF sorts after an emoji in UTF-16 and before it by code point; languages sort the rest differently.
        keys = ["Z", "a", "B", "b", "ä", "z", "é", "e\u0301", "_", "-", "😀", "\uffff", "\ue000", "10", "9", " "]
        for key in keys:
            store.put(key, key.encode())
        assert keys_of(store.list("")) == sorted(keys)
        assert sorted(keys) == sorted(keys, key=str.encode)
        assert list(store.list_versions("")) == sorted(keys)

    def test_a_prefix_means_itself_and_nothing_more(self, store: PersistentStore) -> None:
        for key in ("a%b", "a%bc", "a_b", "axb", "A%b", "a", "a\\b", "a*b", "a\uffff", "b"):
            store.put(key, b"x")
        assert keys_of(store.list("a%")) == ["a%b", "a%bc"]
        assert keys_of(store.list("a_")) == ["a_b"]
        assert keys_of(store.list("a\\")) == ["a\\b"]
        assert keys_of(store.list("a*")) == ["a*b"]
        assert keys_of(store.list("a")) == ["a", "a%b", "a%bc", "a*b", "a\\b", "a_b", "axb", "a\uffff"]
        assert store.list("nothing") == []

    @pytest.mark.parametrize("prefix", ["\U0010ffff", "a\U0010ffff", "\ud7ff", "😀", ""])
    def test_prefixes_at_the_edges_of_unicode_find_their_keys(self, store: PersistentStore, prefix: str) -> None:
        inside = {prefix + "x", prefix + "\U0010ffff", prefix + "1"}
        for key in inside | {"0", "b", "\ue000"}:
            store.put(key, b"x")
        expected = sorted(key for key in inside | {"0", "b", "\ue000"} if key.startswith(prefix))
        assert keys_of(store.list(prefix)) == expected
        assert list(store.list_versions(prefix)) == expected

    def test_paging_returns_every_entry_once_and_in_order(self, store: PersistentStore) -> None:
        keys = [f"page/{number:04}" for number in range(230)]
        for key in reversed(keys):
            store.put(key, key.encode())
        store.put("other", b"x")
        pages, after = [], None
        while page := store.list("page/", after=after, limit=50):
            pages.append(page)
            after = page[-1].key
        assert [len(page) for page in pages] == [50, 50, 50, 50, 30]
        assert [entry.value.decode() for page in pages for entry in page] == keys

    def test_paging_starts_after_a_key_that_need_not_exist(self, store: PersistentStore) -> None:
        for key in ("a", "c", "e"):
            store.put(key, b"x")
        assert keys_of(store.list("", after="b")) == ["c", "e"]
        assert keys_of(store.list("", after="c")) == ["e"]
        assert keys_of(store.list("", after="", limit=1)) == ["a"]
        assert store.list("", after="e") == []

    def test_a_page_has_at_least_one_entry(self, store: PersistentStore) -> None:
        with pytest.raises(InvalidValueError) as caught:
            store.list("", limit=0)
        assert caught.value.field == "limit"

    def test_versions_are_listed_without_values(self, store: PersistentStore) -> None:
        store.put("a/1", b"x")
        store.put("a/1", b"x")
        store.put("a/2", b"x")
        store.put("b", b"x")
        assert store.list_versions("a/") == {"a/1": 2, "a/2": 1}
        assert store.list_versions("nothing") == {}

    def test_versions_of_certain_keys_leave_out_those_that_do_not_exist(self, store: PersistentStore) -> None:
        store.put("a", b"x")
        store.put("ab", b"x")
        assert store.versions_of(["a", "nothing"]) == {"a": 1}
        assert store.versions_of([]) == {}

    def test_versions_of_more_keys_than_a_statement_takes(self, store: PersistentStore) -> None:
        store.put("key 2500", b"x")
        assert store.versions_of({f"key {number}" for number in range(33_000)}) == {"key 2500": 1}

    @pytest.mark.parametrize("key", ODD_KEYS, ids=ascii)
    def test_every_valid_key_is_kept_as_it_is(self, store: PersistentStore, key: str) -> None:
        entry = store.put(key, b"value")
        assert store.get(key) == entry
        assert store.list(key) == [entry]
        assert store.list_versions("") == store.versions_of([key]) == {key: entry.version}
        assert store.delete(key)
        assert store.list("") == []

    @pytest.mark.parametrize("key", INVALID_KEYS, ids=lambda key: ascii(key[:8]))
    def test_an_invalid_key_is_refused_everywhere(self, store: PersistentStore, key: str) -> None:
        for call in (
            lambda: store.get(key),
            lambda: store.put(key, b""),
            lambda: store.compare_and_set(key, b"", expected=None),
            lambda: store.delete(key),
            lambda: store.versions_of([key]),
        ):
            with pytest.raises(InvalidKeyError) as caught:
                call()
            assert caught.value.key == key
        assert store.list("") == []

    @pytest.mark.parametrize("prefix", ["\0", "\ud800", "x" * (MAX_KEY_BYTES + 1)], ids=lambda key: ascii(key[:8]))
    def test_a_prefix_that_no_key_can_have_is_refused(self, store: PersistentStore, prefix: str) -> None:
        for call in (
            lambda: store.list(prefix),
            lambda: store.list("", after=prefix),
            lambda: store.list_versions(prefix),
        ):
            with pytest.raises(InvalidKeyError):
                call()

    def test_the_largest_value_is_kept_and_a_larger_one_refused(self, store: PersistentStore) -> None:
        largest = bytes(range(256)) * (MAX_VALUE_BYTES // 256)
        entry = store.put("large", largest)
        with pytest.raises(ValueTooLargeError) as caught:
            store.put("large", largest + b"x")
        assert (caught.value.size, caught.value.limit) == (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES)
        with pytest.raises(ValueTooLargeError):
            store.compare_and_set("large", largest + b"x", expected=entry.version)
        assert store.get("large") == entry

    def test_another_handle_sees_a_write_at_once(self, place: Place, store: PersistentStore) -> None:
        with closing(place.open()) as other:
            entry = store.put("key", b"value")
            assert other.get("key") == entry
            other.delete("key")
            assert store.list("") == []

    def test_readers_see_the_old_or_the_new_value_and_never_half_of_one(
        self, place: Place, store: PersistentStore
    ) -> None:
        size, torn, stop = 512 * 1024, [], threading.Event()
        store.put("key", bytes(size))

        def read() -> None:
            with closing(place.open()) as reader:
                while not stop.is_set():
                    entry = reader.get("key")
                    if entry is None or entry.value != entry.value[:1] * size:
                        torn.append(entry)

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for number in range(40):
                store.put("key", bytes([number]) * size)
            stop.set()
            for reader in readers:
                reader.result()
        assert torn == []

    def test_threads_lose_no_update(self, store: PersistentStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            for result in [pool.submit(count_up, store, "counter", 10) for _ in range(8)]:
                result.result()
        entry = store.get("counter")
        assert entry is not None
        assert (entry.value, entry.version) == (b"80", 80)

    def test_of_many_creators_exactly_one_succeeds(self, store: PersistentStore) -> None:
        def create(number: int) -> bool:
            try:
                store.compare_and_set("key", str(number).encode(), expected=None)
            except StaleVersionError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 1

    def test_closing_twice_is_harmless(self, place: Place) -> None:
        store = place.open()
        store.close()
        store.close()

    @given(keys=st.sets(KEYS, max_size=8), prefix=st.one_of(st.just(""), KEYS.map(lambda key: key[:2])))
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_listing_agrees_with_python_for_any_keys(self, store: PersistentStore, keys: set[str], prefix: str) -> None:
        for key in store.list_versions(""):
            store.delete(key)
        for key in keys:
            store.put(key, key.encode())
        expected = sorted(key for key in keys if key.startswith(prefix))
        assert keys_of(store.list(prefix)) == list(store.list_versions(prefix)) == expected

    def test_it_behaves_like_a_dict_with_versions(self, store: PersistentStore) -> None:
        run_state_machine_as_test(
            lambda: StoreModel(store), settings=settings(max_examples=12, stateful_step_count=30, deadline=None)
        )


class StoreModel(RuleBasedStateMachine):
    """The store against a dict; versions are only required to grow, also across deletions."""

    keys = st.sampled_from(["a", "a/1", "a/2", "b", "ä", "😀"])
    values = st.binary(max_size=8)

    def __init__(self, store: PersistentStore) -> None:
        super().__init__()
        self.store = store
        for key in store.list_versions(""):
            store.delete(key)
        self.entries: dict[str, Entry] = {}
        self.highest: dict[str, int] = {}

    def took(self, entry: Entry) -> None:
        assert entry.version > self.highest.get(entry.key, 0)
        self.highest[entry.key] = entry.version
        self.entries[entry.key] = entry

    def version(self, key: str) -> int | None:
        return self.entries[key].version if key in self.entries else None

    @rule(key=keys, value=values)
    def put(self, key: str, value: bytes) -> None:
        self.took(self.store.put(key, value))

    @rule(key=keys, value=values)
    def compare_and_set(self, key: str, value: bytes) -> None:
        self.took(self.store.compare_and_set(key, value, expected=self.version(key)))

    @rule(key=keys, value=values, distance=st.sampled_from([-1, 1, None]))
    def compare_and_set_wrongly(self, key: str, value: bytes, distance: int | None) -> None:
        actual = self.version(key)
        expected = None if distance is None else (actual or 7) + distance
        if expected == actual:
            return
        with pytest.raises(StaleVersionError) as caught:
            self.store.compare_and_set(key, value, expected=expected)
        assert caught.value.actual == actual

    @rule(key=keys)
    def delete(self, key: str) -> None:
        assert self.store.delete(key) == (self.entries.pop(key, None) is not None)

    @rule(key=keys)
    def delete_the_expected_version(self, key: str) -> None:
        if key in self.entries:
            assert self.store.delete(key, expected=self.entries.pop(key).version)

    @rule(prefix=st.sampled_from(["", "a", "a/", "😀", "c"]), after=st.none() | keys, limit=st.integers(1, 4))
    def list(self, prefix: str, after: str | None, limit: int) -> None:
        keys = sorted(key for key in self.entries if key.startswith(prefix) and (after is None or key > after))
        assert self.store.list(prefix, after=after, limit=limit) == [self.entries[key] for key in keys[:limit]]

    @invariant()
    def same_versions(self) -> None:
        versions = {key: entry.version for key, entry in self.entries.items()}
        assert self.store.list_versions("") == self.store.versions_of(["a", "a/1", "a/2", "b", "ä", "😀"]) == versions


@pytest.mark.parametrize("kind", LASTING_KINDS)
class TestStoresThatOutliveTheirProcess:
    def test_what_was_written_is_there_after_reopening(self, place: Place) -> None:
        with closing(place.open()) as store:
            entry = store.put("key", b"value")
        with closing(place.open()) as store:
            assert store.get("key") == entry

    def test_the_memory_of_deleted_versions_survives_reopening(self, place: Place) -> None:
        with closing(place.open()) as store:
            for _ in range(4):
                last = store.put("key", b"old")
            store.delete("key")
        with closing(place.open()) as store:
            assert store.put("key", b"new").version > last.version

    def test_a_pickled_store_opens_the_same_place(self, place: Place) -> None:
        with closing(place.open()) as store:
            entry = store.put("key", b"value")
            with closing(pickle.loads(pickle.dumps(store))) as copy:
                assert copy.get("key") == entry

    def test_eight_processes_that_create_it_together_lose_no_update(self, place: Place) -> None:
        run_together(8, increment, place.url, "counter", 20)
        with closing(place.open()) as store:
            entry = store.get("counter")
        assert entry is not None
        assert (entry.value, entry.version) == (b"160", 160)

    def test_a_process_sees_a_change_within_a_second(self, place: Place) -> None:
        delays: list[float] = []
        seen = PROCESSES.Semaphore(0)

        def notice(change: Change) -> None:
            assert change.entry is not None
            delays.append(time.monotonic() - float(change.entry.value))
            seen.release()

        with closing(place.open()) as store, Watcher(store, "limits/", notice):
            run_together(1, write_times, place.url, "limits/backup", seen, 3)
        # The median, because a busy machine may delay any single one.
        assert len(delays) == 3
        assert statistics.median(delays) < 1

    def test_a_lease_makes_processes_take_turns_in_the_order_of_their_tokens(self, place: Place) -> None:
        run_together(4, count_up_under_lease, place.url, 2)
        with closing(place.open()) as store:
            counter, turns = store.get("counter"), store.list_versions("turn/")
        assert counter is not None
        assert counter.value == b"8"
        assert list(turns.values()) == [1] * 8, "two turns had the same token"
