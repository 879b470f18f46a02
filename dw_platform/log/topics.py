"""Topics with their partitions, in one directory.

    {root}/{topic}/topic.json    how many partitions, which version of the map, the policy; replaced atomically
    {root}/{topic}/{number}/     one partition each, see layout.py
    {root}/lock                  held while a topic is made, changed or removed

The number of partitions only grows. Each growth is a new version of the partition map, so that whoever assigns keys
to partitions can tell which map a decision was made with. Nothing is remembered here between two calls.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dw_platform.foundation import Clock, InvalidValueError, SystemClock
from dw_platform.log.description import TopicDescription, decode_topic, encode_topic
from dw_platform.log.disk import DirectoryLockedError, Disk, Lock, read_all
from dw_platform.log.disk import replace as replace_file
from dw_platform.log.errors import (
    CorruptTopicError,
    PartitionLockedError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.log.file_disk import FileDisk
from dw_platform.log.names import check_name
from dw_platform.log.partition import PartitionLog
from dw_platform.log.policy import LogPolicy
from dw_platform.log.reader import PartitionReader
from dw_platform.log.segment import base_of
from dw_platform.log.verify import Finding, verify

TOPIC_FILE = "topic.json"
MOST_PARTITIONS = 10_000
# Making a topic takes milliseconds; who holds the lock for longer is stuck.
_LOCK_TIMEOUT_S = 10.0
_LOCK_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """What verifying a topic found in one of its partitions."""

    partition: int
    finding: Finding


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """What a partition takes on disk."""

    segments: int
    bytes: int


class Log:
    """The topics below `root` of `disk`; any number of processes may use it at once."""

    def __init__(self, root: str | Path, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self._root, self._clock, self._disk = str(root), clock or SystemClock(), disk or FileDisk()

    def create_topic(self, topic: str, *, partitions: int = 1, policy: LogPolicy | None = None) -> TopicDescription:
        """Make a topic; raise TopicExistsError if there is one of that name."""
        check_name("topic", topic)
        _check_partitions(partitions)
        description = TopicDescription(topic, 1, partitions, policy or LogPolicy())
        with self._locked():
            if self._find(topic) is not None:
                raise TopicExistsError(topic)
            self._store(description)
        return description

    def topics(self) -> list[TopicDescription]:
        """Return all topics, in the order of their names."""
        names = self._disk.directories(self._root)
        return [found for name in names if (found := self._find(name)) is not None]

    def describe(self, topic: str) -> TopicDescription:
        """Return the topic; raise UnknownTopicError if there is none."""
        check_name("topic", topic)
        found = self._find(topic)
        if found is None:
            raise UnknownTopicError(topic)
        return found

    def grow(self, topic: str, partitions: int) -> TopicDescription:
        """Give the topic `partitions` partitions and its map a new version; the same number changes nothing.

        Records stay where they are. Keys may belong to other partitions from now on, so whoever publishes must
        first let consumers drain what is there if order within a key has to hold.
        """
        _check_partitions(partitions)
        with self._locked():
            current = self.describe(topic)
            if partitions < current.partitions:
                raise InvalidValueError(
                    "partitions", partitions, f"at least {current.partitions}, as there are records"
                )
            if partitions == current.partitions:
                return current
            grown = replace(current, version=current.version + 1, partitions=partitions)
            self._store(grown)
            return grown

    def set_policy(self, topic: str, policy: LogPolicy) -> TopicDescription:
        """Store another policy; a partition that is open keeps its own until it is opened again."""
        with self._locked():
            changed = replace(self.describe(topic), policy=policy)
            self._store(changed)
            return changed

    def delete_topic(self, topic: str, *, first: Callable[[], None] = lambda: None) -> None:
        """Remove the topic and its records; raise PartitionLockedError while one of its partitions has a writer.

        `first` is called once nobody can write any more, before anything goes: for what others keep about the topic,
        because a topic of that name that is made later must not find it.
        """
        with self._locked(), contextlib.ExitStack() as held:
            description = self.describe(topic)
            for partition in range(description.partitions):
                directory = self._directory(topic, partition)
                with contextlib.suppress(FileNotFoundError):
                    held.callback(self._lock(directory).release)
            first()
            # The description first: what a crash leaves behind is then no topic, and a new one of that name is empty.
            self._disk.remove(self._join(topic), TOPIC_FILE)
            self._disk.sync_directory(self._join(topic))
            self._disk.remove_directory(self._join(topic))

    def writer(self, topic: str, partition: int) -> PartitionLog:
        """Return the partition's writer, as PartitionLog.open does."""
        description = self._checked(topic, partition)
        return PartitionLog.open(
            self._directory(topic, partition), description.policy, clock=self._clock, disk=self._disk
        )

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """Return a new reader of the partition; nothing needs to have been written."""
        self._checked(topic, partition)
        return PartitionReader(self._directory(topic, partition), disk=self._disk)

    def verify(self, topic: str) -> list[TopicFinding]:
        """Check every byte of every partition and return what is not as it should be."""
        return [
            TopicFinding(partition, finding)
            for partition in range(self.describe(topic).partitions)
            for finding in self.verify_partition(topic, partition)
        ]

    def verify_partition(self, topic: str, partition: int) -> list[Finding]:
        """Check every byte of one partition and return what is not as it should be."""
        self._checked(topic, partition)
        return verify(self._directory(topic, partition), disk=self._disk)

    def files(self, topic: str, partition: int) -> PartitionFiles:
        """Return how many files a partition has and how large they are, without opening any of them."""
        self._checked(topic, partition)
        try:
            sizes = self._disk.list(self._directory(topic, partition))
        except FileNotFoundError:  # nobody has written yet
            sizes = {}
        segments = [size for name, size in sizes.items() if base_of(name) is not None]
        return PartitionFiles(len(segments), sum(segments))

    def _checked(self, topic: str, partition: int) -> TopicDescription:
        description = self.describe(topic)
        if not 0 <= partition < description.partitions:
            raise UnknownPartitionError(topic, partition, description.partitions)
        return description

    def _find(self, topic: str) -> TopicDescription | None:
        content = read_all(self._disk, self._join(topic), TOPIC_FILE)
        if content is None:
            return None
        try:
            return decode_topic(topic, content)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTopicError(f"{self._join(topic)}/{TOPIC_FILE}", str(error)) from error

    def _store(self, description: TopicDescription) -> None:
        directory = self._join(description.name)
        if self._find(description.name) is None:
            self._disk.remove_directory(directory)  # what a deletion that crashed has left
        self._disk.make_directory(directory)
        replace_file(self._disk, directory, TOPIC_FILE, encode_topic(description))

    def _join(self, topic: str) -> str:
        return f"{self._root}/{topic}"

    def _directory(self, topic: str, partition: int) -> str:
        return f"{self._root}/{topic}/{partition:05}"

    def _lock(self, directory: str) -> Lock:
        try:
            return self._disk.lock(directory)
        except DirectoryLockedError as error:
            raise PartitionLockedError(directory, error.holder) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._disk.make_directory(self._root)
        deadline = self._clock.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                lock = self._disk.lock(self._root)
                break
            except DirectoryLockedError as error:
                if self._clock.monotonic() >= deadline:
                    raise PartitionLockedError(self._root, error.holder) from error
                self._clock.wait(threading.Event(), _LOCK_PAUSE_S)
        try:
            yield
        finally:
            lock.release()


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidValueError("partitions", partitions, f"from 1 to {MOST_PARTITIONS}")
