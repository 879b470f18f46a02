"""The address of one partition: topic, version of its partition map, index."""

from collections.abc import Iterable
from typing import NamedTuple

from dw_platform.bus.message import Delivery, Message
from dw_platform.foundation import fnv1a_64

# A name has at most 200 characters; the rest is for a hash of the topic, the version and the partition.
_LONGEST_STEM = 150


class Spot(NamedTuple):
    """Where a message is."""

    topic: str
    version: int
    partition: int

    @property
    def name(self) -> str:
        """The partition's own name, valid where topics' names are; two spots never share one."""
        topic = self.topic
        if len(topic) > _LONGEST_STEM:
            topic = f"{topic[:_LONGEST_STEM]}-{fnv1a_64(topic.encode()):016x}"
        return f"{topic}.v{self.version}.p{self.partition}"

    def deliver(self, first_offset: int, messages: Iterable[Message]) -> list[Delivery]:
        """Return `messages` as they are delivered from here, with consecutive offsets."""
        topic, version, partition = self
        return [Delivery(topic, version, partition, offset, m) for offset, m in enumerate(messages, first_offset)]
