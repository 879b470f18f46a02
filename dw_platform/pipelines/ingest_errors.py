"""What can keep a stream from its table, and what to do about it."""

from collections.abc import Sequence

from dw_platform.foundation import PermanentError, TransientError, UserError
from dw_platform.pipelines.ingest_plan import OffsetRange


class UnknownStreamError(UserError):
    """A name that `streams` does not have."""

    def __init__(self, stream: str, known: Sequence[str]) -> None:
        self.stream, self.known = stream, tuple(known)
        super().__init__(
            f"There is no stream {stream}. Streams of this platform: {', '.join(known) or 'none'}; add it under "
            "`streams` in platform.yaml."
        )


class TopicNotThereError(TransientError):
    """The stream's topic does not exist, yet."""

    def __init__(self, stream: str, topic: str, broker: str) -> None:
        self.stream, self.topic, self.broker = stream, topic, broker
        super().__init__(
            f"{stream}: the {broker} broker has no topic {topic} yet. It is made by the first publisher or by "
            f"`dw topics create {topic}`; if it should be there, correct `topic` or `broker` in platform.yaml."
        )


class RecordsGoneError(PermanentError):
    """A task asked for records that the broker no longer has; the run decides what that means."""

    def __init__(self, partition: int, first: int, next_offset: int, *, expired: bool) -> None:
        self.partition, self.first, self.next_offset, self.expired = partition, first, next_offset, expired
        super().__init__(f"partition {partition}: offsets {first} to {next_offset - 1} are gone from the broker.")


class LostRangesError(PermanentError):
    """Records were gone from the broker before they were ingested; nothing was skipped and nothing moved."""

    def __init__(self, stream: str, topic: str, lost: Sequence[OffsetRange], reason: str) -> None:
        self.stream, self.topic, self.lost, self.reason = stream, topic, tuple(lost), reason
        ranges = "; ".join(map(str, self.lost))
        super().__init__(
            f"{stream}: records of {topic} are gone that were never ingested ({reason}): {ranges}. Nothing was "
            f"skipped. Restore them, or go on without them by `dw ingest {stream} --accept-loss`, which records the "
            "ranges in ops.lost_ranges. A stream that is new to a topic which has expired records begins by "
            f"`dw ingest {stream} --from earliest`."
        )


class PositionBeyondEndError(PermanentError):
    """The table is ahead of the broker, so the topic was made anew or lost its end."""

    def __init__(self, stream: str, topic: str, partition: int, position: int, end: int) -> None:
        self.stream, self.topic, self.partition, self.position, self.end = stream, topic, partition, position, end
        super().__init__(
            f"{stream}: the table has {topic} up to offset {position} of partition {partition}, the broker ends at "
            f"{end}. The topic was made anew or lost its end, and going on would leave its next records out. If the "
            f"topic is the right one, `dw ingest {stream} --from {partition}:{end}` removes the rows from there on "
            "and reads it again; a topic that was made anew should rather get another name."
        )


class TooManyRejectedError(PermanentError):
    """More records of a commit are unreadable than the stream allows; nothing was written and nothing moved."""

    def __init__(self, stream: str, rejected: int, records: int, allowed: float, examples: Sequence[str]) -> None:
        self.stream, self.rejected, self.records, self.allowed = stream, rejected, records, allowed
        self.examples = tuple(examples)
        super().__init__(
            f"{stream}: {rejected:,} of {records:,} records ({rejected / records:.1%}) do not fit `columns`, and "
            f"`max_rejected` allows {allowed:.1%}. Nothing was written. For example {'; '.join(self.examples)}. "
            "Correct `columns` or the producer, or raise `max_rejected` to send them to the rejected table."
        )
