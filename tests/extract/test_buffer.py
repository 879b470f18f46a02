"""The pipe between a thread that reads a database and whoever wants the bytes."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.extract.buffer import BoundedBufferStream, StreamClosedError
from dw_platform.foundation import InvalidValueError

Writes = Callable[[BoundedBufferStream], None]


def writing(*pieces: bytes) -> Writes:
    def feed(stream: BoundedBufferStream) -> None:
        for piece in pieces:
            stream.write(piece)

    return feed


def feeder(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@given(
    pieces=st.lists(st.binary(max_size=40), max_size=20),
    chunk=st.integers(1, 16),
    extra=st.integers(0, 40),
)
@settings(deadline=None)
def test_what_is_read_is_what_was_written_in_chunks_of_one_size(pieces: list[bytes], chunk: int, extra: int) -> None:
    stream = BoundedBufferStream(chunk + extra, chunk, feed=writing(*pieces))
    chunks = list(stream)
    assert b"".join(chunks) == b"".join(pieces)
    assert all(len(each) == chunk for each in chunks[:-1])
    assert all(chunks)
    assert stream.peak_bytes <= chunk + extra


def test_a_writer_waits_for_its_reader_and_never_buffers_more_than_the_limit() -> None:
    stream = BoundedBufferStream(8, 4)
    stream.write(b"12345678")
    written = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: (stream.write(b"abcd"), written.set()))
        assert not written.wait(0.05), "the buffer is full"
        assert stream.read() == b"1234"
        assert written.wait(30)
        waiting.result()
    assert (stream.stats().buffered_bytes, stream.peak_bytes) == (8, 8)
    stream.close()
    assert [stream.read(), stream.read(), stream.read()] == [b"5678", b"abcd", b""]
    assert (stream.stats().written_bytes, stream.stats().read_bytes) == (12, 12)


def test_a_piece_larger_than_the_whole_buffer_goes_through_it() -> None:
    value = bytes(range(256)) * 8
    stream = BoundedBufferStream(64, 16, feed=writing(value))
    assert b"".join(stream) == value
    assert stream.peak_bytes <= 64


def test_a_reader_that_leaves_early_ends_the_thread_that_writes() -> None:
    ended = threading.Event()

    def feed(stream: BoundedBufferStream) -> None:
        try:
            while True:
                stream.write(b"x" * 16)
        finally:
            ended.set()

    stream = BoundedBufferStream(64, 16, feed=feed, name="left")
    for _ in stream:
        break
    assert ended.wait(30)
    for thread in feeder("left"):
        thread.join(30)
    assert stream.stats().buffered_bytes == 0
    with pytest.raises(StreamClosedError):
        stream.read()


def test_a_stream_that_nobody_reads_starts_no_thread() -> None:
    stream = BoundedBufferStream(feed=writing(b"x"), name="unread")
    assert not feeder("unread")
    with stream:
        pass
    with pytest.raises(StreamClosedError):
        stream.read()
    assert not feeder("unread")


def test_an_error_comes_after_what_was_written_before_it_and_is_not_the_end_of_the_value() -> None:
    def feed(stream: BoundedBufferStream) -> None:
        stream.write(b"abcdef")
        raise OSError("the connection is lost")

    stream = BoundedBufferStream(64, 4, feed=feed)
    assert [stream.read(), stream.read()] == [b"abcd", b"ef"]
    with pytest.raises(OSError, match="the connection is lost"):
        stream.read()


def test_a_value_that_was_read_to_its_end_is_not_an_empty_one_when_it_is_read_again() -> None:
    stream = BoundedBufferStream(feed=writing(b"abc"))
    assert list(stream) == [b"abc"]
    with pytest.raises(StreamClosedError):
        list(stream)


def test_closing_ends_writes_and_keeps_what_is_buffered() -> None:
    stream = BoundedBufferStream()
    stream.write(b"abc")
    stream.close()
    stream.close()
    with pytest.raises(StreamClosedError):
        stream.write(b"def")
    assert stream.stats().closed
    assert stream.read() == b"abc"


def test_coroutines_read_it_while_the_event_loop_goes_on() -> None:
    go = threading.Event()

    def feed(stream: BoundedBufferStream) -> None:
        go.wait(30)
        stream.write(b"abcdef")

    async def read() -> list[bytes]:
        stream = BoundedBufferStream(64, 4, feed=feed)
        task = asyncio.create_task(collect(stream))
        await asyncio.sleep(0)
        go.set()
        return await task

    async def collect(stream: BoundedBufferStream) -> list[bytes]:
        return [chunk async for chunk in stream]

    assert asyncio.run(read()) == [b"abcd", b"ef"]


def test_a_coroutine_that_is_cancelled_ends_the_thread_that_writes() -> None:
    ended = threading.Event()

    def feed(stream: BoundedBufferStream) -> None:
        try:
            while True:
                stream.write(b"x" * 16)
        finally:
            ended.set()

    async def read_a_little() -> None:
        async with BoundedBufferStream(64, 16, feed=feed) as stream:
            async with asyncio.timeout(0.05):
                async for _ in stream:
                    await asyncio.sleep(3600)

    with pytest.raises(TimeoutError):
        asyncio.run(read_a_little())
    assert ended.wait(30)


def test_a_slow_coroutine_holds_the_writer_back() -> None:
    async def read() -> int:
        stream = BoundedBufferStream(64, 16, feed=writing(*[b"x" * 16] * 200))
        async for _ in stream:
            await asyncio.sleep(0)
        return stream.peak_bytes

    assert asyncio.run(read()) <= 64


@pytest.mark.parametrize(("most", "chunk", "field"), [(10, 0, "chunk_bytes"), (10, 11, "max_bytes")])
def test_sizes_that_cannot_work_are_refused(most: int, chunk: int, field: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        BoundedBufferStream(most, chunk)
    assert refused.value.field == field
