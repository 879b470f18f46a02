"""The four compressions of Kafka's batches, by Arrow's own codecs."""

import struct
from typing import Any

import pyarrow as pa

_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
# How Java's clients begin snappy data: this mark, two version numbers, then blocks with their lengths.
_FRAMED = b"\x82SNAPPY\x00"
_FRAMES_AT = 16


def decompress(codec: int, data: Any) -> bytes:
    """Return what `data` was before; raise ValueError or pa.ArrowException if it is no such thing."""
    if codec == _SNAPPY:
        return _snappy_frames(data) if bytes(data[:8]) == _FRAMED else _snappy(data)
    if codec not in _STREAMS:
        raise ValueError(f"there is no compression number {codec}")
    with pa.CompressedInputStream(pa.BufferReader(data), _STREAMS[codec]) as stream:
        return bytes(stream.read())


def _snappy(block: Any) -> bytes:
    """Return one block; it begins with its size as a varint."""
    size = shift = 0
    for byte in bytes(block[:5]):
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), size, asbytes=True))


def _snappy_frames(data: Any) -> bytes:
    at, blocks = _FRAMES_AT, list[bytes]()
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length < 0 or at + length > len(data):
            raise ValueError("a snappy block is longer than its batch")
        blocks.append(_snappy(data[at : at + length]))
        at += length
    return b"".join(blocks)
