"""What can go wrong with the bus, and whether waiting helps."""

from dw_platform.foundation import PermanentError, TransientError, UserError, format_bytes


class BusClosedError(PermanentError):
    """Somebody used a bus after closing it; nothing was published."""

    def __init__(self) -> None:
        super().__init__("The message bus is closed. Open another one to go on.")


class SubscriptionClosedError(PermanentError):
    """Somebody read from a subscription that has ended."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(f"The subscription of {group} to {topic} is closed. Subscribe again to go on.")


class PublishRejectedError(TransientError):
    """The bus is too full for what can be refused; nothing was published."""

    def __init__(self, topic: str, occupancy: float, retry_after_s: float) -> None:
        self.topic, self.occupancy, self.retry_after_s = topic, occupancy, retry_after_s
        super().__init__(
            f"{topic}: the message bus is {occupancy:.0%} full and sheds load. Try again in {retry_after_s:g} s, "
            f"or declare the topic critical if it must never be refused."
        )


class MessageTooLargeError(UserError):
    """A message is larger than the bus takes; nothing of its batch was published."""

    def __init__(self, topic: str, size: int, limit: int) -> None:
        self.topic, self.size, self.limit = topic, size, limit
        super().__init__(
            f"{topic}: a message has {format_bytes(size)}, the bus takes {format_bytes(limit)}. "
            f"Publish smaller ones, or store the content elsewhere and publish its address."
        )


class InvalidMessageError(UserError):
    """A message that its topic cannot carry; nothing of its batch was published."""

    def __init__(self, topic: str, reason: str) -> None:
        self.topic, self.reason = topic, reason
        super().__init__(f"{topic}: the message cannot be published: {reason}.")


class TooManyTopicsError(UserError):
    """The bus has as many topics as it may have; nothing was created."""

    def __init__(self, topic: str, limit: int) -> None:
        self.topic, self.limit = topic, limit
        super().__init__(
            f"{topic} would be more than the {limit} topics allowed. Use an existing one or raise max_topics."
        )


class TooManySubscribersError(UserError):
    """The topic has as many subscribers as it may have; nobody was added."""

    def __init__(self, topic: str, limit: int) -> None:
        self.topic, self.limit = topic, limit
        super().__init__(f"{topic} has the {limit} subscribers allowed. Close one or raise max_subscribers_per_topic.")


class TopicDeclaredError(UserError):
    """The topic is there already with other options; nothing was changed."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"{topic} exists with other options. Declare it before it is first used, and once.")
