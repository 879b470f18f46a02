"""Reading checkpoints: classic, in parts, and V2 with its file entries in sidecars; Parquet or JSON.

Only what a capture needs is read. `remove` entries of checkpoints are not: they are tombstones for VACUUM. Parsed
statistics are skipped but for the number of rows, which is asked for where a table keeps no statistics as text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dw_platform.backup.delta_files import FoundFile, read_file
from dw_platform.backup.delta_listing import Checkpoint
from dw_platform.backup.place import Place

Action = Mapping[str, Any]
"""An entry of the log, such as `{"add": {...}}`."""

_SMALL = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_ADD = (
    "path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector",
    "baseRowId", "defaultRowCommitVersion", "clusteringProvider", "stats_parsed.numRecords",
)  # fmt: skip
_COLUMNS = [*_SMALL, *(f"add.{name}" for name in _ADD)]


class CheckpointUnreadableError(Exception):
    """A checkpoint is damaged or incomplete; whoever reads the log tries another way."""


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """Reads the checkpoints of one table."""

    place: Place
    sidecars: Mapping[str, FoundFile]
    """Those that a listing found, by name."""

    def actions(self, checkpoint: Checkpoint) -> Iterator[Action]:
        """Yield the checkpoint's actions, each `sidecar` followed by what is in it.

        Raise CheckpointUnreadableError as soon as one cannot be read.
        """
        for file in checkpoint.files:
            for action in self._entries(file.path, _COLUMNS):
                yield action
                if "sidecar" in action:
                    yield from self._entries(self.sidecar(action).path, _COLUMNS)

    def sidecars_of(self, checkpoint: Checkpoint) -> tuple[FoundFile, ...]:
        """Return the sidecars that the checkpoint refers to, without reading them."""
        entries = (action for file in checkpoint.files for action in self._entries(file.path, ["sidecar"]))
        return tuple(self.sidecar(action) for action in entries if "sidecar" in action)

    def sidecar(self, action: Action) -> FoundFile:
        """Return the file of a `sidecar` action."""
        name = unquote(str(action["sidecar"]["path"])).rpartition("/")[2]
        if name not in self.sidecars:
            raise CheckpointUnreadableError(f"its sidecar {name} is gone")
        return self.sidecars[name]

    def _entries(self, path: str, columns: list[str]) -> Iterator[Action]:
        content = read_file(self.place, path)
        try:
            yield from _from_json(content) if path.endswith(".json") else _from_parquet(content, columns)
        except (ValueError, TypeError, OSError) as error:  # pyarrow calls damaged pages OSError
            raise CheckpointUnreadableError(f"{path} is damaged ({error})") from error


def _from_json(content: bytes) -> Iterator[Action]:
    return (json.loads(line) for line in content.splitlines() if line.strip())


def _from_parquet(content: bytes, columns: list[str]) -> Iterator[Action]:
    for batch in pq.ParquetFile(pa.BufferReader(content)).iter_batches(columns=columns):
        for name in batch.schema.names:
            entries = batch.column(name)
            yield from ({name: entry} for entry in _structs(entries.filter(entries.is_valid())))


def _structs(entries: Any) -> list[dict[str, Any]]:
    """Return the entries as a commit would have them: without the fields that are absent, maps as objects.

    Column by column: pyarrow converts plain columns as a whole, but structs and maps value by value.
    """
    found: list[dict[str, Any]] = [{} for _ in range(len(entries))]
    for index, field in enumerate(entries.type):
        column = entries.field(index)
        if column.null_count < len(column):
            for entry, value in zip(found, _values(column), strict=True):
                if value is not None:
                    entry[field.name] = value
    return found


def _values(column: Any) -> Iterable[Any]:
    if pa.types.is_struct(column.type):
        there = column.is_valid().to_pylist()
        return (entry if valid else None for entry, valid in zip(_structs(column), there, strict=True))
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        return (None if value is None else dict(value) for value in values)
    return cast("Iterable[Any]", values)
