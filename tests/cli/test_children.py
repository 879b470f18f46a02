"""Programs that `dw` starts: none is left behind, whatever they do."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dw_platform.cli.children import Child, ChildDiedError, stop_signals, stopping

POLITE = "import signal, time; print('ready', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(2, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
SECOND_TIME = """
import signal, sys
seen = []
signal.signal(2, lambda *_: sys.exit(0) if seen else seen.append(1))
print('ready', flush=True)
while True: signal.pause()
"""
WITH_GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])
print(child.pid, flush=True)
child.wait()
"""


def _start(tmp_path: Path, program: str, name: str = "child") -> Child:
    child = Child(
        name, [sys.executable, "-c", program], environment=os.environ, folder=tmp_path, log=tmp_path / f"{name}.log"
    )
    _wait_for(lambda: child.log.read_text().strip() != "" or child.process.poll() is not None)
    return child


def _wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        threading.Event().wait(0.02)


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_polite_child_ends_by_itself(tmp_path: Path) -> None:
    children: list[Child] = []
    with stopping(children):
        children.append(_start(tmp_path, POLITE))
    assert children[0].process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in children[0].tail()


def test_a_stubborn_child_is_ended_by_force(tmp_path: Path) -> None:
    children: list[Child] = []
    with stopping(children, limit_s=0.2):
        children.append(_start(tmp_path, STUBBORN))
    assert children[0].process.returncode == -signal.SIGKILL


def test_a_child_that_needs_asking_twice_is_asked_twice(tmp_path: Path) -> None:
    children: list[Child] = []
    with stopping(children, limit_s=20, again_s=0.1):
        children.append(_start(tmp_path, SECOND_TIME))
    assert children[0].process.returncode == 0


def test_children_of_children_do_not_outlive_them(tmp_path: Path) -> None:
    children: list[Child] = []
    with stopping(children, limit_s=5):
        children.append(_start(tmp_path, WITH_GRANDCHILD))
        grandchild = int(children[0].log.read_text().splitlines()[0])
    _wait_for(lambda: _is_gone(grandchild))


def test_children_are_stopped_when_the_work_fails(tmp_path: Path) -> None:
    children: list[Child] = []

    def work() -> None:
        with stopping(children):
            children.append(_start(tmp_path, POLITE))
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011  the very error that was raised
        work()
    assert children[0].process.returncode is not None


def test_a_child_that_died_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = _start(tmp_path, "import sys; [print(n) for n in range(100)]; sys.exit(3)", "worker")
    child.process.wait()
    with pytest.raises(ChildDiedError) as caught:
        child.require_alive()
    assert (caught.value.name, caught.value.code, caught.value.log) == ("worker", 3, tmp_path / "worker.log")
    assert "worker ended with code 3" in str(caught.value)
    assert str(caught.value).endswith("\n98\n99")
    assert "\n80\n" not in str(caught.value)


def test_a_program_that_is_not_there_leaves_the_others_stopped(tmp_path: Path) -> None:
    children: list[Child] = []

    def work() -> None:
        with stopping(children):
            children.append(_start(tmp_path, POLITE))
            Child("nope", ["/nowhere/nope"], environment={}, folder=tmp_path, log=tmp_path / "nope.log")

    with pytest.raises(FileNotFoundError):
        work()
    assert children[0].process.returncode is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_set_the_event_and_their_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    assert signal.getsignal(number) is before


def test_the_terminals_ctrl_c_reaches_only_the_parent(tmp_path: Path) -> None:
    child = _start(tmp_path, POLITE)
    try:
        assert os.getsid(child.process.pid) == child.process.pid
        assert os.getsid(child.process.pid) != os.getsid(0)
    finally:
        child.process.kill()
        child.process.wait()
