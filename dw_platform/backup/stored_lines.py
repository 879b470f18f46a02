"""Stored files as lines of JSON, the same in manifests and in notes.

Names are written in full, so that a manifest can be read with zstd and a pager when everything else is lost.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from dw_platform.backup.contents import FileKind, SourceFile, StoredFile

# Lines to a piece: enough that handing them on costs nothing, few enough that a million files need no copy in memory.
_LINES = 4096


def to_lines(files: Iterable[StoredFile]) -> Iterator[bytes]:
    """Give the files as pieces of whole lines."""
    piece = bytearray()
    for number, file in enumerate(files, start=1):
        piece += orjson.dumps(_document(file), option=orjson.OPT_APPEND_NEWLINE)
        if number % _LINES == 0:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def from_lines(lines: Iterable[bytes]) -> Iterator[StoredFile]:
    """Give the files of the lines; raise ValueError, KeyError or TypeError for what is none."""
    for line in lines:
        if line:
            yield _file(orjson.loads(line))


def _document(file: StoredFile) -> dict[str, Any]:
    source = file.source
    document: dict[str, Any] = {
        "path": source.path,
        "kind": source.kind.value,
        "size": source.size,
        "mtime_ns": source.mtime_ns,
        "sha256": file.sha256,
        "object": file.object_name,
        "object_size": file.object_size,
    }
    if file.offset is not None:
        document["offset"] = file.offset
    if source.add is not None:
        document["add"] = dict(source.add)
    return document


def _file(document: dict[str, Any]) -> StoredFile:
    source = SourceFile(
        path=document["path"],
        kind=FileKind(document["kind"]),
        size=document["size"],
        mtime_ns=document["mtime_ns"],
        add=document.get("add"),
    )
    return StoredFile(
        source=source,
        sha256=document["sha256"],
        object_name=document["object"],
        object_size=document["object_size"],
        offset=document.get("offset"),
    )
