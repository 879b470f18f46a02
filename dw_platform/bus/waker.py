"""Lets coroutines wait for something that any thread may bring about."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Waker:
    """`notify` is cheap while nobody waits; each waiter looks again after every notification."""

    def __init__(self) -> None:
        self._waiters: set[_Waiter] = set()

    def notify(self) -> None:
        """Let every waiter look again; any thread may call this."""
        for loop, future in tuple(self._waiters):
            # A loop that was closed has no coroutine left that could miss this.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, future)

    async def first(self, look: Callable[[], T]) -> T:
        """Return the first result of `look` that is not empty, looking now and after every notification."""
        while not (found := look()):
            loop = asyncio.get_running_loop()
            waiter = (loop, loop.create_future())
            self._waiters.add(waiter)
            try:
                # Once more, because a notification may have come before the waiter was known.
                if found := look():
                    return found
                await waiter[1]
            finally:
                self._waiters.discard(waiter)
        return found


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
