"""Why a topic cannot be made, grown, checked, maintained or deleted here, and where it can."""

from dw_platform.foundation import TransientError, UserError


class NotTheOwnLogError(UserError):
    """The topic is kept by a broker that looks after it itself."""

    def __init__(self, what: str, topic: str, kind: str) -> None:
        self.what, self.topic, self.kind = what, topic, kind
        super().__init__(
            f"`dw topics {what}` is for the platform's own log, and {topic} is kept by {kind}. Use {kind}'s own tools."
        )


class NoOwnLogError(UserError):
    """Nothing in the file uses the platform's own log."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"`dw topics {what}` is for the platform's own log, and nothing in platform.yaml uses it; the brokers that "
            "it names look after their topics themselves."
        )


class TopicOfBusError(UserError):
    """The bus makes its topics itself, because it keeps their partition maps, too."""

    def __init__(self, topic: str, what: str) -> None:
        self.topic, self.what = topic, what
        super().__init__(
            f"{topic} is a topic of the bus, which makes it when it is first used. To {what} it, set its `partitions` "
            "under `bus.topics` in platform.yaml."
        )


class PartitionsDifferError(UserError):
    """The command asks for another number of partitions than the stream's entry in the file."""

    def __init__(self, topic: str, asked: int, stream: str, configured: int) -> None:
        self.topic, self.asked, self.stream, self.configured = topic, asked, stream, configured
        super().__init__(
            f"{topic} belongs to the stream {stream}, which has `partitions: {configured}` in platform.yaml, and not "
            f"{asked}. Change the file, or leave --partitions out."
        )


class HeldByWriterError(TransientError):
    """Another process publishes to the topic and looks after it meanwhile."""

    def __init__(self, what: str, topic: str, holder: str, *, advice: str) -> None:
        self.what, self.topic, self.holder = what, topic, holder
        super().__init__(f"{topic} cannot be {what} here, because {holder} publishes to it. {advice}")
