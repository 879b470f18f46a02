"""What every backing of the control store promises.

Atomic: a key holds its old value or its new one, never half of one, also when the writer is killed.
Durable: a write that returned survives the death of the process and, except in memory, of the machine.
Ordered: listings are ordered by code point, which is also the order of the keys' UTF-8 bytes.

Versions: each write of a key gets a higher version than all earlier writes of that key, also across
delete and re-create, so a version that somebody remembers can never name a different value. An update adds
one. A create takes one more than the store's floor, the highest version at which any key was ever deleted;
that one number replaces a tombstone for each deleted key. Versions of different keys do not compare.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from dw_platform.foundation import InvalidValueError
from dw_platform.store.errors import InvalidKeyError, StaleVersionError, ValueTooLargeError

MAX_VALUE_BYTES = 16 * 1024 * 1024
# PostgreSQL refuses index rows above 2704 bytes, so a key must stay well below.
MAX_KEY_BYTES = 1024
DEFAULT_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with the value and the version that it had when it was read or written."""

    key: str
    # Kept out of the representation: values may be large or secret, and entries end up in log lines.
    value: bytes = field(repr=False)
    version: int


Entries = list[Entry]


class PersistentStore(Protocol):
    """A small, durable map from keys to bytes, shared by threads and (except in memory) by processes.

    Every method raises StoreUnavailableError when the backing does not answer and StoreUnusableError when what
    it answers makes no sense. A failed write leaves the old or the new value.
    """

    def get(self, key: str) -> Entry | None:
        """Return the entry, or None if there is none."""

    def put(self, key: str, value: bytes) -> Entry:
        """Store `value` whatever was there before; return once it is durable."""

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        """Store `value` only if the key is at version `expected` (None: only if absent).

        Raise StaleVersionError otherwise. Of several writers with the same `expected` exactly one succeeds.
        """

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Remove the key and return whether there was anything to remove.

        With `expected`, raise StaleVersionError if the key is there at another version.
        """

    def list(self, prefix: str, *, after: str | None = None, limit: int = DEFAULT_PAGE) -> Entries:
        """Return up to `limit` entries whose key starts with `prefix`, in order, from the first beyond `after`.

        Fewer than `limit` means that there are no more. Each entry was current at some moment of the call.
        """

    def list_versions(self, prefix: str) -> dict[str, int]:
        """Return the version of every key that starts with `prefix`, in order, without reading values."""

    def versions_of(self, keys: Collection[str]) -> dict[str, int]:
        """Return the versions of those `keys` that exist, without reading values."""

    def close(self) -> None:
        """Release connections; closing twice is harmless."""


def next_version(current: int | None, floor: int) -> int:
    """Return the version of a write to a key at `current` (None: absent) in a store with that floor."""
    return (floor if current is None else current) + 1


def check_expected(key: str, *, expected: int | None, actual: int | None) -> None:
    """Raise StaleVersionError unless the key is at the version that the caller expects."""
    if expected != actual:
        raise StaleVersionError(key, expected, actual)


def check_key(key: str) -> None:
    """Raise InvalidKeyError for what some backing could not keep; everything else is allowed."""
    if not key:
        raise InvalidKeyError(key, "it is empty")
    check_prefix(key)


def check_prefix(prefix: str) -> None:
    """Raise InvalidKeyError if no key can start with `prefix`; the empty prefix is that of all keys."""
    if "\0" in prefix:
        raise InvalidKeyError(prefix, "it contains a NUL character, which PostgreSQL cannot store")
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError as error:
        raise InvalidKeyError(prefix, "it contains half of a surrogate pair, which is not a character") from error
    if size > MAX_KEY_BYTES:
        raise InvalidKeyError(prefix, f"it has {size} bytes in UTF-8, at most {MAX_KEY_BYTES} are allowed")


def check_value(key: str, value: bytes) -> None:
    """Raise ValueTooLargeError if no backing would take `value`."""
    if len(value) > MAX_VALUE_BYTES:
        raise ValueTooLargeError(key, len(value), MAX_VALUE_BYTES)


def check_page(prefix: str, after: str | None, limit: int) -> None:
    """Raise for a listing that cannot mean anything."""
    check_prefix(prefix)
    check_prefix(after or "")
    if limit < 1:
        raise InvalidValueError("limit", limit, "at least 1")


def prefix_end(prefix: str) -> str | None:
    """Return the lowest text above everything that starts with `prefix`, or None if there is nothing above it."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Surrogates are code points but no characters, so the one after U+D7FF is U+E000.
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)
