"""`dw` as a process of its own, followed line by line."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

DW = str(Path(sys.executable).with_name("dw"))


class Running:
    """A started `dw`; what it says is collected while it runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.lines.extend(iter((self.process.stdout or open(os.devnull)).readline, ""))  # noqa: PTH123, SIM115

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait_for(self, condition: Callable[[], bool], limit_s: float = 120) -> None:
        """Wait until `condition` holds; fail with what was said if `dw` ends before that."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said}"
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {self.said}"
            threading.Event().wait(0.05)

    def family(self) -> list[psutil.Process]:
        """Return everything it has started, however deep."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, limit_s: float = 90) -> int:
        """Wait for its end and return its exit code."""
        code = self.process.wait(limit_s)
        self._reader.join(10)
        return code


@contextmanager
def started(*arguments: str | Path, folder: Path) -> Iterator[Running]:
    """Start `dw` with both of its outputs in one; whatever is left of it at the end is killed."""
    with subprocess.Popen(
        [DW, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        running = Running(process)
        try:
            yield running
        finally:
            if process.poll() is None:
                family = running.family()
                process.kill()
                for member in family:
                    member.kill()


def survivors(family: list[psutil.Process], limit_s: float = 15) -> list[str]:
    """Return who of `family` is still there after a moment; zombies are not."""
    deadline = time.monotonic() + limit_s
    while (left := [member for member in family if _lives(member)]) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    return [str(member) for member in left]


def _lives(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
