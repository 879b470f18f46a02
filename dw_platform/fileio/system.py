"""Where the kernel tells about itself; tests put a tree of their own in its place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTree:
    """The roots of procfs and sysfs."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")

    def text(self, path: Path) -> str:
        """Return a small file's text without the newline at its end; empty if it is not there or not for us."""
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


THIS_SYSTEM = SystemTree()
