"""A lock between processes of one machine that dies with its holder.

The kernel releases it when the holding process ends, however it ends, so a killed writer blocks nobody.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from dw_platform.foundation import Clock, SystemClock

_SYSTEM_CLOCK = SystemClock()
_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02


@contextlib.contextmanager
def file_lock(path: Path, *, shared: bool, timeout_s: float, clock: Clock = _SYSTEM_CLOCK) -> Iterator[None]:
    """Hold the lock on `path`, alone or with other shared holders; raise TimeoutError if it is not free in time."""
    # A descriptor of its own for each holder: the lock then also keeps the threads of one process apart.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait_for(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, path, timeout_s, clock)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, operation: int, path: Path, timeout_s: float, clock: Clock) -> None:
    deadline, pause = clock.monotonic() + timeout_s, _PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if clock.monotonic() >= deadline:
                raise TimeoutError(f"{path} stayed locked for {timeout_s:g} s") from error
            clock.wait(threading.Event(), pause)
            pause = min(_LONGEST_PAUSE_S, pause * 1.5)
        else:
            return
