"""What a cache can stand in front of."""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from dw_platform.store.contract import PersistentStore

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Backing(Protocol[K_contra, V]):
    """The slower and lasting home of cached values."""

    def load(self, key: K_contra, /) -> V | None:
        """Return the value, or None if there is none."""

    def save(self, key: K_contra, value: V, /) -> None:
        """Return once `value` is stored."""

    def remove(self, key: K_contra, /) -> None:
        """Return once there is no value."""


class StoreBacking(Generic[K, V]):
    """Cached values as entries of a PersistentStore."""

    def __init__(
        self,
        store: PersistentStore,
        *,
        key_of: Callable[[K], str],
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V],
    ) -> None:
        self._store, self._key_of, self._encode, self._decode = store, key_of, encode, decode

    def load(self, key: K, /) -> V | None:
        entry = self._store.get(self._key_of(key))
        return None if entry is None else self._decode(entry.value)

    def save(self, key: K, value: V, /) -> None:
        self._store.put(self._key_of(key), self._encode(value))

    def remove(self, key: K, /) -> None:
        self._store.delete(self._key_of(key))
