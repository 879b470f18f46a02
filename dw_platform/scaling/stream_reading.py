"""What a decision about a stream looks at: how far each partition is written and read, and by how many consumers.

Two numbers a partition, which every broker has and every table's own positions give. Nothing is asked of the
consumers, and no record is opened to learn its age: rates and ages follow from two readings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dw_platform.foundation import InvalidValueError


class ReadOffsets(Protocol):
    """One partition of a topic, for one reader."""

    @property
    def position(self) -> int:
        """Where it reads next."""

    @property
    def end(self) -> int:
        """Where the next record will be written."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The plain form of ReadOffsets."""

    position: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReading:
    """One look at a stream."""

    at: datetime
    partitions: Mapping[int, ReadOffsets]
    consumers: int
    """That read now; those that are still starting do not."""

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise InvalidValueError("at", self.at, "a time with a zone")
        if self.consumers < 0:
            raise InvalidValueError("consumers", self.consumers, "not negative")

    @property
    def lag(self) -> int:
        """Records that wait, in all partitions."""
        return sum(max(0, offsets.end - offsets.position) for offsets in self.partitions.values())
