"""Several streams of file I/O over one list of pieces, as many at once as the disks take.

    copied = run_streams(files, lambda file, io: store.put(file, io=io), policy)

A stream is a thread. Those of Low priority are polite: other work on the same cores and disks goes before them. Each
read and write asks `io` first, which lets it wait for its turn among everything that this process reads and writes.
What begins with High priority is wanted now: its number of streams does not shrink.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from dw_platform.fileio.crew import Crew
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.manager import FilesystemScalingManager
from dw_platform.fileio.polite import polite_thread
from dw_platform.fileio.priority import IoPriority
from dw_platform.fileio.sampling import UtilisationSampler
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


def run_streams(pieces: Iterable[P], work: Callable[[P, IoGate], R], policy: StreamPolicy) -> list[R]:
    """Do `work` on every piece and return the results in order; raises the first error after all streams have ended."""
    manager = process_io(policy.io)

    def gate(nbytes: int) -> AbstractContextManager[Any]:
        crew.check()
        return manager.slot(policy.priority, nbytes=nbytes, caller=policy.caller)

    crew = Crew[P, R](
        lambda piece: work(piece, gate),
        pace=_Pace(policy),
        every_s=policy.every_s,
        streams=policy.first,
        manners=polite_thread if policy.priority is IoPriority.LOW else nullcontext,
    )
    return crew.run(pieces)


@lru_cache(maxsize=1)
def _manager() -> FilesystemScalingManager:
    return FilesystemScalingManager()


def process_io(limits: IoLimits | None = None) -> FilesystemScalingManager:
    """Return the one manager of this process's file I/O, with these limits from now on."""
    manager = _manager()
    if limits is not None and limits != manager.current_limits():
        manager.reconfigure_limits(limits)
    return manager


class _Pace:
    """Decides how many streams there may be, from one look at the disks to the next."""

    def __init__(self, policy: StreamPolicy) -> None:
        self._policy, self._trail = policy, LatencyTrail()
        self._sampler = UtilisationSampler(interval_s=policy.every_s)
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
