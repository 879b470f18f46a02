"""The topics of a bus: created when first used, with the options that were declared and the limits in force."""

import threading
from collections.abc import Mapping
from dataclasses import replace

from dw_platform.bus.contract import MessageBus
from dw_platform.bus.durable import DurableHome, LogStorage
from dw_platform.bus.errors import BusClosedError, TooManyTopicsError, TopicDeclaredError
from dw_platform.bus.home import Layout, MemoryHome, TopicHome
from dw_platform.bus.limits import BusLimits, TopicOptions
from dw_platform.bus.topic import Topic
from dw_platform.foundation import InvalidValueError
from dw_platform.log.names import check_name

_PLAIN = TopicOptions()


def layout_for(options: TopicOptions, limits: BusLimits, *, members: int, current: int = 1) -> Layout:
    """Return how a topic's partitions should be made.

    Where subscribers decide, there is a power of two of partitions that gives each of the `members` one: doubling
    keeps re-mapping rare. Their number never shrinks by itself, because somebody who leaves often comes back.
    """
    by_members = max(current, 1 << max(members - 1, 0).bit_length())
    asked = limits.partitions or by_members
    if options.durable:  # its log has that many partitions already, perhaps since before this process
        asked = max(asked, current)
    return Layout(options.partitions or asked, limits.ring_size if options.hot else None)


class TopicCatalogue:
    """Any thread may use it."""

    def __init__(
        self,
        inner: MessageBus,
        limits: BusLimits,
        declared: Mapping[str, TopicOptions],
        storage: LogStorage | None,
    ) -> None:
        self._inner, self._limits, self._storage = inner, limits, storage
        self._lock = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._options: dict[str, TopicOptions] = {}
        self._closed = False
        for name, options in declared.items():
            self.declare(name, options)

    @property
    def limits(self) -> BusLimits:
        """The limits in force."""
        return self._limits

    def all(self) -> tuple[Topic, ...]:
        """Return every topic that was used."""
        with self._lock:
            return tuple(self._topics.values())

    def declare(self, name: str, options: TopicOptions) -> None:
        """Give a topic its options before it is first used."""
        check_name("topic", name)
        if options.durable and self._storage is None:
            raise InvalidValueError("durable", options.durable, "only on a bus that has a log storage")
        with self._lock:
            present = self._options.get(name, _PLAIN if name in self._topics else options)
            if present != options:
                raise TopicDeclaredError(name)
            self._options[name] = options

    def options(self, name: str) -> TopicOptions:
        """Return the options of a topic, declared or not."""
        return self._options.get(name, _PLAIN)

    def opened(self, name: str) -> bool:
        """Return whether the topic was used already."""
        return name in self._topics

    def get(self, name: str) -> Topic:
        """Return the topic; the first use creates it, or opens its log."""
        found = self._topics.get(name)
        if found is not None and not self._closed:
            return found
        check_name("topic", name)
        with self._lock:
            if self._closed:
                raise BusClosedError
            if name not in self._topics:
                if len(self._topics) >= self._limits.max_topics:
                    raise TooManyTopicsError(name, self._limits.max_topics)
                layout = layout_for(self.options(name), self._limits, members=0)
                topic = Topic(name, self._home(name), layout)
                self._topics[name] = topic
                self.fit(topic)
            return self._topics[name]

    def _home(self, name: str) -> TopicHome:
        if self.options(name).durable:
            assert self._storage is not None, "checked when it was declared"
            return DurableHome(name, self._storage)
        return MemoryHome(name, self._inner)

    def fit(self, topic: Topic) -> None:
        """Give the topic the partitions that options, limits and subscribers ask for."""
        with self._lock:
            members, current = topic.largest_group(), topic.layout.partitions
            topic.resize(layout_for(self.options(topic.name), self._limits, members=members, current=current))

    def change(self, name: str, *, partitions: int | None = None, hot: bool | None = None) -> None:
        """Change the options of a topic while it is used."""
        with self._lock:
            options = self.options(name)
            self._options[name] = replace(
                options,
                partitions=options.partitions if partitions is None else partitions,
                hot=options.hot if hot is None else hot,
            )
            self.fit(self.get(name))

    def reconfigure(self, limits: BusLimits) -> None:
        """Work with `limits`; raise InvalidValueError, before anything has changed, if more is in use than that."""
        with self._lock:
            subscribers = max((topic.subscribers() for topic in self._topics.values()), default=0)
            if limits.max_topics < len(self._topics):
                raise InvalidValueError("max_topics", limits.max_topics, f"at least the {len(self._topics)} in use")
            if limits.max_subscribers_per_topic < subscribers:
                value = limits.max_subscribers_per_topic
                raise InvalidValueError("max_subscribers_per_topic", value, f"at least the {subscribers} of one topic")
            self._limits = limits
            for topic in self._topics.values():
                self.fit(topic)

    def close(self) -> None:
        """Close every topic and refuse further use."""
        with self._lock:
            self._closed = True
            topics = tuple(self._topics.values())
        for topic in topics:
            topic.close()
