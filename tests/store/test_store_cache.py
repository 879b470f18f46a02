import concurrent.futures
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.store import BoundedCache, CachePolicy, Eviction, MemoryStore, StoreBacking, internal_key


class Library:
    """A backing that counts, and that a test can make wait or fail."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.loads: list[str] = []
        self.before_load: Callable[[], None] = lambda: None
        self.after_load: Callable[[], None] = lambda: None
        self.after_save: Callable[[], None] = lambda: None
        self.failure: Exception | None = None

    def load(self, key: str, /) -> bytes | None:
        self.loads.append(key)
        self.before_load()
        if self.failure:
            raise self.failure
        value = self.values.get(key)
        self.after_load()
        return value

    def save(self, key: str, value: bytes, /) -> None:
        if self.failure:
            raise self.failure
        self.values[key] = value
        self.after_save()

    def remove(self, key: str, /) -> None:
        if self.failure:
            raise self.failure
        self.values.pop(key, None)


class Evictions:
    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, Eviction]] = []

    def __call__(self, key: str, value: bytes, reason: Eviction) -> None:
        self.seen.append((key, value, reason))


def test_the_least_recently_used_entry_goes_first() -> None:
    evictions = Evictions()
    cache: BoundedCache[str, bytes] = BoundedCache(CachePolicy(max_entries=2), on_evict=evictions)
    cache.set("a", b"1")
    cache.set("b", b"2")
    assert cache.get("a") == b"1"
    cache.set("c", b"3")
    assert evictions.seen == [("b", b"2", Eviction.ENTRIES)]
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"1", None, b"3")


def test_bytes_are_a_bound_of_their_own() -> None:
    evictions = Evictions()
    cache: BoundedCache[str, bytes] = BoundedCache(CachePolicy(max_bytes=10), on_evict=evictions)
    for key in "abc":
        cache.set(key, b"xxxx")
    assert evictions.seen == [("a", b"xxxx", Eviction.BYTES)]
    assert cache.stats().bytes == 8


def test_a_value_larger_than_the_cache_does_not_push_out_the_others() -> None:
    evictions = Evictions()
    library = Library()
    cache = BoundedCache(CachePolicy(max_bytes=10), backing=library, on_evict=evictions)
    cache.set("small", b"x")
    cache.set("huge", b"x" * 11)
    assert evictions.seen == [("huge", b"x" * 11, Eviction.BYTES)]
    assert library.values["huge"] == b"x" * 11
    assert cache.get("huge") == b"x" * 11
    assert len(cache) == 1


def test_replacing_a_value_is_no_eviction_and_counts_its_size_once() -> None:
    evictions = Evictions()
    cache: BoundedCache[str, bytes] = BoundedCache(CachePolicy(max_bytes=10), on_evict=evictions)
    for _ in range(5):
        cache.set("a", b"xxxxxxxx")
    assert evictions.seen == []
    assert cache.stats().bytes == 8


def test_a_size_function_decides_what_a_value_counts_for() -> None:
    cache: BoundedCache[str, list[int]] = BoundedCache(CachePolicy(max_bytes=3), size_of=len)
    cache.set("a", [1, 2])
    cache.set("b", [1, 2])
    assert cache.get("a") is None
    assert cache.get("b") == [1, 2]


def test_a_value_expires_after_its_time_to_live() -> None:
    clock, evictions = FakeClock(), Evictions()
    cache: BoundedCache[str, bytes] = BoundedCache(
        CachePolicy(ttl=timedelta(seconds=10)), on_evict=evictions, clock=clock
    )
    cache.set("a", b"1")
    clock.advance(9.9)
    assert cache.get("a") == b"1"
    clock.advance(0.1)
    assert cache.get("a") is None
    assert evictions.seen == [("a", b"1", Eviction.EXPIRED)]
    assert cache.stats().evictions == 1


def test_an_expired_value_is_loaded_again() -> None:
    clock, library = FakeClock(), Library()
    cache = BoundedCache(CachePolicy(ttl=timedelta(seconds=10)), backing=library, clock=clock)
    library.values["a"] = b"old"
    assert cache.get("a") == b"old"
    library.values["a"] = b"new"
    assert cache.get("a") == b"old"
    clock.advance(10)
    assert cache.get("a") == b"new"


def test_a_miss_reads_through_and_the_next_read_is_a_hit() -> None:
    library = Library()
    library.values["a"] = b"1"
    cache = BoundedCache(backing=library)
    assert [cache.get("a"), cache.get("a")] == [b"1", b"1"]
    assert library.loads == ["a"]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.loads, stats.hit_ratio) == (1, 1, 1, 0.5)


def test_that_there_is_nothing_is_not_remembered() -> None:
    library = Library()
    cache = BoundedCache(backing=library)
    assert cache.get("a") is None
    library.values["a"] = b"1"
    assert cache.get("a") == b"1"


def test_many_waiters_share_one_load() -> None:
    library, release = Library(), threading.Event()
    library.values["a"] = b"1"
    library.before_load = lambda: assert_true(release.wait(30))
    cache = BoundedCache(backing=library)
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(cache.get, "a") for _ in range(8)]
        wait_until(lambda: cache.stats().misses == 8)
        release.set()
        assert [read.result() for read in reads] == [b"1"] * 8
    assert library.loads == ["a"]


def test_a_failing_load_reaches_every_waiter_and_is_not_remembered() -> None:
    library, release = Library(), threading.Event()
    library.before_load = lambda: assert_true(release.wait(30))
    library.failure = ConnectionError("away")
    cache = BoundedCache(backing=library)
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(cache.get, "a") for _ in range(4)]
        wait_until(lambda: cache.stats().misses == 4)
        release.set()
        assert [type(read.exception()) for read in reads] == [ConnectionError] * 4
    library.failure = None
    library.values["a"] = b"1"
    assert cache.get("a") == b"1"
    assert cache.stats().load_failures == 1


@pytest.mark.parametrize(
    ("interfere", "expected"),
    [
        (lambda cache: cache.set("a", b"new"), b"new"),
        (lambda cache: cache.delete("a"), None),
    ],
)
def test_a_write_during_a_load_wins_over_the_loaded_value(
    interfere: Callable[[BoundedCache[str, bytes]], None], expected: bytes | None
) -> None:
    library = Library()
    library.values["a"] = b"old"
    cache = BoundedCache(backing=library)
    library.after_load = lambda: interfere(cache)
    cache.get("a")
    library.after_load = lambda: None
    assert cache.get("a") == expected
    assert library.values.get("a") == expected


def test_the_reader_whose_load_was_overtaken_gets_the_newer_value() -> None:
    library = Library()
    library.values["a"] = b"old"
    cache = BoundedCache(backing=library)
    library.after_load = lambda: cache.set("a", b"new")
    assert cache.get("a") == b"new"


@pytest.mark.parametrize("forget", [lambda cache: cache.invalidate("a"), lambda cache: cache.clear()])
def test_what_was_loaded_before_an_invalidation_is_not_kept(
    forget: Callable[[BoundedCache[str, bytes]], None],
) -> None:
    library = Library()
    library.values["a"] = b"old"
    cache = BoundedCache(backing=library)
    library.after_load = lambda: forget(cache)
    assert cache.get("a") == b"old"
    assert len(cache) == 0
    library.after_load = lambda: None
    library.values["a"] = b"new"
    assert cache.get("a") == b"new"


def test_a_load_that_asks_for_its_own_key_fails_instead_of_waiting_for_itself() -> None:
    library = Library()
    cache = BoundedCache(backing=library)
    library.before_load = lambda: assert_true(cache.get("a") is None)
    with pytest.raises(RuntimeError, match="the same key"):
        cache.get("a")


def test_a_failed_write_drops_the_key_because_nobody_knows_what_is_stored() -> None:
    library = Library()
    cache = BoundedCache(backing=library)
    cache.set("a", b"old")
    library.failure = ConnectionError("away")
    for write in (lambda: cache.set("a", b"new"), lambda: cache.delete("a")):
        with pytest.raises(ConnectionError):
            write()
        assert len(cache) == 0
    library.failure = None
    assert cache.get("a") == b"old"


def test_a_second_writer_of_a_key_waits_for_the_first() -> None:
    library = Library()
    cache = BoundedCache(backing=library)
    with ThreadPoolExecutor(1) as pool:

        def write_again() -> None:
            library.after_save = lambda: None
            second = pool.submit(cache.set, "a", b"second")
            # Without the lock the second would be done now, and the first would then put its older value over it.
            concurrent.futures.wait([second], timeout=0.1)

        library.after_save = write_again
        cache.set("a", b"first")
    assert cache.get("a") == library.values["a"] == b"second"


def test_cache_and_store_agree_after_many_concurrent_writes() -> None:
    store = MemoryStore()
    backing = StoreBacking[str, int](
        store,
        key_of=lambda name: internal_key("cache", name),
        encode=lambda number: str(number).encode(),
        decode=int,
    )
    cache = BoundedCache(backing=backing)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: cache.set(f"key {number % 3}", number), range(600)))
    for name in ("key 0", "key 1", "key 2"):
        entry = store.get(f"dw://internal/cache/{name}")
        assert entry is not None
        assert cache.get(name) == int(entry.value)
    assert cache.stats().loads == 0


def test_a_store_behind_the_cache_is_read_written_and_deleted() -> None:
    store = MemoryStore()
    backing = StoreBacking[str, str](store, key_of=str, encode=str.encode, decode=bytes.decode)
    cache = BoundedCache(backing=backing)
    store.put("there", "älter".encode())
    assert cache.get("there") == "älter"
    assert cache.get("missing") is None
    cache.set("new", "wert")
    entry = store.get("new")
    assert entry is not None
    assert entry.value == b"wert"
    cache.delete("new")
    assert store.get("new") is None
    assert cache.get("new") is None


def test_other_limits_apply_at_once() -> None:
    evictions = Evictions()
    cache: BoundedCache[str, bytes] = BoundedCache(on_evict=evictions)
    for key in "abc":
        cache.set(key, b"x")
    cache.reconfigure(CachePolicy(max_entries=1))
    assert [key for key, _, _ in evictions.seen] == ["a", "b"]
    assert cache.stats().entries == 1


def test_an_eviction_listener_may_use_the_cache_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def listen(key: str, _value: bytes, _reason: Eviction) -> None:
        assert cache.get(key) is None
        raise ZeroDivisionError

    cache: BoundedCache[str, bytes] = BoundedCache(CachePolicy(max_entries=1), on_evict=listen)
    with caplog.at_level(logging.ERROR):
        cache.set("a", b"1")
        cache.set("b", b"2")
    assert cache.get("b") == b"2"
    assert [record.message for record in caplog.records] == ["eviction listener failed"]


@pytest.mark.parametrize(
    ("field", "policy"),
    [
        ("max_entries", lambda: CachePolicy(max_entries=0)),
        ("max_bytes", lambda: CachePolicy(max_bytes=0)),
        ("ttl", lambda: CachePolicy(ttl=timedelta(0))),
    ],
)
def test_a_cache_that_could_hold_nothing_is_refused(field: str, policy: Callable[[], CachePolicy]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        policy()
    assert caught.value.field == field


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 6), st.booleans()), max_size=60))
def test_it_keeps_what_a_simple_model_keeps(steps: list[tuple[str, int, bool]]) -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(CachePolicy(max_entries=3, max_bytes=10))
    model: OrderedDict[str, int] = OrderedDict()
    for key, size, write in steps:
        if write:
            cache.set(key, b"x" * size)
            model[key] = size
            model.move_to_end(key)
            while len(model) > 3 or sum(model.values()) > 10:
                model.popitem(last=False)
        else:
            value = cache.get(key)
            assert (None if value is None else len(value)) == model.get(key)
            if key in model:
                model.move_to_end(key)
        stats = cache.stats()
        assert (stats.entries, stats.bytes) == (len(model), sum(model.values()))


def assert_true(condition: object) -> None:
    assert condition


def wait_until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    done = threading.Event()
    for _ in range(int(timeout_s / 0.005)):
        if condition():
            return
        done.wait(0.005)
    raise AssertionError("it did not happen in time")
