import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dw_platform.fileio import FileIoClosedError, IoPriority, PriorityWeights
from dw_platform.fileio.gate import Gate, Ticket, TicketState

HIGH, NORMAL, LOW = IoPriority.HIGH, IoPriority.NORMAL, IoPriority.LOW
PATIENCE_S = 20.0


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    running = threading.Thread(target=work)
    running.start()
    yield running
    running.join(PATIENCE_S)
    assert not running.is_alive()


def until_waiting(gate: Gate, waiting: int) -> None:
    """Return when that many wait; the gate has no signal for it, because nobody else needs one."""
    pause, deadline = threading.Event(), 2_000
    while sum(gate.stats().waiting.values()) != waiting:
        deadline -= 1
        assert deadline, "nobody came to wait"
        pause.wait(0.005)


def test_requests_begin_at_once_while_there_is_room() -> None:
    gate = Gate(2, PriorityWeights())
    assert gate.enter(LOW, 10)
    assert gate.enter(HIGH, 20)
    stats = gate.stats()
    assert stats.running == 2
    assert stats.occupancy == 1.0
    assert stats.begun == {HIGH: 1, NORMAL: 0, LOW: 1}
    assert stats.nbytes == {HIGH: 20, NORMAL: 0, LOW: 10}


def test_a_full_device_makes_the_next_one_wait_until_somebody_leaves() -> None:
    gate, entered = Gate(1, PriorityWeights()), threading.Event()
    gate.enter(LOW, 1)
    with thread(lambda: (gate.enter(LOW, 1), entered.set())):
        until_waiting(gate, 1)
        assert not entered.is_set()
        gate.leave()
        assert entered.wait(PATIENCE_S)
    assert gate.stats().running == 1


def test_turns_come_by_priority() -> None:
    gate, order = Gate(1, PriorityWeights()), list[IoPriority]()
    gate.enter(NORMAL, 1)
    for priority in (LOW, NORMAL, HIGH):
        gate.queue(priority, 1, lambda ticket: order.append(ticket.priority))
    for _ in range(4):
        gate.leave()
    assert order == [HIGH, NORMAL, LOW]
    assert gate.stats().running == 0


def test_one_that_gives_up_leaves_no_trace() -> None:
    gate = Gate(1, PriorityWeights())
    gate.enter(NORMAL, 1)
    assert gate.enter(HIGH, 1, timeout_s=0.01) is False
    assert gate.stats().waiting[HIGH] == 0
    gate.leave()
    assert gate.stats().running == 0


def test_a_smaller_depth_ends_nothing_and_lets_nobody_in_until_it_has_drained() -> None:
    gate, granted = Gate(3, PriorityWeights()), list[Ticket]()
    for _ in range(3):
        gate.enter(NORMAL, 1)
    gate.reconfigure(1)
    assert gate.stats().running == 3
    gate.queue(HIGH, 1, granted.append)
    gate.leave()
    gate.leave()
    assert granted == []
    gate.leave()
    assert len(granted) == 1
    assert gate.stats().running == 1


def test_a_larger_depth_lets_those_in_who_wait() -> None:
    gate, granted = Gate(1, PriorityWeights()), list[Ticket]()
    gate.enter(NORMAL, 1)
    for _ in range(3):
        gate.queue(LOW, 1, granted.append)
    gate.reconfigure(3, PriorityWeights(high=2, normal=2, low=2))
    assert len(granted) == 2
    assert gate.stats().waiting[LOW] == 1


def test_closing_refuses_who_waits_and_who_comes_and_lets_the_others_finish() -> None:
    gate, refused, states = Gate(1, PriorityWeights()), list[str](), list[TicketState]()
    gate.enter(NORMAL, 1)
    gate.queue(LOW, 1, lambda ticket: states.append(ticket.state))

    def wait_for_a_turn() -> None:
        try:
            gate.enter(HIGH, 1)
        except FileIoClosedError as error:
            refused.append(str(error))

    with thread(wait_for_a_turn):
        until_waiting(gate, 2)
        gate.close()
    assert states == [TicketState.REFUSED]
    assert "closed before this request had its turn" in refused[0]
    with pytest.raises(FileIoClosedError):
        gate.enter(HIGH, 1)
    gate.leave()
    assert gate.stats().running == 0


def test_an_interrupted_waiter_hands_on_the_turn_that_it_was_given_in_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(1, PriorityWeights())
    gate.enter(NORMAL, 1)

    class InterruptedLock:
        """Sleeps as a lock does until Ctrl-C, which comes just after the turn was given."""

        taken = False

        def acquire(self, timeout: float = -1) -> bool:  # noqa: ARG002  the lock's own signature
            if self.taken:
                gate.leave()
                raise KeyboardInterrupt
            self.taken = True
            return True

        def release(self) -> None:
            pass

    monkeypatch.setattr("dw_platform.fileio.gate.threading.Lock", InterruptedLock)
    with pytest.raises(KeyboardInterrupt):
        gate.enter(LOW, 1)
    assert gate.stats().running == 0


def test_under_many_threads_the_depth_is_never_passed_and_everybody_gets_through() -> None:
    gate, lock = Gate(3, PriorityWeights()), threading.Lock()
    inside, most, done = 0, 0, 0

    def work(priority: IoPriority) -> None:
        nonlocal inside, most, done
        for turn in range(300):
            timeout_s = 0.0005 if turn % 7 == 0 else None
            if not gate.enter(priority, turn, timeout_s):
                continue
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
                done += 1
            gate.leave()

    threads = [threading.Thread(target=work, args=(priority,)) for priority in IoPriority for _ in range(4)]
    for running in threads:
        running.start()
    for depth in (1, 5, 2, 3):
        gate.reconfigure(depth)
    for running in threads:
        running.join(60)
        assert not running.is_alive()
    stats = gate.stats()
    assert most <= 5
    assert (stats.running, sum(stats.waiting.values())) == (0, 0)
    assert done == sum(stats.begun.values())
    assert done >= 12 * 257
