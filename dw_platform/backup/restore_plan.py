"""What a restore has to write, before anything is written.

A file that is there in the right size may still be another one, so it is compared by its hash; one that is absent or
has another size is written. Files of the log always go to the restore's own folder, because readers must not see
them one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dw_platform.backup.contents import FileKind, SourceFile, StoredFile
from dw_platform.backup.delta_listing import LOG
from dw_platform.backup.restore_claim import staging_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What has to be done with each file."""

    write: tuple[StoredFile, ...]
    check: tuple[StoredFile, ...]
    """There already in the right size; written if the hash is another."""

    foreign: tuple[str, ...]
    """At the target, but no part of the table; left alone, and taken by VACUUM like any file that no log names."""

    @property
    def bytes(self) -> int:
        """What has to be written at least."""
        return sum(entry.source.size for entry in self.write)


def plan_restore(files: Sequence[StoredFile], existing: Mapping[str, int], *, job: str) -> RestorePlan:
    """Compare what the table needs with what is at the target, given as sizes by path."""
    write, check, needed = list[StoredFile](), list[StoredFile](), set[str]()
    for entry in files:
        path = destination(entry.source, job)
        needed.add(path)
        (check if existing.get(path) == entry.source.size else write).append(entry)
    logs = (f"{LOG}/", f"{LOG}.dw-")
    foreign = sorted(path for path in existing if path not in needed and not path.startswith(logs))
    return RestorePlan(write=tuple(write), check=tuple(check), foreign=tuple(foreign))


def destination(source: SourceFile, job: str) -> str:
    """Return where the restore puts a file, below the target."""
    if source.kind is not FileKind.LOG:
        return source.path
    return f"{staging_folder(job)}/{source.path.removeprefix(f'{LOG}/')}"
