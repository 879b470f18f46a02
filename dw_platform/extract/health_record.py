"""The health of each database in the control store, at `dw://internal/health/NAME`.

Every change is a compare-and-set, so failures that several processes see at the same time are all counted. A record
that cannot be read counts as none: it only holds counters, and the next check writes it anew.
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from dw_platform.extract.health_policy import HealthRecord
from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.scaling.errors import UndecodableRecordError
from dw_platform.store import Entry, PersistentStore, internal_key, update

_TIMES = ("checked_at", "failing_since", "retry_at", "told_at")


def health_key(database: str) -> str:
    """Return where the record of a database is."""
    return internal_key("health", database)


def read_record(store: PersistentStore, database: str) -> HealthRecord | None:
    """Return what is known of the database, or None if nothing is."""
    return _decode(store.get(health_key(database)))


def change_record(
    store: PersistentStore, database: str, change: Callable[[HealthRecord | None], HealthRecord | None]
) -> HealthRecord | None:
    """Replace the record by what `change` makes of it and return what is stored; None changes nothing."""

    def write(entry: Entry | None) -> bytes | None:
        record = change(_decode(entry))
        return None if record is None else encode_object(_content(record))

    return _decode(update(store, health_key(database), write))


def _content(record: HealthRecord) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(record).items()}


def _decode(entry: Entry | None) -> HealthRecord | None:
    if entry is None:
        return None
    try:
        return decode_object(entry, _build)
    except UndecodableRecordError:
        return None


def _build(content: dict[str, Any]) -> HealthRecord:
    times = {name: as_time(content[name]) if content[name] else None for name in _TIMES}
    return HealthRecord(**content | times)
