"""`ops.lost_ranges`: which records a stream went on without, and why; each range once.

A range is recorded before the stream moves past it. The position of the record is committed with it, so a crash in
between records it neither twice nor never. Records that expire while the stream waits extend the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from dw_platform.lake.commit import PositionConflictError
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.snapshot import Snapshot
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import PositionNames

LOST_TABLE = "ops.lost_ranges"
EXPIRED = "expired"
CRASHED = "lost in a crash of the broker"
SKIPPED = "skipped by operator"

_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets that a stream went on without."""

    range: OffsetRange
    reason: str


def record_lost(
    platform: Platform, names: PositionNames, generation: int, lost: Sequence[LostRange]
) -> tuple[LostRange, ...]:
    """Record what is not recorded yet, and return that; two runs at once record it once."""
    while True:
        snapshot = _snapshot(platform)
        new = [each for entry in lost if (each := _unrecorded(entry, snapshot, names, generation))]
        if not new:
            return ()
        positions = {names.lost(entry.range.partition, generation): entry.range.next for entry in new}
        rows = pa.Table.from_pylist([_row(names, entry, platform.clock.now()) for entry in new], schema=_SCHEMA)
        try:
            platform.lake.table(LOST_TABLE).append(rows, positions=positions, snapshot=snapshot)
        except PositionConflictError:
            continue
        return tuple(new)


def _snapshot(platform: Platform) -> Snapshot:
    table = platform.lake.table(LOST_TABLE)
    try:
        return table.snapshot()
    except TableMissingError:
        return table.create(_SCHEMA, description="Records that a stream went on without, and why.")


def _unrecorded(entry: LostRange, snapshot: Snapshot, names: PositionNames, generation: int) -> LostRange | None:
    part = entry.range
    recorded = snapshot.position(names.lost(part.partition, generation)) or 0
    if recorded >= part.next:
        return None
    return LostRange(OffsetRange(part.partition, max(part.first, recorded), part.next), entry.reason)


def _row(names: PositionNames, entry: LostRange, at: datetime) -> Mapping[str, object]:
    return {
        "stream": names.stream,
        "topic": names.topic,
        "partition": entry.range.partition,
        "first_offset": entry.range.first,
        "next_offset": entry.range.next,
        "reason": entry.reason,
        "at": at,
    }
