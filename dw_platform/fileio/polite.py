"""A thread that makes way for others: on processors, and on disks whose I/O scheduler knows priorities."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from dw_platform.fileio.syscalls import LOWEST_BEST_EFFORT, io_priority, set_io_priority

T = TypeVar("T")

log = logging.getLogger(__name__)

# Half way to the lowest: it makes way for everything ordinary and still goes before what is meant for nights.
POLITE_NICE = 10


@contextmanager
def polite_thread() -> Iterator[None]:
    """Lower the calling thread's nice value and I/O priority, and give both back at the end where that is allowed.

    Meant for threads that end with the work: without special rights a thread may lower its processor priority but
    never raise it again. What the system refuses is left as it is, with a line in the log at debug level.
    """
    thread_id = threading.get_native_id()
    nice = _tried("nice", lambda: os.getpriority(os.PRIO_PROCESS, thread_id))
    disk = _tried("I/O priority", lambda: io_priority(thread_id))
    if nice is not None and nice < POLITE_NICE:
        _tried("nice", lambda: os.setpriority(os.PRIO_PROCESS, thread_id, POLITE_NICE))
    if disk is not None:
        _tried("I/O priority", lambda: set_io_priority(thread_id, LOWEST_BEST_EFFORT))
    try:
        yield
    finally:
        if disk is not None:
            _tried("I/O priority", lambda: set_io_priority(thread_id, disk))
        if nice is not None and nice < POLITE_NICE:
            _tried("nice", lambda: os.setpriority(os.PRIO_PROCESS, thread_id, nice))


def _tried(what: str, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except OSError as error:
        log.debug("thread not as polite as it could be", extra={"what": what, "reason": error.strerror})
        return None
