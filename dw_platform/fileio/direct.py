"""Files for a trial, without a name and past the page cache.

A trial file has no name (O_TMPFILE, or removed at once where that is not supported), so a crash leaves nothing behind.
"""

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What every device takes: none has larger sectors, and a page is always aligned to it.
ALIGNED = 4_096


@contextlib.contextmanager
def trial_file(folder: Path) -> Iterator[int]:
    """Yield the descriptor of an empty file in `folder` that nobody else can see."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        yield file.fileno()


@contextlib.contextmanager
def opened_direct(descriptor: int, flags: int) -> Iterator[int]:
    """Yield a second descriptor of the same file, which passes the page cache by; raises OSError where it cannot."""
    direct = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_DIRECT)
    try:
        yield direct
    finally:
        os.close(direct)


@contextlib.contextmanager
def aligned_buffer(nbytes: int) -> Iterator[mmap.mmap]:
    """Yield a buffer of its own pages, as direct I/O demands."""
    with mmap.mmap(-1, nbytes) as buffer:
        yield buffer
