"""Whether a table may be put at a place, and taking hold of it; every check comes before the first change."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pyarrow.fs as pafs

from dw_platform.backup.delta_files import FoundFile, list_files, storage_errors
from dw_platform.backup.delta_listing import LOG
from dw_platform.backup.place import Place
from dw_platform.backup.restore_claim import CLAIM, Claim, make_claim, read_claim
from dw_platform.backup.restore_errors import (
    ReplaceNeedsRenameError,
    TargetClaimedError,
    TargetNestedError,
    TargetNotEmptyError,
)
from dw_platform.foundation import fsync_directory


def claim_target(target: Place, job: str, *, overwrite: bool = False, besides: tuple[str, ...] = ()) -> Claim:
    """Check the target and take hold of it for `job`, or go on with what `job` began there.

    Files whose names begin with one of `besides`, such as those of the table's lock, do not count as content.
    """
    wanted, held = Claim(job=job), read_claim(target)
    if held is not None:
        if held.job != job:
            raise TargetClaimedError(target.shown, held.job)
        return held
    found = list_files(target)
    _check_nesting(target, found)
    content = sorted(path for path in found if not path.startswith(besides or ("\0",)))
    if content and not overwrite:
        raise TargetNotEmptyError(target.shown, content[0], files=len(content))
    replaces = any(path.startswith(f"{LOG}/") for path in found)
    if replaces and not target.is_local:
        raise ReplaceNeedsRenameError(target.shown)
    if target.is_local:
        with storage_errors(target):
            _make(target.local)
    claim = Claim(job=wanted.job, replaces=replaces)
    make_claim(target, claim)
    return claim


def existing_files(target: Place) -> Mapping[str, int]:
    """Return the sizes of what is at the target, by path; a restore's own note is not counted."""
    return {path: file.size for path, file in list_files(target).items() if path != CLAIM}


def _check_nesting(target: Place, found: Mapping[str, FoundFile]) -> None:
    for path in found:
        folders = PurePosixPath(path).parts[:-1]
        if LOG in folders[1:]:
            inner = "/".join(folders[: folders.index(LOG, 1)])
            raise TargetNestedError(target.shown, target.child(inner).shown)
    for outer in _above(target):
        with storage_errors(target):
            info = target.system.get_file_info(f"{outer.root}/{LOG}")
        if info.type == pafs.FileType.Directory:
            raise TargetNestedError(target.shown, outer.shown)


def _make(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        fsync_directory(each.parent)


def _above(target: Place) -> Iterator[Place]:
    """Yield the folders that the target lies in, up to the root of the disk or the bucket."""
    root = target.local.resolve().as_posix() if target.is_local else target.root
    for parent in PurePosixPath(root).parents:
        if str(parent) not in {".", "/"}:
            yield Place(target.system, str(parent))
