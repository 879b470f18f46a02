"""What the kernel offers for file I/O here, found out by trying, with the reason where it refuses.

Versions and flags are not read: a container may forbid what its kernel can do, and a file system may refuse what its
neighbour allows. What was tried is what is available.

Direct I/O that works is no proof that a device is behind it: memory file systems accept it as well.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dw_platform.fileio.direct import ALIGNED, aligned_buffer, opened_direct, trial_file
from dw_platform.fileio.syscalls import io_uring_setup
from dw_platform.foundation import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether something is available, and why or why not."""

    available: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IoCapabilities:
    """What a folder's file system and this process may use."""

    io_uring: Finding
    direct_io: Finding


_IO_URING_REFUSALS = {
    errno.ENOSYS: "the kernel has no io_uring, which came with Linux 5.1",
    errno.EPERM: "forbidden, by kernel.io_uring_disabled or by the seccomp filter of the container",
    errno.EACCES: "forbidden, by a security module",
    errno.ENOMEM: "no memory may be locked for it, see ulimit -l",
}
_DIRECT_REFUSALS = {
    errno.EINVAL: "the file system does not support O_DIRECT",
    errno.EOPNOTSUPP: "the file system does not support O_DIRECT",
    errno.EROFS: "the file system is read-only, so it cannot be tried",
    errno.EACCES: "the folder is not writable for this process, so it cannot be tried",
    errno.ENOENT: "the folder does not exist",
    errno.ENOSPC: "the file system is full, so it cannot be tried",
}


def detect_capabilities(
    folder: Path | None,
    *,
    try_io_uring: Callable[[], None] = io_uring_setup,
    try_direct_io: Callable[[Path], None] | None = None,
) -> IoCapabilities:
    """Try both now; writes one block into a file without a name in `folder`, or leaves direct I/O out without one."""
    io_uring = _found(try_io_uring, "a ring was set up", _IO_URING_REFUSALS)
    if folder is None:
        return IoCapabilities(io_uring=io_uring, direct_io=Finding(available=False, reason="no folder to try it in"))
    attempt = partial(try_direct_io or write_and_read_directly, folder)
    return IoCapabilities(
        io_uring=io_uring, direct_io=_found(attempt, "one aligned block was written and read back", _DIRECT_REFUSALS)
    )


def write_and_read_directly(folder: Path) -> None:
    """Write one aligned block past the page cache and read it back; raises OSError where that is not possible."""
    block = os.urandom(ALIGNED)
    with (
        trial_file(folder) as descriptor,
        opened_direct(descriptor, os.O_RDWR) as direct,
        aligned_buffer(ALIGNED) as buffer,
    ):
        buffer[:] = block
        written = os.pwrite(direct, buffer, 0)
        buffer[:] = bytes(ALIGNED)
        if written != ALIGNED or os.preadv(direct, [buffer], 0) != ALIGNED or buffer[:] != block:
            raise OSError(errno.EIO, "what was written could not be read back")


class CapabilityWatch:
    """What was found last, tried again when asked after `every_s()` seconds; any thread may ask."""

    def __init__(
        self,
        folder: Path | None,
        every_s: Callable[[], float],
        *,
        detect: Callable[[Path | None], IoCapabilities],
        clock: Clock,
    ) -> None:
        self._folder, self._every_s, self._detect, self._clock = folder, every_s, detect, clock
        self._lock = threading.Lock()
        self._found, self._found_s = detect(folder), clock.monotonic()

    def current(self) -> IoCapabilities:
        """Return what is available, and log what has changed since the last trial."""
        with self._lock:
            before, now_s = self._found, self._clock.monotonic()
            if now_s - self._found_s >= self._every_s():
                self._found, self._found_s = self._detect(self._folder), now_s
                _log_changes(before, self._found)
            return self._found


def _log_changes(before: IoCapabilities, after: IoCapabilities) -> None:
    for what, old, new in (
        ("io_uring", before.io_uring, after.io_uring),
        ("direct_io", before.direct_io, after.direct_io),
    ):
        if old.available != new.available:
            facts = {"what": what, "available": new.available, "reason": new.reason}
            log.info("what the kernel offers has changed", extra=facts)


def _found(attempt: Callable[[], None], success: str, refusals: dict[int, str]) -> Finding:
    try:
        attempt()
    except OSError as error:
        code = error.errno or 0
        name = errno.errorcode.get(code, str(code))
        return Finding(available=False, reason=f"{refusals.get(code, error.strerror or str(error))} ({name})")
    return Finding(available=True, reason=success)
