"""The disks of a machine, and what each says it is, from sysfs.

A disk is something that a request ends at: no partition, no mapping onto other disks, no memory, no drive for
removable discs. What a virtual disk says about itself is not believed: virtio reports a turning disk (`rotational` 1)
in front of the fastest flash, so it stays VIRTUAL until it is measured.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dw_platform.fileio.system import THIS_SYSTEM, SystemTree


class DeviceKind(StrEnum):
    """What a device behaves like."""

    NVME = "nvme"
    SSD = "ssd"
    HDD = "hdd"
    VIRTUAL = "virtual"
    """A disk that another machine emulates: only a measurement tells."""

    NONE = "none"
    """No block device of its own: memory, network, layers over other file systems."""


# A mapping is as slow as its slowest part, and not known before all parts are.
SLOWEST_FIRST = (DeviceKind.VIRTUAL, DeviceKind.HDD, DeviceKind.SSD, DeviceKind.NVME)

_NOT_DISKS = re.compile(r"(loop|ram|zram|sr|scd|fd|dm-|md|mtdblock)\d+|mmcblk\d+(boot\d+|rpmb)")
_VIRTUAL_NAMES = re.compile(r"x?vd[a-z]+|(rbd|nbd|loop)\d+")
# What clouds and emulators write into the maker and model of a disk, also where it speaks NVMe.
_VIRTUAL_MAKERS = ("qemu", "vmware", "vbox", "msft", "google", "xen", "virtual", "amazon elastic", "nvme_card")


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk and what it looks like from outside."""

    name: str
    kind: DeviceKind
    reason: str


def real_disks(system: SystemTree = THIS_SYSTEM) -> int:
    """Return how many disks the machine has; 0 where none can be seen."""
    return len(disk_names(system))


def disk_names(system: SystemTree = THIS_SYSTEM) -> tuple[str, ...]:
    """Return the names of the machine's disks, such as `sda` and `nvme0n1`, each real one once."""
    folder = system.sys / "block"
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return tuple(name for name in names if not _NOT_DISKS.fullmatch(name) and _holds_data(folder / name, system))


def describe_disk(folder: Path, system: SystemTree = THIS_SYSTEM) -> Disk:
    """Return the disk whose folder in sysfs that is."""
    name, turns = folder.name, system.text(folder / "queue" / "rotational")
    maker = " ".join(system.text(folder / "device" / part) for part in ("vendor", "model")).lower()
    if _VIRTUAL_NAMES.fullmatch(name):
        return Disk(name, DeviceKind.VIRTUAL, f"{name} is a virtual disk")
    if any(word in maker for word in _VIRTUAL_MAKERS):
        return Disk(name, DeviceKind.VIRTUAL, f"{name} is a virtual disk ({' '.join(maker.split())})")
    if name.startswith("nvme"):
        return Disk(name, DeviceKind.NVME, f"{name} speaks NVMe")
    if turns == "1":
        return Disk(name, DeviceKind.HDD, f"{name} turns")
    if turns == "0":
        return Disk(name, DeviceKind.SSD, f"{name} does not turn")
    return Disk(name, DeviceKind.VIRTUAL, f"{name} does not say whether it turns")


def disks_below(folder: Path, system: SystemTree = THIS_SYSTEM) -> tuple[Disk, ...]:
    """Return the disks that a block device ends at: itself, its partition's disk, or the disks of its mapping."""
    real = folder.resolve()
    if (real / "partition").exists():
        return disks_below(real.parent, system)
    slaves = real / "slaves"
    below = sorted(slaves.iterdir()) if slaves.is_dir() else []
    if not below:
        return (describe_disk(real, system),)
    # Two partitions of a mapping may lie on one disk; it counts once.
    return tuple(dict.fromkeys(disk for slave in below for disk in disks_below(slave, system)))


def _holds_data(folder: Path, system: SystemTree) -> bool:
    if system.text(folder / "hidden") == "1":  # one path of several to the same NVMe disk
        return False
    slaves = folder / "slaves"
    if slaves.is_dir() and any(slaves.iterdir()):  # bcache and the like: counted as what lies below
        return False
    return system.text(folder / "size") not in {"", "0"}
