"""One version of a topic's partition map: its queues, and who still writes to them.

A topic that is repartitioned or gets other rings begins a new generation, to which publishers write at once. A group
reads the new one only after it has done everything in the old one, so messages of a key that moved keep their order.
"""

from collections.abc import Sequence
from functools import lru_cache

from dw_platform.bus.contract import PartitionQueue
from dw_platform.bus.message import Message
from dw_platform.foundation import fnv1a_64

# Busy keys come again and again; hashing one in Python costs more than everything else on the way.
_hash = lru_cache(maxsize=8_192)(fnv1a_64)


class Generation:
    """The topic's lock guards everything here except the queues themselves."""

    def __init__(self, version: int, queues: Sequence[PartitionQueue]) -> None:
        self.version, self.queues = version, tuple(queues)
        self.retired = False
        self.writers = 0
        """Publishers that have chosen this generation and are not done; until they are, more may arrive."""
        self._next_unkeyed = 0

    def split(self, messages: Sequence[Message]) -> dict[int, list[Message]]:
        """Return the messages by partition, in order: FNV-1a of the key, in turn without one."""
        count = len(self.queues)
        parts: dict[int, list[Message]] = {}
        for message in messages:
            if message.key is None:
                partition = self._next_unkeyed
                self._next_unkeyed = (partition + 1) % count
            else:
                partition = _hash(message.key) % count
            parts.setdefault(partition, []).append(message)
        return parts

    @property
    def settled(self) -> bool:
        """Whether nothing can arrive any more."""
        return self.retired and self.writers == 0
