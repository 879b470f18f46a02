"""Programs that `dw` starts and never leaves behind.

Each runs in a session of its own: the terminal's Ctrl-C then reaches `dw` alone, which asks all of them to end,
waits, and ends by force whatever is left of their sessions (code servers, JVMs).
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dw_platform.foundation import PermanentError

STOP_LIMIT_S = 20.0
_TAIL_LINES = 15


class ChildDiedError(PermanentError):
    """A program that should run on has ended by itself."""

    def __init__(self, name: str, code: int, log: Path, tail: str) -> None:
        self.name, self.code, self.log = name, code, log
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        super().__init__(f"{name} {how}; everything was stopped. Its log is {log}, and ends with:\n{tail}")


class Child:
    """A started program whose output goes to its log."""

    def __init__(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )

    def require_alive(self) -> None:
        """Raise if it has ended."""
        if (code := self.process.poll()) is not None:
            raise ChildDiedError(self.name, code, self.log, self.tail())

    def tail(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


@contextlib.contextmanager
def stopping(children: list[Child], *, limit_s: float = STOP_LIMIT_S, again_s: float = STOP_LIMIT_S) -> Iterator[None]:
    """End `children`, also those added meanwhile, when the block is left in whatever way.

    They are asked to, again every `again_s`, and what is left of them after `limit_s` is ended by force.
    """
    try:
        yield
    finally:
        deadline = time.monotonic() + limit_s
        while _alive(children) and (left := deadline - time.monotonic()) > 0:
            for child in children:
                child.process.send_signal(signal.SIGINT)
            _wait(children, min(left, again_s))
        for child in children:
            # The session's group outlives its leader while anybody is in it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()


def _alive(children: Sequence[Child]) -> bool:
    return any(child.process.poll() is None for child in children)


def _wait(children: Sequence[Child], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, a polite kill or a closed terminal sets, instead of ending `dw` on the spot."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
