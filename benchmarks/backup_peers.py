"""How others back up a folder: restic, borg, rclone and `cp`, each as it comes from its command line.

What does not fsync by itself is followed by a `sync` of the disk's dirty pages, inside the measured time, so that all
end with what they wrote on disk. Backups and checks run at the nice value that the platform's own copies give
themselves, and encryption and compression are off where the program's version allows it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dw_platform.fileio.polite import POLITE_NICE


@dataclass(frozen=True)
class Peer:
    """One program with a place of its own."""

    table: Path
    folder: Path

    name: ClassVar[str]
    program: ClassVar[str]
    asking: ClassVar[tuple[str, ...]] = ("--version",)

    @property
    def kept(self) -> Path:
        """Return where its backups are."""
        return self.folder / "kept"

    @property
    def restored(self) -> Path:
        """Return where it restores to."""
        return self.folder / "restored"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what keeps it away from the settings and caches of whoever runs this."""
        return {}

    @cached_property
    def version(self) -> str | None:
        """Return its version, None if it is not installed."""
        if (found := path_of(self.program)) is None:
            return None
        told = subprocess.run([found, *self.asking], capture_output=True, text=True, check=True).stdout
        number = re.search(r"\d+(\.\d+)+", told)
        return number[0] if number else told.strip()

    def empty(self) -> None:
        """Forget all backups and make a place for new ones."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def make_room(self) -> None:
        """Forget what was restored."""
        shutil.rmtree(self.restored, ignore_errors=True)
        self.restored.mkdir(parents=True)

    def load(self) -> None:
        """Read the program from disk, whose cached pages were dropped along with those of the table."""
        self._run(self.asking)

    def _run(self, arguments: Sequence[str], *, inside: Path | None = None, polite: bool = False) -> str:
        manners = ["nice", "-n", str(POLITE_NICE)] if polite else []
        program = path_of(self.program)
        assert program is not None
        done = subprocess.run(
            [*manners, program, *arguments],
            cwd=inside or self.table,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{self.program} {arguments}: {done.stderr[-3000:]}"
        return done.stdout


class Restic(Peer):
    """Always encrypted before 0.17; its local repository is fsynced, what it restores is not."""

    name, program, asking = "restic", "restic", ("version",)

    @property
    def environment(self) -> Mapping[str, str]:
        place = {"RESTIC_REPOSITORY": str(self.kept), "RESTIC_CACHE_DIR": str(self.folder / "cache")}
        return place if self._without_password else {**place, "RESTIC_PASSWORD": "measured"}

    @property
    def _without_password(self) -> bool:
        return _numbers(self.version) >= (0, 17)

    def empty(self) -> None:
        super().empty()
        self._restic("init", "--repository-version", "2")

    def back_up(self) -> None:
        """Take a snapshot; one of the same folder before it makes it an increment."""
        self._restic("backup", "--compression", "off", ".", polite=True)

    def restore(self) -> None:
        """Write the newest snapshot to a folder."""
        self._restic("restore", "latest", "--target", str(self.restored))
        sync(self.restored)

    def verify(self) -> None:
        """Read everything back."""
        self._restic("check", "--read-data", polite=True)

    def _restic(self, *arguments: str, polite: bool = False) -> None:
        switches = ["--quiet", *(["--insecure-no-password"] if self._without_password else [])]
        self._run([*switches, *arguments], polite=polite)


class Borg(Peer):
    """Without encryption; its repository is fsynced, what it restores is not."""

    name, program = "borg", "borg"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"BORG_BASE_DIR": str(self.folder), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}

    def empty(self) -> None:
        super().empty()
        self._run(["init", "--encryption", "none", str(self.kept)])

    def back_up(self) -> None:
        """Make an archive; what its cache of files knows is not read again."""
        self._run(["create", "--compression", "none", f"{self.kept}::{{now:%H%M%S.%f}}", "."], polite=True)

    def restore(self) -> None:
        """Write the newest archive to a folder."""
        newest = self._run(["list", "--last", "1", "--format", "{archive}", str(self.kept)])
        self._run(["extract", f"{self.kept}::{newest}"], inside=self.restored)
        sync(self.restored)

    def verify(self) -> None:
        """Read everything back."""
        self._run(["check", "--verify-data", str(self.kept)], polite=True)


class Rclone(Peer):
    """Copies files that are new or different; compares a hash of each with that of its copy, and fsyncs nothing."""

    name, program, asking = "rclone", "rclone", ("version",)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"RCLONE_CONFIG": os.devnull}

    def back_up(self) -> None:
        """Copy what is not there yet."""
        self._run(["copy", "--quiet", ".", str(self.kept)], polite=True)
        sync(self.kept)


class Copy(Peer):
    """Hashes nothing and keeps one state only."""

    name, program = "cp -r", "cp"

    def back_up(self) -> None:
        """Copy everything."""
        self._run(["-r", ".", str(self.kept)], polite=True)
        sync(self.kept)


def installed(table: Path, folder: Path) -> tuple[list[Any], list[str]]:
    """Return the peers that are there, and the names of those that are not."""
    peers = [kind(table, folder / kind.program) for kind in (Restic, Borg, Rclone, Copy)]
    return [peer for peer in peers if peer.version], [peer.name for peer in peers if not peer.version]


def hash_files(program: Sequence[str], files: Sequence[Path]) -> None:
    """Let a program hash files, several at a time so that all cores have work."""
    names = b"\0".join(str(path).encode() for path in files)
    side_by_side = ["nice", "-n", str(POLITE_NICE), "xargs", "-0", "-n", "4", "-P", str(os.cpu_count() or 1)]
    subprocess.run([*side_by_side, *program], input=names, stdout=subprocess.DEVNULL, check=True)


def sync(place: Path) -> None:
    """Write to disk whatever the file system of a folder has not written yet."""
    subprocess.run(["sync", "-f", str(place)], check=True)


def path_of(program: str) -> str | None:
    """Return where a program is; some come as a wheel, into the folder of this Python."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "0").split(".") if part.isdigit())
