import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dw_platform.fileio import detect_capabilities
from dw_platform.fileio.syscalls import io_uring_setup


def refusing(code: int) -> Callable[..., None]:
    def attempt(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return attempt


def accepting(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSYS, "Linux 5.1"),
        (errno.EPERM, "seccomp"),
        (errno.ENOMEM, "ulimit -l"),
        (errno.EMFILE, "Too many open files (EMFILE)"),
    ],
)
def test_a_refused_ring_has_the_reason_with_it(tmp_path: Path, code: int, reason: str) -> None:
    finding = detect_capabilities(tmp_path, try_io_uring=refusing(code), try_direct_io=accepting).io_uring
    assert not finding.available
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.EINVAL, "does not support O_DIRECT"), (errno.EROFS, "read-only"), (errno.EIO, "Input/output error")],
)
def test_refused_direct_io_has_the_reason_with_it(tmp_path: Path, code: int, reason: str) -> None:
    found = detect_capabilities(tmp_path, try_io_uring=accepting, try_direct_io=refusing(code))
    assert found.io_uring.available
    assert not found.direct_io.available
    assert reason in found.direct_io.reason


def test_on_this_machine_a_finding_agrees_with_the_kernel_and_nothing_is_left_behind(tmp_path: Path) -> None:
    refused_with = ""
    try:
        io_uring_setup()
    except OSError as error:
        refused_with = errno.errorcode[error.errno or 0]
    found = detect_capabilities(tmp_path)
    assert found.io_uring.available == (not refused_with)
    assert refused_with in found.io_uring.reason
    assert found.direct_io.reason
    assert list(tmp_path.iterdir()) == []


def test_rings_that_were_set_up_are_given_back() -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208  names are all that is wanted
    for _ in range(20):
        try:
            io_uring_setup()
        except OSError as error:
            pytest.skip(f"io_uring is not available here: {error.strerror}")
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


def test_a_folder_that_is_not_there_is_a_reason_and_no_error(tmp_path: Path) -> None:
    finding = detect_capabilities(tmp_path / "missing").direct_io
    assert not finding.available
    assert "does not exist" in finding.reason


def test_without_a_folder_direct_io_is_not_tried() -> None:
    finding = detect_capabilities(None, try_direct_io=accepting).direct_io
    assert not finding.available
    assert "no folder" in finding.reason
