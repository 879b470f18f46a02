"""Writes batches as Kafka's documentation describes them, one record at a time, to hold the fast reader against."""

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import pyarrow as pa

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Sample:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    time_delta: int = 0
    offset_delta: int | None = None


def varint(number: int) -> bytes:
    rest, written = (number << 1) ^ (number >> 63), bytearray()
    rest &= (1 << 64) - 1
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(sample: Sample, position: int) -> bytes:
    delta = position if sample.offset_delta is None else sample.offset_delta
    body = b"\x00" + varint(sample.time_delta) + varint(delta) + field(sample.key) + field(sample.value)
    body += varint(len(sample.headers)) + b"".join(field(name) + field(value) for name, value in sample.headers)
    return varint(len(body)) + body


def batch(
    samples: Sequence[Sample],
    *,
    base_offset: int = 0,
    base_time: int = 1_000,
    highest_time: int = 2_000,
    attributes: int = 0,
    producer: int = -1,
    last_delta: int | None = None,
) -> bytes:
    body = packed(attributes & 7, b"".join(record(sample, position) for position, sample in enumerate(samples)))
    last = len(samples) - 1 if last_delta is None else last_delta
    return sealed(
        base_offset,
        struct.pack(">hiqqqhii", attributes, last, base_time, highest_time, producer, 0, 0, len(samples)) + body,
    )


def sealed(base_offset: int, checked: bytes) -> bytes:
    """Put a batch together whose checksum is right, whatever is in it."""
    return struct.pack(">qiibI", base_offset, len(checked) + 9, 0, 2, google_crc32c.value(checked)) + checked


def marker(base_offset: int, producer: int, *, commit: bool) -> bytes:
    """Return the end of a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 7)
    return batch([Sample(value, key)], base_offset=base_offset, attributes=TRANSACTIONAL | CONTROL, producer=producer)


def packed(codec: int, body: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(body)
        case 2:
            return pa.Codec("snappy").compress(body, asbytes=True)
        case 3:
            return pa.Codec("lz4").compress(body, asbytes=True)
        case 4:
            return pa.Codec("zstd").compress(body, asbytes=True)
        case _:
            return body
