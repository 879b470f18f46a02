"""One entry as a file: a checked header with the key, then the value.

    bytes 0-3    magic "DWS1"
    bytes 4-7    CRC-32 of everything from byte 8 to the end of the key
    bytes 8-15   version
    bytes 16-17  length of the key in UTF-8
    bytes 18-21  length of the value
    bytes 22-25  CRC-32 of the value
    then         key, value

Numbers are big-endian. The header can be trusted without reading the value, so that a listing stays cheap. The
file's name is the SHA-256 of the key: safe for every key, and the same in every process.
"""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dw_platform.store.contract import Entry

_START = struct.Struct(">4sI")
_FACTS = struct.Struct(">QHII")
_MAGIC = b"DWS1"
NAME_LENGTH = 64


class DamagedEntryError(Exception):
    """The file is not a whole entry; the store that owns it says so in its own words."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about its entry."""

    key: str
    version: int
    value_length: int
    value_crc: int


def file_name(key: str) -> str:
    """Return the name of the file for `key`."""
    return hashlib.sha256(key.encode()).hexdigest()


def encode(entry: Entry) -> bytes:
    """Return the file's content for `entry`."""
    key = entry.key.encode()
    facts = _FACTS.pack(entry.version, len(key), len(entry.value), zlib.crc32(entry.value)) + key
    return _START.pack(_MAGIC, zlib.crc32(facts)) + facts + entry.value


def read_header(path: Path) -> Header | None:
    """Return the header of the file, or None if there is no file."""
    try:
        with path.open("rb") as file:
            return _read_header(file, path.name)
    except FileNotFoundError:
        return None


def read_entry(path: Path) -> Entry | None:
    """Return the whole entry in the file, or None if there is no file."""
    try:
        with path.open("rb") as file:
            header = _read_header(file, path.name)
            value = file.read()
    except FileNotFoundError:
        return None
    if len(value) != header.value_length or zlib.crc32(value) != header.value_crc:
        raise DamagedEntryError(f"the value of {header.key!r} in {path} does not match its checksum")
    return Entry(header.key, value, header.version)


def _read_header(file: BinaryIO, name: str) -> Header:
    start, facts = file.read(_START.size), file.read(_FACTS.size)
    if len(facts) < _FACTS.size:
        raise DamagedEntryError(f"{file.name} is cut off")
    magic, crc = _START.unpack(start)
    version, key_length, value_length, value_crc = _FACTS.unpack(facts)
    key = file.read(key_length)
    if magic != _MAGIC or zlib.crc32(facts + key) != crc:
        raise DamagedEntryError(f"the header of {file.name} does not match its checksum")
    header = Header(key.decode(), version, value_length, value_crc)
    if file_name(header.key) != name:
        raise DamagedEntryError(f"{file.name} holds {header.key!r}, which belongs in {file_name(header.key)}")
    return header
