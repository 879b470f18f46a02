"""A batch on its way to the broker: one part a partition, and one outcome when the last of them is known.

Who waits for the outcome may stop waiting; the parts go on, and whoever asked to be told when they are done is told.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import pyarrow as pa

from dw_platform.log import AppendResult, Records
from dw_platform.log.columns import Columns
from dw_platform.streaming.contract import Broker
from dw_platform.streaming.routing import Parts

Offsets = dict[int, AppendResult]


class Publication:
    """`done` becomes the offsets by partition, or the first error; `on_done(offsets, error)` is called before that.

    The offsets are those of the parts that were acknowledged, also when others failed.
    """

    def __init__(self, parts: int, on_done: Callable[[Offsets, BaseException | None], None]) -> None:
        self.done: Future[Offsets] = Future()
        self._on_done = on_done
        self._lock = threading.Lock()
        self._left = parts
        self._offsets: Offsets = {}
        self._error: BaseException | None = None

    def watch(self, partition: int, future: "Future[AppendResult]") -> None:
        """Take the outcome of one part from `future`."""
        future.add_done_callback(partial(self._finished, partition))

    def acknowledged(self, partition: int, result: AppendResult) -> None:
        """Tell that one part is durable."""
        self._end(partition, result, None)

    def failed(self, parts: int, error: BaseException) -> None:
        """Tell that so many parts are not, or may not be."""
        for _ in range(parts):
            self._end(-1, None, error)

    def _finished(self, partition: int, future: "Future[AppendResult]") -> None:
        error = future.exception()
        self._end(partition, None if error else future.result(), error)

    def _end(self, partition: int, result: AppendResult | None, error: BaseException | None) -> None:
        with self._lock:
            if result is not None:
                self._offsets[partition] = result
            self._error = self._error or error
            self._left -= 1
            if self._left:
                return
        try:
            self._on_done(self._offsets, self._error)
        finally:
            if self._error is not None:
                self.done.set_exception(self._error)
            else:
                self.done.set_result(self._offsets)


def send(broker: Broker, topic: str, parts: Parts, publication: Publication, *, inline: bool) -> None:
    """Submit every part; with `inline` the last one is written by this thread, which saves handing it over.

    What a broker raises at once becomes the outcome of that part and of those after it.
    """
    sent = 0
    try:
        for partition, records in parts[: len(parts) - inline]:
            publication.watch(partition, broker.submit(topic, partition, records))
            sent += 1
        if inline:
            partition, records = parts[-1]
            publication.acknowledged(partition, broker.publish(topic, partition, records))
    except BaseException as error:
        publication.failed(len(parts) - sent, error)
        if not isinstance(error, Exception):
            raise


def check_parts(parts: Parts, max_record_bytes: int) -> None:
    """Refuse a batch before any part of it is submitted, as the log would refuse one part."""
    for _, records in parts:
        if _most_bytes(records) > max_record_bytes:
            Columns.of(records).check_sizes(max_record_bytes)


def _most_bytes(records: Records) -> float:
    """Return more bytes than all records together have; infinity where they have to be looked at one by one."""
    if records.small:
        return records.total_bytes()
    if records.timestamps_ms is not None or (records.headers is not None and any(records.headers[1:])):
        return math.inf
    # Only the first record has headers, as a stamped part has; alone they are checked when the batch is built.
    first = Records([None], headers=records.headers[:1]).total_bytes() if records.headers else 0
    total: int = sum(pa.array(part).nbytes for part in (records.values, records.keys) if part is not None)
    return first + total
