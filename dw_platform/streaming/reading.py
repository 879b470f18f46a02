"""Readers of partitions that are kept open between calls, because some brokers take long to open one."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator

from dw_platform.streaming.contract import Broker, Fetcher

_KEPT = 64


class FetcherPool:
    """Lends each reader to one caller at a time, and keeps the ones used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[tuple[str, int, int], Fetcher] = OrderedDict()
        self._opened = 0
        self._closed = False

    @contextlib.contextmanager
    def lend(self, broker: Broker, topic: str, partition: int) -> Iterator[Fetcher]:
        """Hand out a reader; one that failed is not used again."""
        fetcher = self._take(topic, partition) or broker.fetcher(topic, partition)
        try:
            yield fetcher
        except BaseException:
            fetcher.close()
            raise
        for surplus in self._give_back(topic, partition, fetcher):
            surplus.close()

    def close(self) -> None:
        """Close all that nobody uses; those in use are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for fetcher in idle:
            fetcher.close()

    def _take(self, topic: str, partition: int) -> Fetcher | None:
        with self._lock:
            key = next((key for key in reversed(self._idle) if key[:2] == (topic, partition)), None)
            return None if key is None else self._idle.pop(key)

    def _give_back(self, topic: str, partition: int, fetcher: Fetcher) -> list[Fetcher]:
        with self._lock:
            if self._closed:
                return [fetcher]
            self._opened += 1
            self._idle[topic, partition, self._opened] = fetcher
            return [self._idle.popitem(last=False)[1]] if len(self._idle) > _KEPT else []
