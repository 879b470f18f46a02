"""Progress of counted work: a bar on a terminal, a plain line now and then otherwise, nothing for short work."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dw_platform.cli.output import progress

# Logs of long work stay short; work that ends sooner says nothing before its result.
LINE_EVERY_S = 5.0


@contextlib.contextmanager
def steady_progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how much more was done; `total` is None where nobody knows the end."""
    if not sys.stderr.isatty():
        yield _Lines(what, total, unit).advance
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


class _Lines:
    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._of, self._unit = what, "" if total is None else f" of {total:,}", unit
        self._done, self._next = 0, time.monotonic() + LINE_EVERY_S

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() >= self._next:
            progress(f"{self._what}: {self._done:,}{self._of} {self._unit}")
            self._next = time.monotonic() + LINE_EVERY_S
