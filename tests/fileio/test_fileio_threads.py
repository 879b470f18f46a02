import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dw_platform.fileio.threads import DispatchThreads

PATIENCE_S = 20.0


class Task:
    """Runs `work`, then tells that its slot is free."""

    def __init__(self, work: Callable[[], object], leave: Callable[[], object] = lambda: None) -> None:
        self._work, self._leave, self.done = work, leave, threading.Event()

    def run(self) -> None:
        self._work()

    def leave(self) -> None:
        self._leave()
        self.done.set()


def test_threads_start_with_the_first_job_and_are_used_again() -> None:
    threads, names = DispatchThreads("group"), set[int]()
    assert len(threads) == 0
    for _ in range(20):
        task = Task(lambda: names.add(threading.get_ident()))
        threads.hand(task)
        assert task.done.wait(PATIENCE_S)
    assert len(names) == len(threads) == 1
    threads.close()
    assert len(threads) == 0


def test_jobs_at_once_have_a_thread_each() -> None:
    threads, together = DispatchThreads("group"), threading.Barrier(5)
    tasks = [Task(lambda: together.wait(PATIENCE_S)) for _ in range(5)]
    for task in tasks:
        threads.hand(task)
    assert all(task.done.wait(PATIENCE_S) for task in tasks)
    assert len(threads) == 5
    threads.close()


def test_a_job_that_is_handed_over_by_one_that_leaves_runs_on_the_same_thread() -> None:
    threads, last = DispatchThreads("group"), Task(lambda: None)
    first = Task(lambda: None, leave=lambda: threads.hand(last))
    threads.hand(first)
    assert last.done.wait(PATIENCE_S)
    assert len(threads) == 1
    threads.close()


def test_threads_without_work_end_but_the_last_one_stays() -> None:
    threads, together, gone = DispatchThreads("group", idle_s=0.01), threading.Barrier(4), threading.Event()
    tasks = [Task(lambda: together.wait(PATIENCE_S)) for _ in range(4)]
    for task in tasks:
        threads.hand(task)
    assert all(task.done.wait(PATIENCE_S) for task in tasks)
    for _ in range(2_000):
        if len(threads) == 1:
            break
        gone.wait(0.01)
    assert len(threads) == 1
    again = Task(lambda: None)
    threads.hand(again)
    assert again.done.wait(PATIENCE_S)
    threads.close()


def test_closing_waits_for_what_was_handed_over() -> None:
    threads, begun, go_on, done = DispatchThreads("group"), threading.Event(), threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        go_on.wait(PATIENCE_S)
        done.append(1)

    threads.hand(Task(work))
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=threads.close)
    closing.start()
    go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert done == [1]


def test_a_job_that_comes_after_closing_is_not_lost() -> None:
    threads, late = DispatchThreads("group"), Task(lambda: None)
    threads.prepare()
    threads.close()
    threads.hand(late)
    assert late.done.wait(PATIENCE_S)


def test_each_thread_lives_inside_what_was_asked_for() -> None:
    inside = threading.local()

    @contextmanager
    def around() -> Iterator[None]:
        inside.here = True
        yield

    threads, seen = DispatchThreads("group", around=around), list[bool]()
    task = Task(lambda: seen.append(inside.here))
    threads.hand(task)
    assert task.done.wait(PATIENCE_S)
    threads.close()
    assert seen == [True]


def test_a_machine_without_further_threads_lets_jobs_wait_for_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads, begun, go_on = DispatchThreads("group"), threading.Event(), threading.Event()
    first = Task(lambda: (begun.set(), go_on.wait(PATIENCE_S)))
    threads.hand(first)
    assert begun.wait(PATIENCE_S)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        second = Task(lambda: None)
        threads.hand(second)
        with pytest.raises(RuntimeError):
            DispatchThreads("another").prepare()
    assert "can't start new thread" in vars(caplog.records[0])["reason"]
    go_on.set()
    assert second.done.wait(PATIENCE_S)
    threads.close()
