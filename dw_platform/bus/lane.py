"""One group's way through one partition, handed from member to member without a message lost or overtaken.

At most one member holds messages of a lane. Another one gets nothing from it until the holder has committed, or has
given back what it held by closing.
"""

import threading
from collections import deque

from dw_platform.bus.contract import GroupReader, PartitionQueue
from dw_platform.bus.message import Delivery


class Lane:
    """Any thread may use it."""

    def __init__(self, queue: PartitionQueue, reader: GroupReader) -> None:
        self._queue, self._reader = queue, reader
        self._lock = threading.Lock()
        self._held: list[Delivery] = []
        self._returned: deque[Delivery] = deque()
        self._holder: object | None = None
        self._closed = False

    def take(self, member: object, max_messages: int) -> list[Delivery]:
        """Return the next messages for `member`, or nothing while another one holds some."""
        with self._lock:
            if self._closed or self._holder not in {None, member}:
                return []
            taken = [self._returned.popleft() for _ in range(min(max_messages, len(self._returned)))]
            taken = taken or self._reader.take(max_messages)
            if taken:
                self._held += taken
                self._holder = member
            return taken

    def commit(self, member: object) -> None:
        """Declare what `member` holds as done."""
        with self._lock:
            if self._holder is member and not self._closed:
                self._reader.commit(self._held[-1].offset + 1)
                self._held, self._holder = [], None

    def release(self, member: object) -> None:
        """Give back what `member` holds, to be taken again first."""
        with self._lock:
            if self._holder is member:
                self._returned.extendleft(reversed(self._held))
                self._held, self._holder = [], None

    @property
    def depth(self) -> int:
        """How many messages are not done yet."""
        return max(self._queue.end - self._reader.committed, 0)

    def close(self, *, forget: bool = False) -> None:
        """End the lane; `forget` gives up its place for good."""
        with self._lock:
            if not self._closed:
                self._closed = True
                end = self._reader.forget if forget else self._reader.close
                end()
