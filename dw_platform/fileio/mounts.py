"""Which file system a path lies on, as /proc/self/mountinfo says."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dw_platform.fileio.system import THIS_SYSTEM, SystemTree

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    point: Path
    number: str
    """Major and minor number of its device, `8:1`; major 0 stands for no block device of its own."""

    kind: str
    """Its type: ext4, btrfs, overlay, tmpfs, nfs4."""

    source: str
    """What was mounted: /dev/sda1, overlay, server:/export."""


def mount_of(path: Path, system: SystemTree = THIS_SYSTEM) -> Mount | None:
    """Return the file system that holds `path`, which need not exist yet; None where the kernel does not say."""
    real = Path(os.path.realpath(path))
    holding = [mount for mount in mounts(system) if real.is_relative_to(mount.point)]
    # Of several at one place the last one mounted hides the others.
    return max(enumerate(holding), key=lambda item: (len(item[1].point.parts), item[0]))[1] if holding else None


def mounts(system: SystemTree = THIS_SYSTEM) -> list[Mount]:
    """Return every mounted file system, in the order of the kernel; lines that make no sense are left out."""
    lines = system.text(system.proc / "self" / "mountinfo").splitlines()
    return [mount for line in lines if (mount := _parsed(line))]


def _parsed(line: str) -> Mount | None:
    # 27 1 254:0 / /data rw,relatime shared:1 - ext4 /dev/vda rw,discard    (any number of fields before the dash)
    place, dash, origin = line.partition(" - ")
    fields, source = place.split(" "), origin.split(" ")
    if not dash or len(fields) < 6 or len(source) < 2:
        return None
    return Mount(point=Path(_plain(fields[4])), number=fields[2], kind=source[0], source=_plain(source[1]))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
