import errno
import itertools
import os
from pathlib import Path

import pytest

from dw_platform.fileio import DeviceKind
from dw_platform.fileio.probe import ProbeBudget, Shape, classify, measure_behaviour
from dw_platform.foundation import FakeClock

SMALL = ProbeBudget(file_bytes=8 << 20, least_bytes=4 << 20, write_s=20, read_s=0.02)


@pytest.mark.parametrize(
    ("what", "small_ms", "alone_mb", "together_mb", "kind"),
    [
        ("NVMe in the same machine", 0.08, 500, 3_000, DeviceKind.NVME),
        ("virtio in front of flash", 0.06, 420, 930, DeviceKind.NVME),
        ("an SSD on SATA", 0.12, 250, 540, DeviceKind.SSD),
        ("a disk of a cloud, over the network", 0.9, 60, 250, DeviceKind.SSD),
        ("the same when it is overloaded", 3.0, 15, 110, DeviceKind.SSD),
        ("a disk of 7,200 rpm", 8.0, 7, 11, DeviceKind.HDD),
        ("a disk of 15,000 rpm", 3.5, 15, 30, DeviceKind.HDD),
    ],
)
def test_the_kind_follows_the_time_of_a_read_and_the_gain_of_many(
    what: str, small_ms: float, alone_mb: float, together_mb: float, kind: DeviceKind
) -> None:
    behaviour = classify(
        Shape(small_read_ms=small_ms, alone_bytes_per_s=alone_mb * 1e6, together_bytes_per_s=together_mb * 1e6)
    )
    assert behaviour.kind is kind, what
    assert f"{small_ms:.2f} ms" in behaviour.reason


def test_a_measurement_gives_a_kind_or_a_reason_and_leaves_nothing_behind(tmp_path: Path) -> None:
    behaviour = measure_behaviour(tmp_path, SMALL)
    assert behaviour.kind in {DeviceKind.NVME, DeviceKind.SSD, DeviceKind.HDD, None}
    assert behaviour.reason.startswith("measured" if behaviour.kind else "not measured")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_refuses_is_a_reason_and_no_error(tmp_path: Path) -> None:
    behaviour = measure_behaviour(tmp_path / "missing", SMALL)
    assert behaviour.kind is None
    assert "refused: No such file or directory" in behaviour.reason


def test_a_file_system_without_direct_io_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def no_direct(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return really_open(path, flags, mode, **more)

    monkeypatch.setattr("dw_platform.fileio.direct.os.open", no_direct)
    behaviour = measure_behaviour(tmp_path, SMALL)
    assert behaviour.kind is None
    assert "Invalid argument" in behaviour.reason


def test_nothing_is_measured_when_the_time_for_writing_is_over(tmp_path: Path) -> None:
    class Slow(FakeClock):
        def monotonic(self) -> float:
            self.advance(0.6)
            return super().monotonic()

    behaviour = measure_behaviour(tmp_path, ProbeBudget(file_bytes=64 << 20, write_s=1.0), clock=Slow())
    assert behaviour.kind is None
    assert "4 MB were written in 1 s" in behaviour.reason


def test_no_more_is_written_than_a_share_of_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = itertools.count()
    really_write = os.pwrite

    def counted(descriptor: int, data: bytes, offset: int) -> int:
        next(written)
        return really_write(descriptor, data, offset)

    monkeypatch.setattr("dw_platform.fileio.probe.os.pwrite", counted)
    behaviour = measure_behaviour(tmp_path, ProbeBudget(free_share=0.0))
    assert behaviour.kind is None
    assert next(written) == 0
