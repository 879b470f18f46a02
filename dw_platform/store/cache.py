"""A bounded cache in front of something slower: what was used least recently goes first.

Bounds: it never holds more than the policy's entries and bytes. A value larger than the whole cache is handed
out and stored behind it, but not kept.

Reading through: a miss asks the backing once, however many threads wait for it. A failing load fails for all of
them and is not remembered; neither is "there is none". A value that is set, deleted or invalidated while a load
runs wins over the loaded one.

Writing through: the backing is written first, so the cache never shows what is not stored. After a failed write
the key is dropped, because nobody knows which value the backing holds now.

Another process that writes the backing is noticed after `ttl`, or at once where a Watcher calls `invalidate`.
"""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from dw_platform.foundation import Clock, SystemClock
from dw_platform.store.backing import Backing
from dw_platform.store.lru import CachePolicy, Eviction, Lru, size_in_bytes

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Enough that writers of different keys rarely wait for each other.
_WRITE_LOCKS = 64


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What happened since the cache was made, and what it holds now."""

    hits: int
    misses: int
    loads: int
    load_failures: int
    evictions: int
    entries: int
    bytes: int

    @property
    def hit_ratio(self) -> float:
        """Return the share of reads that memory answered; 0 before the first."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else 0.0


class _Flight(Generic[V]):
    """One load under way; whoever else wants the key waits for it."""

    def __init__(self) -> None:
        self.result: Future[V | None] = Future()
        self._thread = threading.get_ident()

    def wait(self) -> V | None:
        """Return what the load returns, or raise what it raises."""
        if self._thread == threading.get_ident():
            raise RuntimeError("loading a key asks the cache for the same key, which would wait for itself")
        return self.result.result()


class BoundedCache(Generic[K, V]):
    """A thread-safe, bounded cache that reads and writes through to `backing`, if there is one.

    `on_evict(key, value, reason)` runs after an eviction, on the thread that caused it, and may use the cache; what
    it raises is logged. `size_of` gives the bytes that a value counts for.
    """

    def __init__(
        self,
        policy: CachePolicy | None = None,
        *,
        backing: Backing[K, V] | None = None,
        size_of: Callable[[V], int] = size_in_bytes,
        on_evict: Callable[[K, V, Eviction], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._backing, self._size_of, self._on_evict = backing, size_of, on_evict
        self._lock = threading.Lock()
        self._write_locks = [threading.Lock() for _ in range(_WRITE_LOCKS)]
        self._lru: Lru[K, V] = Lru(policy or CachePolicy(), clock or SystemClock())
        self._flights: dict[K, _Flight[V]] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        with self._lock:
            return len(self._lru)

    def get(self, key: K) -> V | None:
        """Return the value, from memory or from the backing, or None if neither has one."""
        with self._lock:
            slot = self._lru.find(key)
            self._counts["misses" if slot is None else "hits"] += 1
            joined, mine = self._flights.get(key), None
            if slot is None and joined is None and self._backing is not None:
                mine = self._flights[key] = _Flight()
        self._announce()
        if slot is not None:
            return slot.value
        if mine is not None and self._backing is not None:
            return self._load(key, mine, self._backing)
        return None if joined is None else joined.wait()

    def set(self, key: K, value: V) -> None:
        """Store `value` in the backing and then here."""
        size = self._size_of(value)
        with self._writing(key) as backing:
            if backing is not None:
                backing.save(key, value)
            with self._lock:
                self._flights.pop(key, None)
                self._lru.insert(key, value, size)
        self._announce()

    def delete(self, key: K) -> None:
        """Remove the key from the backing and from here."""
        with self._writing(key) as backing:
            if backing is not None:
                backing.remove(key)
            self.invalidate(key)

    def invalidate(self, key: K) -> None:
        """Forget the key here, so that the next read asks the backing."""
        with self._lock:
            self._flights.pop(key, None)
            self._lru.remove(key)

    def clear(self) -> None:
        """Forget everything here."""
        with self._lock:
            self._flights.clear()
            self._lru.clear()

    def reconfigure(self, policy: CachePolicy) -> None:
        """Apply other limits at once, evicting what no longer fits."""
        with self._lock:
            self._lru.reconfigure(policy)
        self._announce()

    def stats(self) -> CacheStats:
        """Return the counters and the present size."""
        with self._lock:
            counts = {name: self._counts[name] for name in ("hits", "misses", "loads", "load_failures", "evictions")}
            return CacheStats(**counts, entries=len(self._lru), bytes=self._lru.bytes)

    @contextlib.contextmanager
    def _writing(self, key: K) -> Iterator[Backing[K, V] | None]:
        # One writer of a key at a time, or cache and backing could end with different values of two.
        with self._write_locks[hash(key) % _WRITE_LOCKS]:
            try:
                yield self._backing
            except BaseException:
                self.invalidate(key)
                raise

    def _load(self, key: K, flight: _Flight[V], backing: Backing[K, V]) -> V | None:
        try:
            loaded = backing.load(key)
            value = self._land(key, flight, loaded, 0 if loaded is None else self._size_of(loaded))
        except BaseException as error:
            with self._lock:
                self._counts["load_failures"] += 1
                if self._flights.get(key) is flight:
                    del self._flights[key]
            flight.result.set_exception(error)
            raise
        flight.result.set_result(value)
        self._announce()
        return value

    def _land(self, key: K, flight: _Flight[V], loaded: V | None, size: int) -> V | None:
        """Keep what was loaded, unless the key was written meanwhile; return the value that counts."""
        with self._lock:
            self._counts["loads"] += 1
            if self._flights.get(key) is not flight:
                newer = self._lru.find(key)
                return loaded if newer is None else newer.value
            del self._flights[key]
            if loaded is not None:
                self._lru.insert(key, loaded, size)
            return loaded

    def _announce(self) -> None:
        """Tell about evictions, outside the lock, so that the listener may use the cache."""
        with self._lock:
            evicted = self._lru.take_evicted()
            self._counts["evictions"] += len(evicted)
        for key, value, reason in evicted:
            try:
                if self._on_evict is not None:
                    self._on_evict(key, value, reason)
            except Exception:
                log.exception("eviction listener failed", extra={"key": repr(key), "reason": reason})
