"""Trees in the layout of procfs and sysfs, as a kernel with these disks would show them."""

from dataclasses import dataclass
from pathlib import Path

from dw_platform.fileio.system import SystemTree

DISKSTATS = (
    "{major} {minor} {name} {reads} 0 {read_sectors} {read_ms} {writes} 0 {write_sectors} {write_ms} "
    "{in_flight} {busy_ms} {queue_ms} 0 0 0 0 0 0\n"
)


@dataclass(frozen=True, slots=True)
class MadeSystem:
    """A tree below a temporary folder; `tree` is what the code under test gets."""

    root: Path

    @property
    def tree(self) -> SystemTree:
        return SystemTree(proc=self.root / "proc", sys=self.root / "sys")

    def disk(
        self,
        name: str,
        number: str,
        *,
        rotational: str = "0",
        vendor: str = "",
        model: str = "",
        size: str = "1000",
        hidden: str = "0",
        slaves: tuple[str, ...] = (),
    ) -> Path:
        folder = self.root / "sys" / "devices" / name
        _write(folder / "size", size)
        _write(folder / "hidden", hidden)
        _write(folder / "queue" / "rotational", rotational)
        _write(folder / "device" / "vendor", vendor)
        _write(folder / "device" / "model", model)
        (folder / "slaves").mkdir()
        for slave in slaves:
            (folder / "slaves" / slave).symlink_to((self.root / "sys" / "class" / "block" / slave).resolve())
        self._linked(folder, number, "block")
        return folder

    def partition(self, disk: str, name: str, number: str) -> None:
        folder = self.root / "sys" / "devices" / disk / name
        _write(folder / "partition", "1")
        self._linked(folder, number)

    def mounts(self, *lines: str) -> None:
        _write(self.root / "proc" / "self" / "mountinfo", "\n".join(lines))

    def mount(self, point: Path, number: str, kind: str = "ext4", source: str = "/dev/whatever") -> None:
        escaped = str(point).replace(" ", "\\040")
        self.mounts(
            "22 27 0:21 / /proc rw,relatime - proc proc rw",
            "27 1 0:99 / / rw,relatime - rootfs rootfs rw",
            f"28 27 {number} / {escaped} rw,relatime shared:1 master:2 - {kind} {source} rw",
        )

    def diskstats(self, *lines: str) -> None:
        _write(self.root / "proc" / "diskstats", "".join(lines))

    def boot(self, boot_id: str) -> None:
        _write(self.root / "proc" / "sys" / "kernel" / "random" / "boot_id", boot_id + "\n")

    def io_pressure(self, text: str) -> None:
        _write(self.root / "proc" / "pressure" / "io", text)

    def _linked(self, folder: Path, number: str, *listings: str) -> None:
        for place in (
            *(self.root / "sys" / listing / folder.name for listing in listings),
            self.root / "sys" / "class" / "block" / folder.name,
            self.root / "sys" / "dev" / "block" / number,
        ):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(folder)


def stats_line(name: str, **numbers: int) -> str:
    """Return one disk's line of /proc/diskstats."""
    fields = dict.fromkeys(
        ("reads", "read_sectors", "read_ms", "writes", "write_sectors", "write_ms", "in_flight", "busy_ms", "queue_ms"),
        0,
    )
    return DISKSTATS.format(major=8, minor=0, name=name, **(fields | numbers))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
