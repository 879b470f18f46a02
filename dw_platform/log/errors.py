"""What can go wrong with a log, and whether waiting helps."""

from dw_platform.foundation import PermanentError, TransientError, UserError, format_bytes


class InvalidNameError(UserError):
    """A topic or group name that cannot be a folder's name on every system."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        self.kind, self.name, self.reason = kind, name, reason
        super().__init__(
            f"{name[:80]!r} cannot be the name of a {kind}: {reason}. "
            f"Use up to 200 letters, digits, '.', '_' and '-', beginning with a letter or digit."
        )


class TopicExistsError(UserError):
    """A topic of that name is there already; nothing was changed."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"The topic {topic} exists. Use it, or delete it first.")


class UnknownTopicError(UserError):
    """There is no topic of that name."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"There is no topic {topic}. Create it first.")


class UnknownPartitionError(UserError):
    """The topic has fewer partitions than that."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        self.topic, self.partition, self.partitions = topic, partition, partitions
        super().__init__(f"{topic} has the partitions 0 to {partitions - 1}, not {partition}.")


class CorruptTopicError(PermanentError):
    """A topic's description cannot be read; its records are untouched."""

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(
            f"{file} does not describe a topic: {reason}. Restore it from a backup; the records are intact."
        )


class RecordTooLargeError(UserError):
    """A record or a batch is larger than the log takes; nothing of its batch was written."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(
            f"The {what} has {format_bytes(size)}, the log takes {format_bytes(limit)}. "
            f"Publish smaller ones, or store the content elsewhere and publish its address."
        )


class InvalidRecordsError(UserError):
    """A batch whose parts do not fit together; nothing of it was written."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The records cannot be appended: {reason}.")


class PartitionLockedError(TransientError):
    """Another writer has the partition; a log has one at a time."""

    def __init__(self, partition: str, holder: str) -> None:
        self.partition, self.holder = partition, holder
        super().__init__(
            f"{partition} is being written by {holder}. Publish through that process, or stop it first; "
            f"the lock ends with its process, so there is nothing to remove by hand."
        )


class PartitionStoppedError(PermanentError):
    """The disk failed in the middle of a write; what was not acknowledged may or may not be there."""

    def __init__(self, partition: str, reason: str) -> None:
        self.partition, self.reason = partition, reason
        super().__init__(
            f"{partition} has stopped: {reason}. Nothing was acknowledged since. Make sure that the disk is healthy "
            f"and has free space, then open the partition again, which checks what is there."
        )


class PartitionClosedError(PermanentError):
    """Somebody used a partition after closing it."""

    def __init__(self, partition: str) -> None:
        self.partition = partition
        super().__init__(f"{partition} is closed. Open it again to go on.")


class MaintenanceFailedError(TransientError):
    """Retention or compaction did not finish; no record was lost and appending goes on."""

    def __init__(self, partition: str, what: str, reason: str) -> None:
        self.partition, self.what, self.reason = partition, what, reason
        super().__init__(f"The {what} of {partition} did not finish: {reason}. It is tried again the next time.")


class CorruptSegmentError(PermanentError):
    """Records that had been promised are damaged; nothing was changed or skipped."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        self.file, self.position, self.reason = file, position, reason
        super().__init__(
            f"{file} is damaged at byte {position}: {reason}. Restore the file from a backup; "
            f"going on without it would silently lose acknowledged records."
        )


class OffsetOutOfRangeError(UserError):
    """A reader asked for an offset that no record ever had."""

    def __init__(self, partition: str, requested: int, end: int) -> None:
        self.partition, self.requested, self.end = partition, requested, end
        super().__init__(f"{partition} has no offset {requested}. Ask for one from 0 to {end}, the next to be written.")


class RecordsExpiredError(PermanentError):
    """A reader asked for records that retention has already removed."""

    def __init__(self, partition: str, requested: int, earliest: int) -> None:
        self.partition, self.requested, self.earliest = partition, requested, earliest
        super().__init__(
            f"{partition}: offsets {requested}..{earliest - 1} {self._fate}. "
            f"Seek to {earliest} to accept the gap, or restore them from a backup."
        )

    _fate = "expired before they were read"


class RecordsLostError(RecordsExpiredError):
    """A reader asked for records that a crash has taken; recovery reported them, and their offsets stay unused."""

    _fate = "were acknowledged but did not survive a crash of the machine or damage to the last file"
