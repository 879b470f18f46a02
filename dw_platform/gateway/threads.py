"""Work that would hold up the event loop: disks, brokers, long parsing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# Mostly waiting for disks and brokers; parsing takes turns under the interpreter's lock anyway.
WORKERS = 8


class Threads:
    """A few threads of the gateway's own, so that nobody else's work can occupy them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="gateway")

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return what `work` returns, without holding up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def close(self) -> None:
        """Let what is under way finish."""
        self._pool.shutdown(cancel_futures=True)
