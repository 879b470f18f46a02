"""What can go wrong with streams besides what the log already names, and whether waiting helps."""

from dw_platform.foundation import PermanentError, TransientError


class BrokerUnavailableError(TransientError):
    """The broker does not answer, or cannot do now what was asked; nothing that was acknowledged is affected."""

    def __init__(self, kind: str, address: str, reason: str) -> None:
        self.kind, self.address, self.reason = kind, address, reason
        super().__init__(
            f"The {kind} broker at {address} is not available: {reason}. Check that it runs and that `broker.address` "
            "in platform.yaml is right; what was not acknowledged has to be published again."
        )


class BrokerAccessError(PermanentError):
    """The broker answers and refuses: who asks is not known to it, or may not do this."""

    def __init__(self, kind: str, address: str, reason: str) -> None:
        self.kind, self.address, self.reason = kind, address, reason
        super().__init__(
            f"The {kind} broker at {address} refuses: {reason}. Check `broker.username`, `broker.password` and "
            "`broker.options` in platform.yaml, and what that user may do at the broker."
        )


class DamagedRecordsError(PermanentError):
    """Records that the broker holds cannot be read; nothing was skipped."""

    def __init__(self, partition: str, offset: int, reason: str) -> None:
        self.partition, self.offset, self.reason = partition, offset, reason
        super().__init__(
            f"{partition}: the records from offset {offset} on are damaged: {reason}. Let the broker restore them from "
            "a replica; going on behind them would lose them silently."
        )


class UnsupportedByBrokerError(PermanentError):
    """This kind of broker has no such ability."""

    def __init__(self, kind: str, what: str) -> None:
        self.kind, self.what = kind, what
        super().__init__(f"A {kind} broker cannot {what}. Choose another broker for this stream, or do without it.")


class StreamRejectedError(TransientError):
    """A stream under pressure refused records; none of them was taken."""

    def __init__(self, topic: str, occupancy: float, retry_after_s: float) -> None:
        self.topic, self.occupancy, self.retry_after_s = topic, occupancy, retry_after_s
        super().__init__(
            f"{topic} is {occupancy:.0%} full and takes nothing for now. Publish again in {retry_after_s:g} s."
        )


class PublishTimedOutError(TransientError):
    """A publisher waited for room as long as it wanted to; none of its records was taken."""

    def __init__(self, topic: str, waited_s: float) -> None:
        self.topic, self.waited_s = topic, waited_s
        super().__init__(f"{topic} had no room for {waited_s:g} s. Nothing was published; try again later.")


class SequenceGapError(PermanentError):
    """An idempotent producer skipped a sequence number, so an earlier batch of its own is missing."""

    def __init__(self, topic: str, producer: str, expected: int, given: int) -> None:
        self.topic, self.producer, self.expected, self.given = topic, producer, expected, given
        super().__init__(
            f"{topic}: producer {producer} sent sequence {given}, {expected} comes next. Send the missing batch first, "
            "or begin again with a new producer id."
        )


class GroupFencedError(TransientError):
    """A member of a group was away for too long and its partitions have been given to others."""

    def __init__(self, topic: str, group: str, member: str) -> None:
        self.topic, self.group, self.member = topic, group, member
        super().__init__(
            f"{member} was silent for too long, so the group {group} of {topic} goes on without it. Subscribe again; "
            "what it had not committed is read by others."
        )


class StreamsClosedError(PermanentError):
    """Somebody published or read after the streams were closed; nothing was taken."""

    def __init__(self) -> None:
        super().__init__("The streams of this process are closed. Open them again to go on.")


class SubscriptionFailedError(PermanentError):
    """Reading failed in a way that nobody foresaw; what was not committed is not lost."""

    def __init__(self, topic: str, group: str, reason: str) -> None:
        self.topic, self.group, self.reason = topic, group, reason
        super().__init__(
            f"The subscription of {group} to {topic} has failed: {reason}. Subscribe again to go on at the last commit."
        )
