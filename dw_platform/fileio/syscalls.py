"""Three system calls that Python has no function for: by number, through the C library.

Their numbers are the same on all machines that are named here, except those of the I/O priority.
"""

import ctypes
import errno
import functools
import os
import platform
import sys
from collections.abc import Callable

_IO_URING_SETUP = 425
_IOPRIO_GET_SET = {"x86_64": (252, 251), "aarch64": (31, 30), "riscv64": (31, 30)}
_IO_URING_PARAMS_BYTES = 120

_ONE_THREAD = 1
_CLASS_SHIFT = 13
_BEST_EFFORT = 2
_LOWEST_LEVEL = 7

LOWEST_BEST_EFFORT = (_BEST_EFFORT << _CLASS_SHIFT) | _LOWEST_LEVEL
"""The last of the eight levels of the ordinary class; the idle class below it may wait for ever."""


def io_uring_setup() -> None:
    """Set up a ring of four entries and give it back; raises OSError if the kernel does not allow it."""
    params = (ctypes.c_char * _IO_URING_PARAMS_BYTES)()
    os.close(_call(_IO_URING_SETUP, ctypes.c_long(4), params))


def io_priority(thread_id: int) -> int:
    """Return the I/O priority of one thread; 0 if it has none of its own."""
    return _call(_priority_calls()[0], ctypes.c_long(_ONE_THREAD), ctypes.c_long(thread_id))


def set_io_priority(thread_id: int, priority: int) -> None:
    """Give one thread another I/O priority; only schedulers that know priorities (BFQ, mq-deadline) act on it."""
    _call(_priority_calls()[1], ctypes.c_long(_ONE_THREAD), ctypes.c_long(thread_id), ctypes.c_long(priority))


def _priority_calls() -> tuple[int, int]:
    calls = _IOPRIO_GET_SET.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"the call's number on {platform.machine()} is not known here")
    return calls


def _call(number: int, *arguments: object) -> int:
    result = int(_syscall()(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@functools.cache
def _syscall() -> Callable[..., int]:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, f"{sys.platform} has no such call")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call
