"""How many requests are under way at once, and who goes next: the lock around a `DispatchQueue`.

While the device has room, passing costs one uncontended lock: nobody is woken and nothing is queued. Otherwise a
request waits in the queue, and whoever leaves wakes exactly the one that goes next.

A smaller depth never ends what is under way; until it has drained nobody else begins. Nothing is lost when a waiter
gives up: it takes itself out of the queue, or hands on the turn that it was given in the same moment.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from dw_platform.fileio.dispatch import DispatchQueue, PriorityWeights
from dw_platform.fileio.errors import FileIoClosedError
from dw_platform.fileio.priority import IoPriority


class TicketState(Enum):
    """How far a ticket got."""

    WAITING = auto()
    GRANTED = auto()
    REFUSED = auto()
    """The gate was closed before its turn."""


class Ticket:
    """One waiting request; `on_end` is called once, outside the gate's lock, when it is granted or refused."""

    __slots__ = ("nbytes", "on_end", "priority", "state")

    def __init__(self, priority: IoPriority, nbytes: int, on_end: Callable[["Ticket"], Any]) -> None:
        self.priority, self.nbytes, self.on_end = priority, nbytes, on_end
        self.state = TicketState.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """What the gate holds now, and what it let begin since it was built."""

    depth: int
    running: int
    waiting: dict[IoPriority, int]
    begun: dict[IoPriority, int]
    nbytes: dict[IoPriority, int]

    @property
    def occupancy(self) -> float:
        """Requests under way and waiting, over the depth; above 1 somebody waits."""
        return (self.running + sum(self.waiting.values())) / self.depth


class Gate:
    """Admits requests up to a depth; any thread may use it."""

    def __init__(self, depth: int, weights: PriorityWeights) -> None:
        self._depth = depth
        self._queue = DispatchQueue[Ticket](weights)
        self._lock = threading.Lock()
        self._running = 0
        self._begun, self._nbytes = dict.fromkeys(IoPriority, 0), dict.fromkeys(IoPriority, 0)
        self._closed = False

    def enter(self, priority: IoPriority, nbytes: int, timeout_s: float | None = None) -> bool:
        """Wait for a turn; return False if there was none in time. Each True is followed by one `leave`."""
        with self._lock:
            if self._begins(priority, nbytes):
                return True
        # Released by whoever ends the waiting: a bare lock is the cheapest thing that a thread can sleep on.
        turn = threading.Lock()
        turn.acquire()
        ticket = self.queue(priority, nbytes, lambda _: turn.release())
        if ticket is None:
            return True
        try:
            ended = turn.acquire(timeout=-1 if timeout_s is None else timeout_s)
        except BaseException:
            if self._give_up(ticket) is TicketState.GRANTED:
                self.leave()
            raise
        state = ticket.state if ended else self._give_up(ticket)
        if state is TicketState.REFUSED:
            raise FileIoClosedError
        return state is TicketState.GRANTED

    def queue(self, priority: IoPriority, nbytes: int, on_end: Callable[["Ticket"], Any]) -> Ticket | None:
        """Begin at once and return None, or return a ticket whose `on_end` tells when its turn came or cannot come."""
        with self._lock:
            if self._begins(priority, nbytes):
                return None
            ticket = Ticket(priority, nbytes, on_end)
            self._queue.push(ticket, priority, nbytes)
            return ticket

    def leave(self) -> None:
        """End one request that had begun."""
        with self._lock:
            self._running -= 1
            granted = self._grant() if len(self._queue) else ()
        _tell(granted)

    def reconfigure(self, depth: int, weights: PriorityWeights | None = None) -> None:
        """Admit up to `depth` from now on, and share by other weights if some are given."""
        with self._lock:
            self._depth = depth
            if weights is not None:
                self._queue.reweigh(weights)
            granted = self._grant()
        _tell(granted)

    def close(self) -> None:
        """Refuse all that wait and all that come; what is under way ends by itself."""
        with self._lock:
            self._closed = True
            refused = tuple(self._queue.drain())
            for ticket in refused:
                ticket.state = TicketState.REFUSED
        _tell(refused)

    def stats(self) -> GateStats:
        """Return a snapshot."""
        with self._lock:
            return GateStats(
                depth=self._depth,
                running=self._running,
                waiting={priority: self._queue.waiting(priority) for priority in IoPriority},
                begun=dict(self._begun),
                nbytes=dict(self._nbytes),
            )

    def _begins(self, priority: IoPriority, nbytes: int) -> bool:
        if self._closed:
            raise FileIoClosedError
        # Somebody waits only while there is no room, so room means that nobody is overtaken.
        if self._running >= self._depth:
            return False
        self._count(priority, nbytes)
        return True

    def _give_up(self, ticket: Ticket) -> TicketState:
        """Stop waiting; return how the waiting ended in the meantime, or WAITING if it had not."""
        with self._lock:
            if ticket.state is TicketState.WAITING:
                self._queue.remove(ticket, ticket.priority)
            return ticket.state

    def _grant(self) -> tuple[Ticket, ...]:
        granted: list[Ticket] = []
        while self._running < self._depth and len(self._queue):
            ticket = self._queue.pop()
            ticket.state = TicketState.GRANTED
            self._count(ticket.priority, ticket.nbytes)
            granted.append(ticket)
        return tuple(granted)

    def _count(self, priority: IoPriority, nbytes: int) -> None:
        self._running += 1
        self._begun[priority] += 1
        self._nbytes[priority] += nbytes


def _tell(tickets: tuple[Ticket, ...]) -> None:
    for ticket in tickets:
        ticket.on_end(ticket)
