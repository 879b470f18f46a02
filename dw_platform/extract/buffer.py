"""Bytes between a thread that writes and a reader that may be slower: in memory, in order, never more than a limit.

`write` waits while the buffer is full, so the reader's pace reaches whatever produces the bytes. Every chunk that is
read has exactly `chunk_bytes`, only the last one may be shorter.

Ends: `close` is the regular one, and what is buffered is still read. After `fail` the reader gets what is buffered and
then the error: a value that broke off is never mistaken for a short one. `cancel` is the reader's: nothing is read any
more, and the writer's next `write` raises StreamClosedError, also one that waits.

A stream with a `feed` starts its thread at the first read, so one that nobody reads costs nothing. Leaving a loop
over the stream, or a `with` block around it, cancels it.
"""

import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dw_platform.bus.waker import Waker
from dw_platform.foundation import InvalidValueError, PermanentError

CHUNK_BYTES = 64 * 1024
BUFFER_BYTES = 64 * 1024 * 1024


class StreamClosedError(PermanentError):
    """The stream takes and gives no more bytes, because its reader left or its writer had said that it was done."""

    def __init__(self) -> None:
        super().__init__("The stream is closed. Open a new one to read the value again.")


@dataclass(frozen=True, slots=True)
class BufferStats:
    """A stream at one moment."""

    buffered_bytes: int
    peak_bytes: int
    written_bytes: int
    read_bytes: int
    closed: bool


Feed = Callable[["BoundedBufferStream"], None]


class BoundedBufferStream:
    """A pipe of at most `max_bytes`; any thread may write, read or end it, and coroutines may read it."""

    def __init__(
        self, max_bytes: int = BUFFER_BYTES, chunk_bytes: int = CHUNK_BYTES, *, feed: Feed | None = None, name: str = ""
    ) -> None:
        if chunk_bytes < 1:
            raise InvalidValueError("chunk_bytes", chunk_bytes, "at least 1")
        if max_bytes < chunk_bytes:
            # A chunk is handed over whole, so a smaller buffer would never have one.
            raise InvalidValueError("max_bytes", max_bytes, f"at least one chunk, which is {chunk_bytes} bytes")
        self.max_bytes, self.chunk_bytes = max_bytes, chunk_bytes
        self._feed, self._name = feed, name or "buffer-feed"
        self._changed, self._waker = threading.Condition(), Waker()
        self._chunks: deque[bytes] = deque()
        self._tail = bytearray()
        self._buffered = self._peak = self._written = self._read = 0
        self._ended = self._cancelled = False
        self._error: BaseException | None = None

    # The writer's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take all of `data`, waiting while the buffer is full; raise StreamClosedError once the stream has ended."""
        rest = memoryview(data).cast("B")
        while rest:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._buffered < self.max_bytes)
                if self._ended:
                    raise StreamClosedError
                taken = self._take(rest)
                self._changed.notify_all()
            self._waker.notify()
            rest = rest[taken:]

    def close(self) -> None:
        """Say that nothing more comes; closing twice, or after an error, changes nothing."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """Say that nothing more comes because of `error`, which the reader gets after what is buffered."""
        self._end(error)

    def _take(self, rest: memoryview) -> int:
        room = min(self.max_bytes - self._buffered, self.chunk_bytes - len(self._tail), len(rest))
        if room == self.chunk_bytes:
            self._chunks.append(bytes(rest[:room]))
        else:
            self._tail += rest[:room]
            if len(self._tail) == self.chunk_bytes:
                self._chunks.append(bytes(self._tail))
                self._tail.clear()
        self._buffered += room
        self._written += room
        self._peak = max(self._peak, self._buffered)
        return room

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                if self._tail:
                    self._chunks.append(bytes(self._tail))
                    self._tail.clear()
            self._changed.notify_all()
        self._waker.notify()

    # The reader's side

    def read(self) -> bytes:
        """Return the next chunk, waiting for it; empty at the end. Raise the writer's error."""
        self._start()
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            return self._next()

    async def read_async(self) -> bytes:
        """Return the next chunk like `read`, without blocking the event loop."""
        self._start()

        def look() -> list[bytes]:
            with self._changed:
                return [self._next()] if self._chunks or self._ended else []

        return (await self._waker.first(look))[0]

    def cancel(self) -> None:
        """Leave: drop what is buffered and stop the writer; any number of times, also after the end."""
        with self._changed:
            self._ended = self._cancelled = True
            self._feed = None
            self._chunks.clear()
            self._tail.clear()
            self._buffered = 0
            self._changed.notify_all()
        self._waker.notify()

    def _next(self) -> bytes:
        if self._cancelled:
            raise StreamClosedError
        if self._chunks:
            chunk = self._chunks.popleft()
            self._buffered -= len(chunk)
            self._read += len(chunk)
            self._changed.notify_all()
            return chunk
        if self._error is not None:
            raise self._error
        return b""

    def _start(self) -> None:
        with self._changed:
            feed, self._feed = self._feed, None
        if feed is not None:
            threading.Thread(target=self._run, args=[feed], name=self._name, daemon=True).start()

    def _run(self, feed: Feed) -> None:
        try:
            feed(self)
        except BaseException as error:  # noqa: BLE001 - the thread ends here, and the reader raises it
            self.fail(error)
        else:
            self.close()

    def __iter__(self) -> Generator[bytes, None, None]:
        try:
            while chunk := self.read():
                yield chunk
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await self.read_async():
                yield chunk
        finally:
            self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.cancel()

    # Looking

    @property
    def peak_bytes(self) -> int:
        """The most that was buffered at once."""
        return self._peak

    def stats(self) -> BufferStats:
        """Return the stream's numbers at this moment."""
        with self._changed:
            return BufferStats(self._buffered, self._peak, self._written, self._read, self._ended)
