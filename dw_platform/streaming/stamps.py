"""The stamp of an idempotent producer as it is written in the log, and how it is found there again.

    dw-producer     who
    dw-sequence     the batch's number, from 0
    dw-partitions   how many partitions the batch was split over
    dw-parts        in how many of them it has records
    dw-records      how many records this part has
    dw-index        the record's place in its part, if it is not the first

The first record of each part carries all of them but the index. Where a broker may write a part half (see
`Capabilities.whole_batches`), every other record carries producer, sequence and index, so that it is known how far
the part got.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dw_platform.foundation import InvalidValueError
from dw_platform.log import InvalidRecordsError, Records, check_name
from dw_platform.log.records import Headers
from dw_platform.streaming.publishing import ProducerStamp

PRODUCER = "dw-producer"
_SEQUENCE, _PARTITIONS, _PARTS, _RECORDS, _INDEX = (
    "dw-sequence",
    "dw-partitions",
    "dw-parts",
    "dw-records",
    "dw-index",
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record with a stamp in the log; `partitions`, `parts` and `records` are known from the first of a part."""

    producer: str
    sequence: int
    index: int
    offset: int
    partitions: int = 0
    parts: int = 0
    records: int = 0


def check_stamp(stamp: ProducerStamp) -> None:
    """Refuse a stamp that cannot be written or ordered."""
    check_name("producer", stamp.producer)
    if not isinstance(stamp.sequence, int) or isinstance(stamp.sequence, bool) or not 0 <= stamp.sequence < 2**63:
        raise InvalidValueError("sequence", stamp.sequence, "a whole number from 0 on")


def check_unstamped(records: Records) -> None:
    """Refuse headers that would look like a stamp."""
    if records.headers is not None and any(PRODUCER in mapping for mapping in records.headers if mapping):
        raise InvalidRecordsError(f"the header {PRODUCER} is the platform's own; give the batch a stamp instead")


def stamped(
    records: Records, stamp: ProducerStamp, *, partitions: int, parts: int, first: int = 0, whole: bool = True
) -> Records:
    """Return a part with its stamp; `first` is the place of its first record if those before it are in the log."""
    who = {PRODUCER: stamp.producer.encode(), _SEQUENCE: b"%d" % stamp.sequence}
    head = who | {_PARTITIONS: b"%d" % partitions, _PARTS: b"%d" % parts, _RECORDS: b"%d" % (first + len(records))}
    headers: list[Headers | None] = [None] * len(records) if records.headers is None else list(records.headers)
    for place in range(1 if whole else len(headers)):
        index = first + place
        headers[place] = dict(headers[place] or {}) | (head if index == 0 else who | {_INDEX: b"%d" % index})
    return Records(records.values, keys=records.keys, headers=headers, timestamps_ms=records.timestamps_ms)


def sightings(batch: Any) -> Iterator[Sighting]:
    """Yield the stamps in a record batch of the log, in order; records without headers are not looked at."""
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return
    offsets = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset : headers.offset + len(headers) + 1]
    names = headers.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    found = np.flatnonzero(pc.equal(names, PRODUCER).to_numpy(zero_copy_only=False)) + int(offsets[0])
    for row in np.unique(np.searchsorted(offsets, found, "right") - 1).tolist():
        sighting = _sighting(dict(headers[row].as_py() or ()), batch.column("offset")[row].as_py())
        if sighting is not None:
            yield sighting


def _sighting(headers: dict[str, bytes], offset: int) -> Sighting | None:
    """Return the stamp, or None for what only looks like one."""
    try:
        producer, sequence = headers[PRODUCER].decode(), int(headers[_SEQUENCE])
        if _INDEX in headers:
            return Sighting(producer, sequence, int(headers[_INDEX]), offset)
        numbers = [int(headers[name]) for name in (_PARTITIONS, _PARTS, _RECORDS)]
        return Sighting(producer, sequence, 0, offset, *numbers)
    except (KeyError, ValueError):
        return None
