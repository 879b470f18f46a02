"""How much waits for its reports: publishers beyond that wait for room instead of filling the memory."""

import threading

from dw_platform.log import PartitionClosedError

# The library's own limits are higher: it would refuse a record that does not fit and take the next, smaller one.
MOST_RECORDS, MOST_BYTES = 500_000, 128 << 20


class Room:
    """Counts records and bytes; a chunk larger than all of it passes when nothing else is there."""

    def __init__(self, most_records: int = MOST_RECORDS, most_bytes: int = MOST_BYTES) -> None:
        self._most_records, self._most_bytes = most_records, most_bytes
        self._records = self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, topic: str, records: int, size: int) -> None:
        """Wait until there is room; raise PartitionClosedError once nobody may publish any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fits(records, size))
            if self._closed:
                raise PartitionClosedError(topic)
            self._records += records
            self._bytes += size

    def release(self, records: int, size: int) -> None:
        """Give room back."""
        with self._changed:
            self._records -= records
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, records: int, size: int) -> bool:
        if not self._records:
            return True
        return self._records + records <= self._most_records and self._bytes + size <= self._most_bytes
