"""Where a deletion vector lies: in a file beside the data, in the log itself, or outside of the table.

A file's name is a UUID, written in the log as 20 characters of Z85, with the name of a folder before them if it lies
in one. A file may hold several vectors, each as its length, its bytes and their CRC-32, 4 bytes each.
"""

import uuid
from collections.abc import Mapping
from typing import Any

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_Z85)}
_UUID_CHARACTERS = 20
_FRAME_BYTES = 8
"""Length before a vector and checksum behind it."""


class UnreadableVectorError(Exception):
    """The descriptor does not follow the protocol; the capture that reads it says so in its own words."""


class OutsideVectorError(Exception):
    """The vector's file is named by an absolute path; the capture that reads it refuses it."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """Return what tells the vectors of one data file apart."""
    if vector is None:
        return None
    name = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    offset = vector.get("offset")
    return name if offset is None else f"{name}@{offset}"


def vector_file(vector: Mapping[str, Any]) -> str | None:
    """Return the vector's file below the table's folder, or None if it is in the log itself."""
    kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
    if kind == "i":
        return None
    if kind == "p":
        raise OutsideVectorError(text)
    if kind != "u":
        raise UnreadableVectorError(f"a deletion vector is stored in an unknown way, {kind!r}")
    folder, coded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    name = f"deletion_vector_{uuid.UUID(bytes=_decoded(coded))}.bin"
    return f"{folder}/{name}" if folder else name


def vector_end(vector: Mapping[str, Any]) -> int:
    """Return how long the vector's file is at least."""
    return int(vector.get("offset") or 0) + int(vector["sizeInBytes"]) + _FRAME_BYTES


def _decoded(coded: str) -> bytes:
    if len(coded) != _UUID_CHARACTERS or not all(character in _VALUES for character in coded):
        raise UnreadableVectorError(f"{coded!r} is not the name of a deletion vector")
    groups = []
    for start in range(0, _UUID_CHARACTERS, 5):
        value = 0
        for character in coded[start : start + 5]:
            value = value * 85 + _VALUES[character]
        if value >= 1 << 32:
            raise UnreadableVectorError(f"{coded!r} is not the name of a deletion vector")
        groups.append(value.to_bytes(4, "big"))
    return b"".join(groups)
