"""Where durable topics are: a topic of the log, and the history of its partition map in the control store.

    dw://internal/bus/map/{topic}    {"generations": [{"version": 1, "partitions": 2, "starts": [0, 0]}, ...]}

All generations share the log's partitions. One begins in each partition where the one before it ends, and that is
written down before the first message is routed by it; so after a crash the order within a key is still known. The log
never has fewer partitions than before; a smaller generation uses the first of them.
"""

import contextlib
import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dw_platform.bus.generation import Generation
from dw_platform.bus.home import Layout
from dw_platform.bus.message import Message
from dw_platform.bus.private import is_private
from dw_platform.bus.spot import Spot
from dw_platform.bus.wal import Bounds, WalMessageQueue, WalReader
from dw_platform.log import AppendResult, CorruptTopicError, Log, LogPolicy, SubscriberOffsets, UnknownTopicError
from dw_platform.store import PersistentStore, internal_key


@dataclass(frozen=True, slots=True)
class LogStorage:
    """What durable topics are kept in."""

    directory: Path
    """Of the log; one folder a topic."""

    store: PersistentStore
    """For the groups' places and the partition maps."""

    policy: LogPolicy = field(default_factory=LogPolicy)
    """How the log of a new topic is kept; a topic that exists keeps its own."""


class WalSlice:
    """The part of a partition's log that belongs to one generation: a PartitionQueue."""

    def __init__(self, queue: WalMessageQueue, version: int, bounds: Bounds) -> None:
        self.queue, self.bounds = queue, bounds
        self._spot = Spot(queue.topic, version, queue.partition)

    def put(self, messages: Sequence[Message]) -> "Future[AppendResult]":
        return self.queue.put(messages)

    def reader(self, group: str) -> WalReader:
        return WalReader(self.queue, group, self._spot, self.bounds)

    @property
    def end(self) -> int:
        return self.queue.end if self.bounds.stop is None else self.bounds.stop

    def metrics(self) -> dict[str, float]:
        return self.queue.metrics()


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a generation begins in every partition that the log had then; it uses the first `partitions` of them."""

    version: int
    partitions: int
    starts: tuple[int, ...]


class DurableHome:
    """The partitions of one topic in the log."""

    durable = True

    def __init__(self, topic: str, storage: LogStorage) -> None:
        self._topic, self._storage = topic, storage
        self._log, self._offsets = Log(storage.directory), SubscriberOffsets(storage.store)
        self._key = internal_key("bus", "map", topic)
        self._queues: list[WalMessageQueue] = []
        self._cuts: list[_Cut] = []
        self._slices: dict[int, list[WalSlice]] = {}

    def open(self, layout: Layout) -> list[Generation]:
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            self._open_queues(self._partitions_of_log(layout.partitions))
            self._cuts = self._load() or self._first_cut()
            generations = [
                self._generation(cut, after) for cut, after in zip(self._cuts, [*self._cuts[1:], None], strict=True)
            ]
            on_failure.pop_all()
        return generations

    def _first_cut(self) -> list[_Cut]:
        # Saved before the first message, because a log that is growing when the process dies no longer shows it.
        cuts = [_Cut(1, len(self._queues), (0,) * len(self._queues))]
        self._save(cuts)
        return cuts

    def _partitions_of_log(self, wanted: int) -> int:
        try:
            return self._log.describe(self._topic).partitions
        except UnknownTopicError:
            return self._log.create_topic(self._topic, partitions=wanted, policy=self._storage.policy).partitions

    def _open_queues(self, count: int) -> None:
        for partition in range(len(self._queues), count):
            self._queues.append(WalMessageQueue(self._log, self._offsets, self._topic, partition))

    def _generation(self, cut: _Cut, after: _Cut | None) -> Generation:
        stops = after.starts if after else (None,) * cut.partitions
        slices = [
            WalSlice(self._queues[index], cut.version, Bounds(cut.starts[index], stops[index]))
            for index in range(cut.partitions)
        ]
        self._slices[cut.version] = slices
        generation = Generation(cut.version, slices)
        generation.retired = after is not None
        return generation

    def create(self, version: int, layout: Layout) -> Generation:
        """Cut the log here; nobody writes meanwhile."""
        if layout.partitions > len(self._queues):
            self._log.grow(self._topic, layout.partitions)
            self._open_queues(layout.partitions)
        cut = _Cut(version, layout.partitions, tuple(queue.end for queue in self._queues))
        self._save([*self._cuts, cut])
        for part in self._slices[self._cuts[-1].version]:
            part.bounds.stop = part.queue.end
        self._cuts.append(cut)
        return self._generation(cut, None)

    def finished(self, generation: Generation) -> bool:
        """Only retention ends a part of the log, because a new group begins with the oldest message."""
        bounds = [(part.queue.start, part.bounds.stop) for part in self._slices[generation.version]]
        return all(stop is not None and start >= stop for start, stop in bounds)

    def discard(self, generation: Generation) -> None:
        kept = [cut for cut in self._cuts if cut.version != generation.version]
        self._save(kept)
        self._cuts = kept
        del self._slices[generation.version]

    def forget_group(self, group: str) -> None:
        if not is_private(group):
            self._offsets.forget(self._topic, group)

    def maintain(self) -> None:
        for queue in self._queues:
            queue.maintain()

    def close(self) -> None:
        for queue in self._queues:
            queue.close()

    def _load(self) -> list[_Cut]:
        entry = self._storage.store.get(self._key)
        try:
            cuts = json.loads(entry.value)["generations"] if entry else []
            return [_Cut(int(cut["version"]), int(cut["partitions"]), tuple(map(int, cut["starts"]))) for cut in cuts]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTopicError(self._key, f"it holds no partition map ({error})") from error

    def _save(self, cuts: list[_Cut]) -> None:
        self._storage.store.put(self._key, json.dumps({"generations": [asdict(cut) for cut in cuts]}).encode())
