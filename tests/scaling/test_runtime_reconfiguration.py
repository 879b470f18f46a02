"""A limit set in one process takes effect in another that keeps running."""

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dw_platform.foundation import InvalidValueError, SystemClock
from dw_platform.scaling import LimitCatalogue, LimitControl
from dw_platform.store.open import open_store
from tests.scaling.sample_queue import QueueLimits

ROOT = Path(__file__).parents[2]
# Starting Python and the store takes a moment on a loaded machine; the change itself has to be quick.
START_S, APPLY_S = 30.0, 5.0


class Follower:
    """The other process, and what it printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def next_line(self, timeout_s: float) -> str:
        return self._lines.get(timeout=timeout_s)

    def leave(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(START_S)


@contextmanager
def follower(store_url: str) -> Iterator[Follower]:
    command = [sys.executable, "-m", "tests.scaling.follower", store_url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            running = Follower(process)
            assert running.next_line(START_S) == "ready"
            yield running
        finally:
            process.kill()


@pytest.fixture(params=["file", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/store" if request.param == "file" else f"sqlite:///{tmp_path}/store.db"


def test_a_limit_set_here_reaches_a_process_that_keeps_running(store_url: str) -> None:
    with closing(open_store(store_url)) as store, follower(store_url) as other:
        control = LimitControl(store, LimitCatalogue({"queue": QueueLimits()}), clock=SystemClock())
        control.set("queue", {"partitions": "16"}, changed_by="operator", reason="more load")
        assert other.next_line(APPLY_S) == "partitions=16"
        with pytest.raises(InvalidValueError):
            control.set("queue", {"partitions": "0"}, changed_by="operator", reason="a try")
        control.reset("queue", changed_by="operator", reason="load is over")
        assert other.next_line(APPLY_S) == "partitions=8"
        assert other.leave() == 0
        assert control.statuses() == ()
