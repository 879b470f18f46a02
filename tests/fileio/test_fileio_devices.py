from pathlib import Path

import pytest

from dw_platform.fileio import DeviceKind, disk_names, find_device, real_disks
from dw_platform.fileio.mounts import mount_of
from dw_platform.fileio.probe import Behaviour
from tests.fileio.system_trees import MadeSystem

NVME, SSD, HDD, VIRTUAL, NONE = DeviceKind.NVME, DeviceKind.SSD, DeviceKind.HDD, DeviceKind.VIRTUAL, DeviceKind.NONE


@pytest.fixture
def made(tmp_path: Path) -> MadeSystem:
    return MadeSystem(tmp_path / "system")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "my data"
    folder.mkdir()
    return folder


def not_measured(_: Path) -> Behaviour:
    raise AssertionError("a real disk need not be measured")


@pytest.mark.parametrize(
    ("disk", "kind", "depth"),
    [
        (("nvme0n1", "0"), NVME, 128),
        (("sda", "0"), SSD, 32),
        (("mmcblk0", "0"), SSD, 32),
        (("sdb", "1"), HDD, 8),
    ],
)
def test_a_real_disk_says_what_it_is_and_the_depth_follows(
    made: MadeSystem, data: Path, disk: tuple[str, str], kind: DeviceKind, depth: int
) -> None:
    name, rotational = disk
    made.disk(name, "8:0", rotational=rotational, vendor="ATA", model="ST4000")
    made.mount(data, "8:0")
    device = find_device(data, made.tree, measure=not_measured)
    assert (device.kind, device.behaves_like, device.disks, device.queue_depth) == (kind, kind, (name,), depth)


@pytest.mark.parametrize(
    ("name", "vendor", "model"),
    [
        ("vda", "0x1af4", ""),
        ("xvdf", "", ""),
        ("rbd0", "", ""),
        ("sda", "QEMU    ", "QEMU HARDDISK   "),
        ("sdb", "VMware  ", "Virtual disk    "),
        ("sdc", "Msft    ", "Virtual Disk    "),
        ("sdd", "Google  ", "PersistentDisk  "),
        ("nvme1n1", "", "Amazon Elastic Block Store"),
    ],
)
def test_a_virtual_disk_is_not_believed_but_measured(
    made: MadeSystem, data: Path, name: str, vendor: str, model: str
) -> None:
    made.disk(name, "254:0", rotational="1", vendor=vendor, model=model)
    made.mount(data, "254:0")
    device = find_device(data, made.tree, measure=lambda _: Behaviour(NVME, "measured in a test"))
    assert (device.kind, device.behaves_like, device.queue_depth) == (VIRTUAL, NVME, 128)
    assert "measured in a test" in device.reason


def test_a_virtual_disk_that_cannot_be_measured_counts_as_ssd_and_says_why(made: MadeSystem, data: Path) -> None:
    made.disk("vda", "254:0", rotational="1")
    made.mount(data, "254:0")
    device = find_device(data, made.tree, measure=lambda _: Behaviour(None, "not measured, no space"))
    assert device.queue_depth == 32
    assert "not measured, no space" in device.reason


def test_the_measurement_happens_in_the_nearest_folder_that_exists(made: MadeSystem, data: Path) -> None:
    made.disk("vda", "254:0")
    made.mount(data, "254:0")
    measured: list[Path] = []

    def measure(folder: Path) -> Behaviour:
        measured.append(folder)
        return Behaviour(SSD, "")

    find_device(data / "not" / "yet" / "there", made.tree, measure=measure)
    assert measured == [data]


def test_a_partition_is_its_disk(made: MadeSystem, data: Path) -> None:
    made.disk("sda", "8:0", rotational="1")
    made.partition("sda", "sda2", "8:2")
    made.mount(data, "8:2")
    device = find_device(data, made.tree, measure=not_measured)
    assert (device.kind, device.disks) == (HDD, ("sda",))


def test_a_mapping_is_as_slow_as_its_slowest_disk_and_counts_each_once(made: MadeSystem, data: Path) -> None:
    made.disk("sda", "8:0", rotational="1")
    made.partition("sda", "sda1", "8:1")
    made.partition("sda", "sda2", "8:2")
    made.disk("nvme0n1", "259:0")
    made.disk("dm-0", "253:0", slaves=("sda1", "sda2", "nvme0n1"))
    made.disk("dm-1", "253:1", slaves=("dm-0",))
    made.mount(data, "253:1")
    device = find_device(data, made.tree, measure=not_measured)
    assert device.kind is HDD
    assert sorted(device.disks) == ["nvme0n1", "sda"]


def test_a_file_system_with_a_number_of_its_own_is_found_by_what_was_mounted(made: MadeSystem, data: Path) -> None:
    made.disk("sda", "8:0", rotational="0")
    made.partition("sda", "sda3", "8:3")
    made.mount(data, "0:44", kind="btrfs", source="/dev/sda3")
    assert find_device(data, made.tree, measure=not_measured).disks == ("sda",)


@pytest.mark.parametrize(
    ("kind", "source"),
    [("tmpfs", "tmpfs"), ("overlay", "overlay"), ("nfs4", "server:/export"), ("virtiofs", "share")],
)
def test_what_has_no_block_device_gets_the_depth_of_an_ssd_and_a_reason(
    made: MadeSystem, data: Path, kind: str, source: str
) -> None:
    made.mount(data, "0:50", kind=kind, source=source)
    device = find_device(data, made.tree, measure=not_measured)
    assert (device.kind, device.disks, device.queue_depth) == (NONE, (), 32)
    assert kind in device.reason


def test_compressed_memory_is_no_disk(made: MadeSystem, data: Path) -> None:
    made.disk("zram0", "253:0")
    made.mount(data, "253:0")
    assert find_device(data, made.tree, measure=not_measured).kind is NONE


def test_a_system_that_tells_nothing_gives_a_reason(made: MadeSystem, data: Path) -> None:
    device = find_device(data, made.tree, measure=not_measured)
    assert (device.kind, device.queue_depth) == (NONE, 32)
    assert "does not say" in device.reason
    assert disk_names(made.tree) == ()


def test_the_innermost_mount_holds_a_path_and_a_later_one_hides_an_earlier_one(made: MadeSystem, data: Path) -> None:
    made.mounts(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
        "a line that makes no sense",
        f"2 1 8:2 / {data.parent} rw - xfs /dev/sda2 rw",
        f"3 1 8:3 / {data.parent} rw - ext4 /dev/sda3 rw",
        f"4 1 8:4 / {str(data).replace(' ', chr(92) + '040')}x rw - ext4 /dev/sda4 rw",
    )
    mount = mount_of(data / "file", made.tree)
    assert mount is not None
    assert mount.number == "8:3"


def test_disks_are_counted_without_their_doubles_and_without_what_is_none(made: MadeSystem) -> None:
    made.disk("sda", "8:0")
    made.partition("sda", "sda1", "8:1")
    made.disk("nvme0n1", "259:0")
    made.disk("nvme0c0n1", "259:1", hidden="1")
    made.disk("vda", "254:0")
    made.disk("dm-0", "253:0", slaves=("sda1",))
    made.disk("md127", "9:127", slaves=("sda1",))
    made.disk("bcache0", "252:0", slaves=("sda1",))
    made.disk("sdz", "8:99", size="0")
    for number, name in enumerate(("loop0", "ram0", "zram0", "sr0", "fd0", "mmcblk0boot0")):
        made.disk(name, f"7:{number}")
    assert disk_names(made.tree) == ("nvme0n1", "sda", "vda")
    assert real_disks(made.tree) == 3


def test_on_this_machine_every_disk_below_a_folder_is_one_of_those_that_are_counted(tmp_path: Path) -> None:
    device = find_device(tmp_path, measure=lambda _: Behaviour(SSD, "not measured in this test"))
    assert set(device.disks) <= set(disk_names())
    assert device.queue_depth in {8, 32, 128}
    assert bool(device.disks) == (device.kind is not NONE)
    assert device.reason
