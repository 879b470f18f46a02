"""Progress of counted work: a bar on a terminal, a plain line now and then otherwise, nothing for short work."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from dw_platform.cli.output import progress

# Logs of long work stay short; work that ends sooner says nothing before its result.
LINE_EVERY_S = 5.0


@contextlib.contextmanager
def steady_progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much more was done; `total` is None where nobody knows the end."""
    if not sys.stderr.isatty():
        yield _Lines(what, total, unit).advance
        return
    with Progress(*_columns(unit), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextlib.contextmanager
def steady_progresses(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that is told how far each of several things is: its name, how much is done, and of how much.

    They may go on at the same time, and from several threads.
    """
    if not sys.stderr.isatty():
        lines = dict[str, _Lines]()

        def say(what: str, done: int, total: int) -> None:
            lines.setdefault(what, _Lines(what, total, unit)).reach(done)

        yield say
        return
    with Progress(*_columns(unit), console=Console(stderr=True), transient=True) as bars:
        tasks = dict[str, TaskID]()

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total, visible=done < total)

        yield show


def _columns(unit: str) -> tuple[ProgressColumn, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )


class _Lines:
    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._of, self._unit = what, "" if total is None else f" of {total:,}", unit
        self._done, self._next = 0, time.monotonic() + LINE_EVERY_S

    def advance(self, count: int) -> None:
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        self._done = done
        if time.monotonic() >= self._next:
            progress(f"{self._what}: {self._done:,}{self._of} {self._unit}")
            self._next = time.monotonic() + LINE_EVERY_S
