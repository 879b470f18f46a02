"""How the bytes of an object are encoded: as they are, compressed (`.zst`), encrypted (`.enc`), or both.

Encrypted:

    bytes 0-3     magic "DWE1"
    bytes 4-11    id of the key
    bytes 12-43   salt, random for each object
    bytes 44-47   bytes in a chunk, big-endian
    then          chunks, each AES-256-GCM of up to that many bytes and a tag of 16

The key of an object is HMAC-SHA-256(content key, salt). The nonce of a chunk is its number, 12 bytes big-endian. What
is authenticated with each chunk: the whole header, and whether it is the last. So a chunk that was changed, moved,
dropped, added or taken from another object does not decrypt; an object always ends in a last chunk, empty if need be.

Compression is a plain zstd stream inside the encryption. Readers get the content or ObjectDamagedError; what they get
before the end is proved for encrypted objects only, so whoever reads an object also compares its hash.
"""

import io
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dw_platform.backup.keys import KEY_ID_BYTES, RepositoryKeys

COMPRESSED = ".zst"
ENCRYPTED = ".enc"
SUFFIXES = ("", COMPRESSED, ENCRYPTED, COMPRESSED + ENCRYPTED)

Buffer = bytes | bytearray | memoryview

_MAGIC = b"DWE1"
_SALT_BYTES = 32
_TAG_BYTES = 16
_CHUNK_BYTES = 1024 * 1024
_LARGEST_CHUNK = 64 * 1024 * 1024
_HEADER = struct.Struct(f">4s{KEY_ID_BYTES}s{_SALT_BYTES}sI")
HEADER_BYTES = _HEADER.size

SAMPLE_BYTES = 128 * 1024
# Less is not worth the time: Parquet that is compressed already shrinks by a fifth at the speed of one core.
_WORTHWHILE = 0.7
_READ_BYTES = 4 * 1024 * 1024


class UndecodableError(Exception):
    """The bytes are not what an encoder wrote; whoever knows the object's name says so in its own words."""


class Sink(Protocol):
    """Where encoded bytes go."""

    def write(self, data: Buffer, /) -> object:
        """Take all of `data`; it may change after the call."""


class Encoder(Protocol):
    """Takes content and gives its encoding to a sink."""

    def write(self, data: Buffer, /) -> object:
        """Take the next piece of the content; it may change after the call."""

    def close(self) -> None:
        """Give the rest to the sink, which stays open."""


def shrinks(sample: Buffer) -> bool:
    """Return whether content that begins like this is worth compressing."""
    if not len(sample):
        return False
    squeezed = pa.Codec("zstd", compression_level=1).compress(pa.py_buffer(sample))
    return bool(squeezed.size <= _WORTHWHILE * len(sample))


def suffix_for(*, compress: bool, keys: RepositoryKeys | None) -> str:
    """Return what the name of an object with this encoding ends in."""
    return (COMPRESSED if compress else "") + (ENCRYPTED if keys else "")


def suffix_of(name: str) -> str:
    """Return the suffix of an object's name."""
    return name[name.find(".") :] if "." in name else ""


def encoder(sink: Sink, suffix: str, keys: RepositoryKeys | None) -> Encoder:
    """Return the encoder for objects with that suffix."""
    inner: Any = _Encrypting(sink, keys) if suffix.endswith(ENCRYPTED) and keys else _Plain(sink)
    return _Compressing(inner) if suffix.startswith(COMPRESSED) else inner


def decoded(pieces: Iterable[bytes], suffix: str, keys: RepositoryKeys | None) -> Iterator[bytes]:
    """Give the content of an object piece by piece; raise UndecodableError where it cannot be."""
    if suffix not in SUFFIXES:
        raise UndecodableError(f"nothing is encoded as {suffix}")
    if suffix.endswith(ENCRYPTED):
        if keys is None:
            raise UndecodableError("it is encrypted, and the repository is not")
        pieces = _decrypted(pieces, keys)
    return _decompressed(pieces) if suffix.startswith(COMPRESSED) else iter(pieces)


class _Plain:
    """Gives everything on as it is."""

    def __init__(self, sink: Sink) -> None:
        self.write: Callable[[Buffer], object] = sink.write

    def close(self) -> None:
        """Nothing is held back."""


class _Compressing:
    """zstd at Arrow's level 1: three times as fast as level 3 for a hundredth more."""

    def __init__(self, inner: Encoder) -> None:
        self._inner = inner
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_Writable(inner), mode="w"), "zstd")

    def write(self, data: Buffer) -> None:
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()
        self._inner.close()


class _Encrypting:
    """Cuts into chunks; holds one back, because the last one is marked."""

    def __init__(self, sink: Sink, keys: RepositoryKeys) -> None:
        salt = secrets.token_bytes(_SALT_BYTES)
        self._header = _HEADER.pack(_MAGIC, keys.id, salt, _CHUNK_BYTES)
        self._cipher = AESGCM(keys.content_key(salt))
        self._sink, self._rest, self._number = sink, bytearray(), 0
        sink.write(self._header)

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        if self._rest:
            missing = _CHUNK_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if not view:
                return
            self._seal(self._rest, last=False)
            self._rest = bytearray()
        while len(view) > _CHUNK_BYTES:
            self._seal(view[:_CHUNK_BYTES], last=False)
            view = view[_CHUNK_BYTES:]
        self._rest += view

    def close(self) -> None:
        self._seal(self._rest, last=True)

    def _seal(self, chunk: Buffer, *, last: bool) -> None:
        self._sink.write(self._cipher.encrypt(_nonce(self._number), chunk, _bound(self._header, last=last)))
        self._number += 1


def _decrypted(pieces: Iterable[bytes], keys: RepositoryKeys) -> Iterator[bytes]:
    stream = _Readable(pieces)
    header = stream.exactly(_HEADER.size)
    if len(header) < _HEADER.size:
        raise UndecodableError("it is cut off in its header")
    magic, key_id, salt, chunk_bytes = _HEADER.unpack(header)
    if magic != _MAGIC or key_id != keys.id or not 0 < chunk_bytes <= _LARGEST_CHUNK:
        raise UndecodableError("its header is not that of an object encrypted with this repository's key")
    cipher, number = AESGCM(keys.content_key(salt)), 0
    chunk = stream.exactly(chunk_bytes + _TAG_BYTES)
    while True:
        following = stream.exactly(chunk_bytes + _TAG_BYTES)
        try:
            yield cipher.decrypt(_nonce(number), chunk, _bound(header, last=not following))
        except InvalidTag as error:
            raise UndecodableError(f"chunk {number} was changed, moved or cut off") from error
        if not following:
            return
        chunk, number = following, number + 1


def _decompressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(pa.PythonFile(_Readable(pieces), mode="r"), "zstd") as stream:
            while piece := stream.read(_READ_BYTES):
                yield piece
    except OSError as error:
        # The disk's own errors have a number; those of the decompressor are text only.
        if error.errno is not None:
            raise
        raise UndecodableError(str(error)) from error


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _bound(header: bytes, *, last: bool) -> bytes:
    return header + bytes([last])


class _Writable(io.RawIOBase):
    """The file that Arrow's compressor wants to write to."""

    def __init__(self, inner: Encoder) -> None:
        super().__init__()
        self._inner = inner

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._inner.write(data)
        return memoryview(data).nbytes


class _Readable(io.RawIOBase):
    """Pieces as the file that Arrow's decompressor wants to read from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces, self._rest = iter(pieces), memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes of the next piece, nothing at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return bytes(taken)

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end."""
        taken = self.read(size)
        if len(taken) == size:
            return taken
        parts = bytearray(taken)
        while len(parts) < size and (piece := self.read(size - len(parts))):
            parts += piece
        return bytes(parts)
