"""How much memory the Python processes of one command take together, looked at again and again while it runs."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

_LOOK_EVERY_S = 0.05


def peak_mb(command: Sequence[str]) -> float:
    """Run a command and return the largest sum of its Python processes, itself and all that come from it, in MB.

    Pages that several of them share count once (PSS): Spark's workers are forked and share most of what they load.
    """
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        above = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, sum(_pss(each) for each in [above, *_below(above)]))
            time.sleep(_LOOK_EVERY_S)
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 0, told[-3000:]
    return round(peak / 1e6, 1)


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _pss(process: psutil.Process) -> int:
    """Return the share of a Python process, and 0 for another one or one that has ended."""
    try:
        if not process.name().startswith(("python", "dw")):
            return 0
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (psutil.NoSuchProcess, OSError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
