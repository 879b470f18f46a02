"""Several streams of file I/O over one list of pieces, as many at once as the disks take.

    copied = run_streams(files, lambda file, io: store.put(file, io=io), policy)

A stream is a thread. Those of Low priority are polite: other work on the same cores and disks goes before them. Each
read and write asks `io` first, which lets it wait for its turn among everything that this process reads and writes.
What begins with High priority is wanted now: its number of streams does not shrink.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from dw_platform.fileio.crew import Crew, CrewStoppedError
from dw_platform.fileio.diskstats import CounterSource
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.manager import FilesystemScalingManager
from dw_platform.fileio.polite import polite_thread
from dw_platform.fileio.priority import IoPriority
from dw_platform.fileio.sampling import UtilisationSampler
from dw_platform.foundation import Clock
from dw_platform.scaling.concurrency import ConcurrencyPolicy, LatencyTrail, decide_concurrency

P = TypeVar("P")
R = TypeVar("R")

IoGate = Callable[[int], AbstractContextManager[Any]]
"""Admits one read or write of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPolicy:
    """Whose streams they are, and how their number follows the disks; picklable, for tasks elsewhere."""

    caller: str
    priority: IoPriority
    concurrency: ConcurrencyPolicy
    io: IoLimits = IoLimits()  # noqa: RUF009  it is frozen
    every_s: float = 1.0
    """How often the disks are looked at: their counters say little about less."""

    def shared_by(self, tasks: int) -> "StreamPolicy":
        """Return the policy of one of so many tasks on a machine, which share its disks."""
        ceiling = max(self.concurrency.floor, self.concurrency.ceiling // max(1, tasks))
        return replace(self, concurrency=replace(self.concurrency, ceiling=ceiling))

    @property
    def first(self) -> int:
        """With how many streams the work begins: one a core, because hashing and compressing take one each."""
        wanted = (os.cpu_count() or 1) * (2 if self.priority is IoPriority.HIGH else 1)
        return max(self.concurrency.floor, min(wanted, self.concurrency.ceiling))


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stopped_by(stop: threading.Event) -> Iterator[None]:
    """Let the streams that are run in this block end with CrewStoppedError soon after `stop` is set."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def run_streams(pieces: Iterable[P], work: Callable[[P, IoGate], R], policy: StreamPolicy) -> list[R]:
    """Do `work` on every piece and return the results in order; raises the first error after all streams have ended."""
    manager, stop = process_io(policy.io), _stop.get() or threading.Event()

    def gate(nbytes: int) -> AbstractContextManager[Any]:
        crew.check()
        if stop.is_set():
            raise CrewStoppedError
        return manager.slot(policy.priority, nbytes=nbytes, caller=policy.caller)

    crew = Crew[P, R](
        lambda piece: work(piece, gate),
        pace=_Pace(policy),
        every_s=policy.every_s,
        streams=policy.first,
        manners=polite_thread if policy.priority is IoPriority.LOW else nullcontext,
    )
    results = crew.run(pieces)
    if stop.is_set():
        raise CrewStoppedError
    return results


_making = threading.Lock()  # two threads that begin at once would make a manager each


@lru_cache(maxsize=1)
def _manager() -> FilesystemScalingManager:
    return FilesystemScalingManager()


def process_io(limits: IoLimits | None = None) -> FilesystemScalingManager:
    """Return the one manager of this process's file I/O, with these limits from now on."""
    with _making:
        manager = _manager()
    if limits is not None and limits != manager.current_limits():
        manager.reconfigure_limits(limits)
    return manager


class _Pace:
    """Decides how many streams there may be, from one look at the disks to the next."""

    def __init__(
        self, policy: StreamPolicy, counters: CounterSource | None = None, *, clock: Clock | None = None
    ) -> None:
        self._policy, self._trail = policy, LatencyTrail()
        self._sampler = UtilisationSampler(counters, interval_s=policy.every_s, clock=clock)
        self._sampler.sample()

    def __call__(self, streams: int) -> int:
        sample = self._sampler.sample()
        if self._policy.priority is IoPriority.HIGH:
            return streams
        if (reading := sample.reading) is not None:
            self._trail = self._trail.after(streams, await_ms=reading.await_ms, bytes_per_s=reading.bytes_per_s)
        decision = decide_concurrency(
            streams, utilisation=sample.utilisation, policy=self._policy.concurrency, latency=self._trail
        )
        return decision.limit
