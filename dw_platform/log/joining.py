"""Which of the batches that wait together share a frame.

Each batch is wholly in one frame, so it is read wholly or not at all; several small ones in one frame cost one
header, one checksum and one conversion to Arrow instead of many.
"""

from collections.abc import Iterator, Sequence

from dw_platform.log.columns import Body, Columns, Plain
from dw_platform.log.commit import Pending
from dw_platform.log.records import Records, combined

# A frame is read as a whole, so it must not grow without end.
_MOST_RECORDS = 4096
_MOST_BYTES = 1024 * 1024


def joined(group: Sequence[Pending], now_ms: int) -> Iterator[tuple[Sequence[Pending], Body | None]]:
    """Yield the group in order, as frames: their members, and their records (None: there are none)."""
    run = list[Pending]()
    count = size = 0
    for pending in group:
        small = isinstance(pending.records, Records)
        if run and not (small and count + pending.count <= _MOST_RECORDS and size + pending.size <= _MOST_BYTES):
            yield run, _body(run, now_ms)
            run, count, size = [], 0, 0
        if small:
            run.append(pending)
            count, size = count + pending.count, size + pending.size
        else:
            yield [pending], pending.records if isinstance(pending.records, Columns) else None
    if run:
        yield run, _body(run, now_ms)


def _body(run: list[Pending], now_ms: int) -> Body:
    records = combined([pending.records for pending in run if isinstance(pending.records, Records)], now_ms)
    return Plain.of(records) or Columns.of(records)
