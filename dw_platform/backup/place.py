"""A folder on this machine or in a bucket, as backups read and write it; picklable, so that Spark tasks receive it."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True)
class Place:
    """pyarrow's file system and a folder inside it; credentials stay out of its repr."""

    system: pafs.FileSystem
    root: str

    @classmethod
    def at(cls, folder: Path | str) -> "Place":
        """Return a folder of this machine."""
        return cls(pafs.LocalFileSystem(), str(folder))

    def __repr__(self) -> str:
        return f"Place({self.shown!r})"

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, pafs.LocalFileSystem)

    @property
    def local(self) -> Path:
        """Return the folder of a local place."""
        return Path(self.root)

    @property
    def shown(self) -> str:
        """Return what people read: a path, or an s3:// address without credentials."""
        return self.root if self.is_local else f"s3://{self.root}"

    def path(self, relative: str) -> str:
        """Return where a file of this place is, for its file system."""
        return f"{self.root}/{relative}"

    def child(self, relative: str) -> "Place":
        """Return a folder inside this one."""
        return Place(self.system, self.path(relative))
