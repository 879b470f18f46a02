"""Where a stream's positions are kept: `txn` actions of its own tables, one for each partition of its topic.

* The table has `STREAM/GROUP/TOPIC/PARTITION`: the next offset to read. It is the truth about what was ingested.
* It also has `STREAM/GROUP/TOPIC/resets`: how often somebody moved the stream, and `.../generation`: how often back.
  What was written before the stream was set back says nothing about what is read after it, so the positions of the
  other tables carry this number.
* The rejected table has `.../PARTITION/GENERATION-COLUMNS`: up to where bad records were written. It is committed
  before the table; a run that reads the same records again after a crash does not write them twice. COLUMNS is a
  hash of the declared columns, because under others different records are bad.
* `ops.lost_ranges` has `.../PARTITION/GENERATION`: up to where losses were recorded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from dw_platform.config import StreamSection
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.snapshot import Snapshot
from dw_platform.pipelines.platform import Platform
from dw_platform.streaming import ingest_group


@dataclass(frozen=True, slots=True)
class PositionNames:
    """The application ids of one stream."""

    stream: str
    topic: str
    columns: str = ""
    """Hash of the declared columns."""

    @classmethod
    def of(cls, stream: StreamSection) -> "PositionNames":
        """Return the names that belong to a stream as it is configured now."""
        declared = repr(list(stream.columns.items())).encode()
        return cls(stream.name, stream.topic_name, blake2b(declared, digest_size=4).hexdigest())

    @property
    def resets(self) -> str:
        """Counts how often somebody moved the stream, forwards or back."""
        return f"{self._topic}/resets"

    @property
    def generation(self) -> str:
        """Counts how often the stream was set back."""
        return f"{self._topic}/generation"

    def partition(self, partition: int) -> str:
        """Where the table reads next."""
        return f"{self._topic}/{partition}"

    def rejected(self, partition: int, generation: int) -> str:
        """Up to where bad records were written to the rejected table."""
        return f"{self._topic}/{partition}/{generation}-{self.columns}"

    def lost(self, partition: int, generation: int) -> str:
        """Up to where losses were recorded."""
        return f"{self._topic}/{partition}/{generation}"

    @property
    def _topic(self) -> str:
        return f"{self.stream}/{ingest_group(self.stream)}/{self.topic}"


def read_positions(snapshot: Snapshot, names: PositionNames, partitions: Iterable[int]) -> dict[int, int]:
    """Return where each partition is read next; one that was never read has no entry."""
    found = {partition: snapshot.position(names.partition(partition)) for partition in partitions}
    return {partition: position for partition, position in found.items() if position is not None}


def read_generation(snapshot: Snapshot, names: PositionNames) -> int:
    """Return how often the stream was set back."""
    return snapshot.position(names.generation) or 0


def table_positions(platform: Platform, stream: StreamSection, partitions: Iterable[int]) -> dict[int, int]:
    """Return where the stream's table reads next; nothing if there is no table yet. No JVM."""
    try:
        snapshot = platform.lake.table(stream.table).snapshot()
    except TableMissingError:
        return {}
    return read_positions(snapshot, PositionNames.of(stream), partitions)
