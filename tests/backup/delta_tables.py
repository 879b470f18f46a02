"""Delta tables written by hand, action by action, and the way of a table through a backup into another folder."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import FileKind, StoredFile, TableCapture
from dw_platform.backup.delta_files import read_file
from dw_platform.backup.log_publish import finish_publish, publish_log
from dw_platform.backup.place import Place
from dw_platform.backup.restore_files import holds, restore_file
from dw_platform.backup.restore_plan import plan_restore
from dw_platform.backup.restore_target import claim_target, existing_files

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
)  # fmt: skip
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def metadata(**configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "0c1d", "format": {"provider": "parquet", "options": {}}, "schemaString": SCHEMA,
            "partitionColumns": [], "configuration": configuration, "createdTime": 1,
        }
    }  # fmt: skip


class HandTable:
    """A table whose log is written line by line; its data files are real Parquet with one row each."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    @property
    def place(self) -> Place:
        return Place.at(self.root)

    def begin(self, **configuration: str) -> "HandTable":
        return self.commit(PROTOCOL, metadata(**configuration))

    def commit(self, *actions: Mapping[str, Any], at_ms: int | None = None) -> "HandTable":
        self.version += 1
        file = self.log / f"{self.version:020d}.json"
        file.write_text("".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": {}}, *actions)))
        at_ns = (1_700_000_000_000 + self.version * 1000 if at_ms is None else at_ms) * 1_000_000
        os.utime(file, ns=(at_ns, at_ns))
        return self

    def add(self, path: str, *, written: str | None = None, rows: int = 1, **fields: Any) -> dict[str, Any]:
        """Write a data file and return its action; `written` is its path as the log spells it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), file)
        stats = json.dumps({"numRecords": rows})
        return {
            "add": {
                "path": written or path, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1,
                "dataChange": True, "stats": stats, **fields,
            }
        }  # fmt: skip

    def append(self, count: int = 1) -> "HandTable":
        for _ in range(count):
            self.commit(self.add(f"part-{self.version + 1:05d}.parquet"))
        return self

    def names(self) -> list[str]:
        return sorted(path.name for path in self.log.iterdir())


def removed(add: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    kept = {key: add["add"][key] for key in ("path", "deletionVector") if key in add["add"]}
    return {"remove": {**kept, "dataChange": True, "deletionTimestamp": 1, **fields}}


def paths(capture: TableCapture, kind: FileKind | None = None) -> list[str]:
    return [file.path for file in capture.files if kind in {None, file.kind}]


def log_names(capture: TableCapture) -> list[str]:
    return [path.removeprefix("_delta_log/") for path in paths(capture, FileKind.LOG)]


def stored(source: Place, capture: TableCapture) -> list[StoredFile]:
    """Return the capture as a repository would describe it; the bytes stay where they are."""
    found = []
    for file in capture.files:
        digest = hashlib.sha256(read_file(source, file.path)).hexdigest()
        found.append(StoredFile(source=file, sha256=digest, object_name=digest, object_size=file.size))
    return found


def reader(source: Place) -> Any:
    def read(entry: StoredFile) -> Iterator[bytes]:
        content = read_file(source, entry.source.path)
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    return read


def write_staged(source: Place, target: Place, entries: list[StoredFile], *, job: str, overwrite: bool = False) -> None:
    """Restore all files; the log is not visible yet."""
    claim_target(target, job, overwrite=overwrite)
    plan = plan_restore(entries, existing_files(target), job=job)
    read = reader(source)
    for entry in (*plan.write, *(entry for entry in plan.check if not holds(entry, target, job=job))):
        restore_file(entry, read(entry), target, job=job)


def copy_table(source: Place, target: Place, *, job: str = "job", **wish: Any) -> TableCapture:
    """Take a table through capture and restore, from any place to any other."""
    capture = capture_table(source, **wish)
    entries = stored(source, capture)
    write_staged(source, target, entries, job=job)
    publish_log(target, job, entries)
    finish_publish(target, job)
    return capture


class LikeBucket(pafs.FileSystemHandler):  # type: ignore[misc]
    """A folder that behaves as a bucket does: no folders to be made, no rename; every change is counted."""

    def __init__(self, folder: Path, *, dies_before: int | None = None) -> None:
        self.folder, self.changes, self.dies_before = folder, 0, dies_before
        self._local = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())

    def _change(self) -> None:
        if self.dies_before is not None and self.changes >= self.dies_before:
            raise Killed
        self.changes += 1

    def get_type_name(self) -> str:
        return "bucket"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, wanted: list[str]) -> Any:
        return self._local.get_file_info(wanted)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._local.get_file_info(selector)

    def open_input_stream(self, path: str) -> Any:
        return self._local.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        return self._local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:  # noqa: ARG002 - part of the interface
        self._change()
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        return self._local.open_output_stream(path, compression=None)

    def copy_file(self, source: str, target: str) -> None:
        self._change()
        (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
        self._local.copy_file(source, target)

    def delete_file(self, path: str) -> None:
        self._change()
        self._local.delete_file(path)

    def delete_dir(self, path: str) -> None:
        self._change()
        self._local.delete_dir(path)

    def _missing(self, *_: Any) -> None:
        raise NotImplementedError("a bucket cannot do that")

    create_dir = move = delete_dir_contents = delete_root_dir_contents = open_append_stream = _missing


class Killed(BaseException):
    """The process ended here."""


def bucket(folder: Path, *, dies_before: int | None = None) -> tuple[Place, LikeBucket]:
    folder.mkdir(parents=True, exist_ok=True)
    handler = LikeBucket(folder, dies_before=dies_before)
    return Place(pafs.PyFileSystem(handler), "bucket/table"), handler
