"""Which partition a record goes to: the hash of its key, or one partition for all that have none.

A batch is split as a whole: hashed by numpy, put in the order of its partitions by one `take`, and cut into slices
of that. The order of records within a partition is that of the batch.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dw_platform.foundation import fnv1a_64, fnv1a_64_each
from dw_platform.log import Records

# Keys of small batches come one by one and again and again.
_hash = lru_cache(maxsize=8_192)(fnv1a_64)

Parts = list[tuple[int, Records]]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of `key` in a topic with that many."""
    return _hash(key) % partitions


def split(records: Records, partitions: int, keyless: int) -> Parts:
    """Return the records by partition, lowest first; those without a key go to `keyless`."""
    if records.keys is None or partitions == 1:
        return [(keyless if records.keys is None else 0, records)]
    chosen = _chosen(records.keys, partitions, keyless)
    if (chosen == chosen[0]).all():
        return [(int(chosen[0]), records)]
    order = np.argsort(chosen, kind="stable")
    chosen = chosen[order]
    starts = np.flatnonzero(np.diff(chosen, prepend=-1))
    bounds = zip(starts.tolist(), [*starts[1:].tolist(), len(chosen)], strict=True)
    columns = [_ordered(column, order) for column in _columns(records)]
    return [(int(chosen[start]), _records(columns, start, end)) for start, end in bounds]


def tail(records: Records, first: int) -> Records:
    """Return the records from `first` on."""
    return _records(_columns(records), first, len(records)) if first else records


def _chosen(keys: Any, partitions: int, keyless: int) -> Any:
    if isinstance(keys, list):
        return np.array([keyless if key is None else _hash(key) % partitions for key in keys], np.int64)
    chosen = (fnv1a_64_each(keys) % np.uint64(partitions)).astype(np.int64)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = keyless
    return chosen


def _columns(records: Records) -> tuple[Any, ...]:
    return records.values, records.keys, records.headers, records.timestamps_ms


def _ordered(column: Any, order: Any) -> Any:
    if column is None:
        return None
    if isinstance(column, pa.Array):
        return column.take(pa.array(order))
    if isinstance(column, np.ndarray):
        return column[order]
    return [column[index] for index in order.tolist()]


def _records(columns: Sequence[Any], start: int, end: int) -> Records:
    values, keys, headers, times = [_slice(column, start, end) for column in columns]
    return Records(values, keys=keys, headers=headers, timestamps_ms=times)


def _slice(column: Any, start: int, end: int) -> Any:
    if isinstance(column, pa.Array):
        return column.slice(start, end - start)
    return None if column is None else column[start:end]
