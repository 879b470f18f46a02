"""The steps by which a log appears and goes back, on a disk and in a bucket; each may be repeated after a crash."""

import contextlib
import errno
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dw_platform.backup.delta_files import list_files, storage_errors
from dw_platform.backup.delta_listing import LOG
from dw_platform.backup.log_order import order_log
from dw_platform.backup.place import Place
from dw_platform.backup.restore_claim import Claim
from dw_platform.backup.restore_errors import RestoredTableUsedError, TargetTakenError
from dw_platform.foundation import fsync_directory

_IN_THE_WAY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class LocalLog:
    """The logs of a restore in a folder of this machine."""

    target: Place
    claim: Claim

    def staged(self) -> Mapping[str, int]:
        """Return the files that wait, with their sizes."""
        return _sizes(self.target, self.claim.staging)

    def settle_staging(self, keep: Collection[str]) -> None:
        """Remove what killed writers left among the waiting files, and make everything restored durable."""
        with storage_errors(self.target):
            for name in self.staged().keys() - set(keep):
                (self._staging / name).unlink()
            for folder, _, _ in os.walk(self.target.local):
                fsync_directory(Path(folder))

    def show(self) -> None:
        """Let the waiting log appear."""
        if not self._waits:
            return
        with storage_errors(self.target):
            if self.claim.replaces and self._log.exists() and not self._before.exists():
                self._rename(self._log, self._before)
            self._rename(self._staging, self._log)

    def check_unused(self) -> None:
        """Raise RestoredTableUsedError if the restored log is visible and not as it was restored."""
        if self._shown:
            _check_unused(self.target, self.claim)

    def take_back(self) -> None:
        """Let the log wait again, and the one before it be where it was."""
        with storage_errors(self.target):
            if self._shown:
                self._remove(self._staging)
                self._rename(self._log, self._staging)
            if self._before.exists():
                self._rename(self._before, self._log)

    def forget(self) -> None:
        """Remove the log that was there before, and what a task that ran on may have staged once more."""
        self._remove(self._before)
        self._remove(self._staging)

    def forget_staging(self) -> None:
        """Remove the log that waits."""
        self._remove(self._staging)

    @property
    def _waits(self) -> bool:
        """Whether the log is still where it was staged; a file or two there are a late task's, and mean nothing."""
        staged = self.staged()
        return all(staged.get(name) == size for name, size in self.claim.log.items())

    @property
    def _shown(self) -> bool:
        """Whether the log that is there is the restored one; only a log that was staged can be."""
        replaced = self._before.exists() or not self.claim.replaces
        return replaced and self._log.exists() and not self._waits

    @property
    def _log(self) -> Path:
        return self.target.local / LOG

    @property
    def _staging(self) -> Path:
        return self.target.local / self.claim.staging

    @property
    def _before(self) -> Path:
        return self.target.local / self.claim.before

    def _rename(self, old: Path, new: Path) -> None:
        try:
            old.rename(new)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                raise TargetTakenError(self.target.shown, new.name) from error
            raise
        fsync_directory(self.target.local)

    def _remove(self, folder: Path) -> None:
        with storage_errors(self.target), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
            fsync_directory(self.target.local)


@dataclass(frozen=True, slots=True)
class BucketLog:
    """The logs of a restore in a bucket, where nothing was before."""

    target: Place
    claim: Claim

    def staged(self) -> Mapping[str, int]:
        """Return the files that wait, with their sizes."""
        return _sizes(self.target, self.claim.staging)

    def settle_staging(self, keep: Collection[str]) -> None:
        """Remove waiting files that are no part of the log."""
        for name in self.staged().keys() - set(keep):
            self._delete(f"{self.claim.staging}/{name}")

    def show(self) -> None:
        """Copy the waiting files to where readers look, those last that make the table readable."""
        order, there = order_log(self.claim.log), _sizes(self.target, LOG)
        strange = sorted(name for name, size in there.items() if self.claim.log.get(name) != size)
        # Once the table was readable, somebody may have written to it.
        if strange and order.ground not in there:
            raise TargetTakenError(self.target.shown, f"{LOG}/{strange[0]}")
        for name in order.all:
            if name not in there:
                with storage_errors(self.target):
                    self.target.system.copy_file(
                        self.target.path(f"{self.claim.staging}/{name}"), self.target.path(f"{LOG}/{name}")
                    )

    def check_unused(self) -> None:
        """Raise RestoredTableUsedError if there are files of the restored log and others."""
        if self._copied:
            _check_unused(self.target, self.claim)

    def take_back(self) -> None:
        """Remove the files again, those first that make the table readable."""
        copied = self._copied
        for name in reversed(order_log(self.claim.log).all):
            if name in copied:
                self._delete(f"{LOG}/{name}")

    def forget(self) -> None:
        """Remove the copies that waited."""
        self._delete_folder(self.claim.staging)

    def forget_staging(self) -> None:
        """Remove the log that waits."""
        self._delete_folder(self.claim.staging)

    @property
    def _copied(self) -> Collection[str]:
        there = _sizes(self.target, LOG)
        return {name for name, size in self.claim.log.items() if there.get(name) == size}

    def _delete(self, path: str) -> None:
        with storage_errors(self.target), contextlib.suppress(FileNotFoundError):
            self.target.system.delete_file(self.target.path(path))

    def _delete_folder(self, folder: str) -> None:
        with storage_errors(self.target), contextlib.suppress(FileNotFoundError):
            self.target.system.delete_dir(self.target.path(folder))


def _check_unused(target: Place, claim: Claim) -> None:
    strange = sorted(name for name, size in _sizes(target, LOG).items() if claim.log.get(name) != size)
    if strange:
        raise RestoredTableUsedError(target.shown, strange)


def _sizes(target: Place, folder: str) -> Mapping[str, int]:
    return {path.removeprefix(f"{folder}/"): file.size for path, file in list_files(target, folder).items()}
