"""Which values a bounded cache keeps: the bookkeeping, without threads and without a backing."""

import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from dw_platform.foundation import Clock, InvalidValueError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Eviction(StrEnum):
    """Why a cache let a value go on its own account."""

    ENTRIES = "entries"
    BYTES = "bytes"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """How much a cache may hold, and for how long."""

    max_entries: int = 1024
    """Number of values; bounds what the bookkeeping of small values costs."""

    max_bytes: int = 64 * 1024 * 1024
    """Sum of the values' sizes: four of the largest values that the store takes."""

    ttl: timedelta | None = None
    """Age from which a value is asked for again; None trusts it until it is set, deleted or invalidated."""

    def __post_init__(self) -> None:
        if self.max_entries < 1:
            raise InvalidValueError("max_entries", self.max_entries, "at least 1")
        if self.max_bytes < 1:
            raise InvalidValueError("max_bytes", self.max_bytes, "at least 1")
        if self.ttl is not None and self.ttl <= timedelta(0):
            raise InvalidValueError("ttl", self.ttl, "above 0, or None for no limit")


@dataclass(frozen=True, slots=True)
class Slot(Generic[V]):
    """A kept value."""

    value: V
    size: int
    stored_at: float


class Lru(Generic[K, V]):
    """Values in the order of their last use; what had to go is collected until `take_evicted`."""

    def __init__(self, policy: CachePolicy, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self._slots: OrderedDict[K, Slot[V]] = OrderedDict()
        self._evicted: list[tuple[K, V, Eviction]] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, key: K) -> Slot[V] | None:
        """Return the value's slot and count that as a use; an expired one is evicted instead."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        if self._expired(slot):
            self._evict(key, Eviction.EXPIRED)
            return None
        self._slots.move_to_end(key)
        return slot

    def insert(self, key: K, value: V, size: int) -> None:
        """Keep `value` as the one used last, and evict what no longer fits."""
        self.remove(key)
        self._slots[key] = Slot(value, size, self._clock.monotonic())
        self.bytes += size
        if size > self._policy.max_bytes:
            # Making room for it would empty the cache and still not be enough.
            self._evict(key, Eviction.BYTES)
        self._fit()

    def remove(self, key: K) -> None:
        """Forget the key; that is no eviction, because somebody asked for it."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self.bytes -= slot.size

    def clear(self) -> None:
        """Forget everything."""
        self._slots.clear()
        self.bytes = 0

    def reconfigure(self, policy: CachePolicy) -> None:
        """Apply another policy at once."""
        self._policy = policy
        self._fit()

    def take_evicted(self) -> list[tuple[K, V, Eviction]]:
        """Return what was evicted since the last call, oldest first."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def _fit(self) -> None:
        while len(self._slots) > self._policy.max_entries:
            self._evict(next(iter(self._slots)), Eviction.ENTRIES)
        while self.bytes > self._policy.max_bytes:
            self._evict(next(iter(self._slots)), Eviction.BYTES)

    def _expired(self, slot: Slot[V]) -> bool:
        ttl = self._policy.ttl
        return ttl is not None and self._clock.monotonic() - slot.stored_at >= ttl.total_seconds()

    def _evict(self, key: K, reason: Eviction) -> None:
        self._evicted.append((key, self._slots[key].value, reason))
        self.remove(key)


def size_in_bytes(value: Any) -> int:
    """Return the length of bytes, and of other objects what Python says, which leaves out what they refer to."""
    return len(value) if isinstance(value, bytes | bytearray) else sys.getsizeof(value)
