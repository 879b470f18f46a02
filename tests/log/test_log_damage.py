"""Damage to files: a torn end is cut and reported, anything else is refused; records are never made up or skipped."""

import shutil
from pathlib import Path

import pytest

from dw_platform.log import (
    CorruptSegmentError,
    FsyncPolicy,
    LogPolicy,
    PartitionLog,
    PartitionReader,
    Records,
    RecordsLostError,
    Severity,
    check,
    verify,
)
from dw_platform.log.segment import base_of
from tests.fakes.faulty_disk import FaultyDisk

VALUES = [b"value %d" % number for number in range(40)]
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def files() -> Files:
    """A log of two segments as a killed writer leaves it; every frame was fsynced before the next one."""
    disk = FaultyDisk()
    log = PartitionLog.open("p", LogPolicy(segment_bytes=1024), disk=disk)
    for start in range(0, len(VALUES), 4):
        log.append(Records(VALUES[start : start + 4]))
    found = {name: bytes(disk.content("p", name)) for name in disk.list("p") if base_of(name) is not None}
    assert len(found) == 2
    return found


def disk_with(files: Files, *, mark: int | None) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory("p")
    for name, content in files.items():
        with disk.create("p", name) as file:
            file.write([content])
            file.sync()
    disk.sync_directory("p")
    if mark is not None:
        disk.marks["p"] = [(0, mark)]
    return disk


def frames_before(content: bytes, position: int) -> int:
    """Return how many frames end at or before `position`."""
    at, frames = 64, 0
    while at < len(content):
        at += int.from_bytes(content[at + 8 : at + 12], "little")
        if at > position:
            break
        frames += 1
    return frames


def recovered(disk: FaultyDisk) -> list[bytes] | None:
    """Return what can be read after recovery, or None if it was refused."""
    try:
        log = PartitionLog.open("p", disk=disk)
    except CorruptSegmentError:
        return None
    reader, values, offset = PartitionReader("p", disk=disk), list[bytes](), 0
    end = log.recovery.lost[0] if log.recovery.lost else reader.end_offset()
    while offset < end:
        batch = reader.read(offset)
        for part in batch.batches:
            values += part["value"].to_pylist()
        offset = batch.next_offset
    return values


@pytest.mark.parametrize("mark", [None, 12, len(VALUES)])
def test_a_last_segment_cut_at_any_byte_gives_back_every_whole_batch(files: Files, mark: int | None) -> None:
    name = max(files)
    before = base_of(name) or 0
    for size in range(64, len(files[name])):
        disk = disk_with({**files, name: files[name][:size]}, mark=mark)
        values = recovered(disk)
        whole = before + 4 * frames_before(files[name], size)
        assert values == VALUES[:whole]


def test_a_last_segment_without_a_whole_header_is_refused(files: Files) -> None:
    name = max(files)
    for size in range(64):
        assert recovered(disk_with({**files, name: files[name][:size]}, mark=None)) is None


@pytest.mark.parametrize(("mark", "bits"), [(None, range(8)), (len(VALUES), range(1))])
def test_any_flipped_bit_is_cut_as_the_last_batch_or_refused(files: Files, mark: int | None, bits: range) -> None:
    last = max(files)
    final = _last_frame(files[last])
    for name, content in files.items():
        for number in range(len(content) * len(bits)):
            position, bit = divmod(number, len(bits))
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            values = recovered(disk_with({**files, name: bytes(damaged)}, mark=mark))
            assert values == (VALUES[:-4] if name == last and position >= final else None)


def _last_frame(content: bytes) -> int:
    at = 64
    while True:
        length = int.from_bytes(content[at + 8 : at + 12], "little")
        if at + length >= len(content):
            return at
        at += length


@pytest.mark.parametrize("tail", [bytes(700), b"\xff" * 13, b"DWLF" * 50])
def test_what_is_no_frame_behind_the_last_one_is_cut(files: Files, tail: bytes) -> None:
    name = max(files)
    disk = disk_with({**files, name: files[name] + tail}, mark=len(VALUES))
    with PartitionLog.open("p", disk=disk) as log:
        assert log.recovery.torn is not None
        assert log.recovery.torn.position == len(files[name])
        assert log.recovery.torn.bytes == len(tail)
        assert log.recovery.lost is None
        assert log.append(Records([b"next"])).base_offset == len(VALUES)


def test_a_frame_inside_a_record_is_not_taken_for_a_frame(files: Files) -> None:
    """A record that holds a copy of the log's own bytes must not make a torn write look like corruption."""
    disk = disk_with(files, mark=None)
    log = PartitionLog.open("p", LogPolicy(segment_bytes=10**6), disk=disk)
    name = max(files)
    # Whatever the alignment of the value is, one of the copies is aligned.
    copies = b"".join(files[name] + bytes(1) for _ in range(8))
    log.append(Records([copies]))
    del disk.content("p", name)[-100:]
    disk.kill()
    with PartitionLog.open("p", disk=disk) as again:
        assert again.recovery.torn is not None
        assert again.recovery.end_offset == len(VALUES) + 1  # its offset was acknowledged and stays used
        assert again.recovery.lost == (len(VALUES), len(VALUES) + 1)


def test_offsets_of_acknowledged_records_that_are_gone_are_not_used_again(files: Files) -> None:
    name = max(files)
    disk = disk_with({**files, name: files[name][:-10]}, mark=len(VALUES))
    with PartitionLog.open("p", disk=disk) as log:
        assert log.recovery.lost == (36, 40)
        assert log.append(Records([b"new"])).base_offset == 40
        reader = PartitionReader("p", disk=disk)
        assert reader.read(35).next_offset == 36
        with pytest.raises(RecordsLostError) as caught:
            reader.read(38)
        assert (caught.value.requested, caught.value.earliest) == (38, 40)
        assert reader.read(40).to_record_batch()["value"].to_pylist() == [b"new"]
    assert Severity.LOST in {finding.severity for finding in verify("p", disk=disk)}
    with PartitionLog.open("p", disk=disk) as log:
        assert log.recovery.lost is None


def test_a_missing_segment_in_the_middle_is_refused(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path, LogPolicy(segment_bytes=1024)) as log:
        for _ in range(10):
            log.append(Records([b"x" * 600]))
    segments = sorted(tmp_path.glob("*.segment"))
    segments[2].unlink()
    with pytest.raises(CorruptSegmentError, match="the next file follows"):
        PartitionLog.open(tmp_path)
    assert Severity.CORRUPT in {finding.severity for finding in verify(tmp_path)}


@pytest.mark.parametrize("alone_bytes", [0, 1 << 30])
def test_of_several_damaged_segments_the_oldest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone_bytes: int
) -> None:
    monkeypatch.setattr(check, "_ALONE_BYTES", alone_bytes)  # with threads or without
    with PartitionLog.open(tmp_path, LogPolicy(segment_bytes=1024)) as log:
        for start in range(0, 400, 4):
            log.append(Records([b"value %d" % number for number in range(start, start + 4)]))
    (tmp_path / "clean").unlink()
    with PartitionLog.open(tmp_path) as log:
        assert log.recovery.end_offset == 400
    (tmp_path / "clean").unlink()
    segments = sorted(tmp_path.glob("*.segment"))
    for damaged in (segments[4], segments[2]):
        content = bytearray(damaged.read_bytes())
        content[200] ^= 1
        damaged.write_bytes(content)
    with pytest.raises(CorruptSegmentError) as error:
        PartitionLog.open(tmp_path)
    assert error.value.file == str(segments[2])


def test_damage_in_a_closed_log_is_found_by_the_reader_and_by_verify(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path, LogPolicy(segment_bytes=1024)) as log:
        for _ in range(10):
            log.append(Records([b"x" * 600]))
    first = min(tmp_path.glob("*.segment"))
    content = bytearray(first.read_bytes())
    content[300] ^= 1
    first.write_bytes(content)
    # The last writer closed in order, so opening does not read the closed files.
    with PartitionLog.open(tmp_path) as log:
        assert log.recovery.clean
    with pytest.raises(CorruptSegmentError) as caught:
        PartitionReader(tmp_path).read(0)
    assert (caught.value.file, caught.value.position) == (str(first), 64)
    (finding,) = verify(tmp_path)
    assert (finding.severity, finding.file, finding.position) == (Severity.CORRUPT, str(first), 64)


def test_foreign_files_are_reported_and_left_alone(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path) as log:
        log.append(Records([b"one"]))
    for name in ("notes.tmp", "README", "12.segment"):
        (tmp_path / name).write_text("mine")
    with PartitionLog.open(tmp_path) as log:
        assert log.recovery.foreign == ("12.segment", "README", "notes.tmp")
        assert log.append(Records([b"two"])).base_offset == 1
    assert (tmp_path / "notes.tmp").read_text() == "mine"
    assert {finding.severity for finding in verify(tmp_path)} == {Severity.NOTE}


def test_a_foreign_file_under_a_segment_s_name_is_refused(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path) as log:
        log.append(Records([b"one"]))
    foreign = tmp_path / f"{7:020}.segment"
    foreign.write_bytes(b"not a segment" * 100)
    with pytest.raises(CorruptSegmentError) as caught:
        PartitionLog.open(tmp_path)
    assert caught.value.file == str(foreign)
    shutil.copy(tmp_path / f"{0:020}.segment", foreign)
    with pytest.raises(CorruptSegmentError, match="not the one in its name"):
        PartitionLog.open(tmp_path)


def test_a_log_whose_mark_index_and_lock_are_gone_is_still_whole(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path, LogPolicy(fsync=FsyncPolicy.never(), segment_bytes=10**6)) as log:
        for _ in range(30):
            log.append(Records([b"y" * 100_000]))
    for path in tmp_path.iterdir():
        if path.suffix != ".segment":
            path.unlink()
    reader = PartitionReader(tmp_path)
    assert (reader.start_offset(), reader.end_offset()) == (0, 30)
    assert reader.read(17, max_records=1).next_offset == 18
    with PartitionLog.open(tmp_path) as log:
        assert (log.recovery.clean, log.recovery.end_offset, log.recovery.torn) == (False, 30, None)


def test_a_wrong_index_slows_reading_and_does_not_change_it(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path, LogPolicy(fsync=FsyncPolicy.never())) as log:
        for number in range(30):
            log.append(Records([b"%05d" % number * 20_000]))
    (index,) = tmp_path.glob("*.index")
    assert index.stat().st_size > 0
    index.write_bytes(bytes(range(256)) * 2)
    reader = PartitionReader(tmp_path)
    assert reader.read(23, max_records=1).to_record_batch()["offset"].to_pylist() == [23]
    assert [finding.severity for finding in verify(tmp_path)] == [Severity.NOTE]
