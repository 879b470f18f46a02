"""Reading all records below a prefix; one that cannot be read is logged and left out, so it hides no other."""

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from dw_platform.scaling.errors import UndecodableRecordError
from dw_platform.store.contract import DEFAULT_PAGE, Entry, PersistentStore

log = logging.getLogger(__name__)

T = TypeVar("T")


def list_records(store: PersistentStore, prefix: str, decode: Callable[[Entry], T]) -> Iterator[tuple[str, T]]:
    """Yield key and record of every entry below `prefix`, in order of keys."""
    for entry in _entries(store, prefix):
        try:
            yield entry.key, decode(entry)
        except UndecodableRecordError as error:
            log.warning("record left out", extra={"key": error.key, "detail": error.detail})


def _entries(store: PersistentStore, prefix: str) -> Iterator[Entry]:
    page = store.list(prefix)
    yield from page
    while len(page) == DEFAULT_PAGE:
        page = store.list(prefix, after=page[-1].key)
        yield from page
