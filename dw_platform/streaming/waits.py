"""Waiting that is written once and done twice: by a thread, or by a coroutine.

What may have to wait is a generator that yields a Wait wherever it does. `run` drives it on this thread, `run_async`
in an event loop. Whoever stops waiting, by a cancellation for instance, ends the generator at that place, so its
`finally` blocks see it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dw_platform.bus.waiting import Signal, WaitStrategy
from dw_platform.bus.waker import Waker

T = TypeVar("T")


class Wait(Protocol):
    """One place where a generator waits; both ways return the same."""

    def wait(self) -> Any:
        """Wait on this thread."""

    async def wait_async(self) -> Any:
        """Wait in the running event loop."""


Steps = Generator[Wait, Any, T]


def run(steps: Steps[T]) -> T:
    """Return what the generator returns, waiting on this thread."""
    try:
        wait = next(steps)
        while True:
            try:
                got = wait.wait()
            except BaseException as error:  # noqa: BLE001 - handed to the generator, which raises it again
                wait = steps.throw(error)
            else:
                wait = steps.send(got)
    except StopIteration as done:
        result: T = done.value
        return result


async def run_async(steps: Steps[T]) -> T:
    """Return what the generator returns, waiting in the event loop."""
    try:
        wait = next(steps)
        while True:
            try:
                got = await wait.wait_async()
            except BaseException as error:  # noqa: BLE001 - handed to the generator, which raises it again
                wait = steps.throw(error)
            else:
                wait = steps.send(got)
    except StopIteration as done:
        result: T = done.value
        return result


class Doorbell:
    """Threads and coroutines wait here for something that any thread may bring about."""

    def __init__(self) -> None:
        self._signal, self._waker = Signal(WaitStrategy.BLOCK), Waker()

    def ring(self) -> None:
        """Let everybody look again; cheap while nobody waits."""
        if self._signal.waiting:
            self._signal.wake()
        self._waker.notify()

    def until(self, look: Callable[[], bool], timeout_s: float | None) -> "Until":
        """Return a wait that ends, with whether `look` is true, when it is or after `timeout_s`."""
        return Until(self._signal, self._waker, look, timeout_s)


@dataclass(frozen=True, slots=True)
class Until:
    """Waits for a condition that somebody rings about."""

    signal: Signal
    waker: Waker
    look: Callable[[], bool]
    timeout_s: float | None

    def wait(self) -> bool:
        return self.signal.wait_for(self.look, self.timeout_s)

    async def wait_async(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout_s):
                return await self.waker.first(self.look)
        return self.look()


@dataclass(frozen=True, slots=True)
class Work:
    """Work that may block: done on this thread, or beside the event loop."""

    work: Callable[[], Any]

    def wait(self) -> Any:
        return self.work()

    async def wait_async(self) -> Any:
        return await asyncio.to_thread(self.work)


@dataclass(frozen=True, slots=True)
class Finished:
    """Waits for a future, which goes on whoever stops waiting; raises TimeoutError after `timeout_s`."""

    future: "Future[Any]"
    timeout_s: float | None = None

    def wait(self) -> Any:
        return self.future.result(self.timeout_s)

    async def wait_async(self) -> Any:
        async with asyncio.timeout(self.timeout_s):
            return await asyncio.shield(asyncio.wrap_future(self.future))
