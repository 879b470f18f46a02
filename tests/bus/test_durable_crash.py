"""A process that is killed while it publishes, consumes and repartitions loses nothing that it acknowledged."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.bus.durable_worker import KEYS, open_bus

pytestmark = pytest.mark.crash
ROUNDS = 6
ROOT = Path(__file__).parents[2]


def run_and_kill(folder: Path, first: int, after_lines: int) -> list[tuple[str, int]]:
    """Return what the process said until it was killed; a line that it did not finish is not said."""
    command = [sys.executable, "-m", "tests.bus.durable_worker", str(folder), str(first)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after_lines)]
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -9, lines[-1:]
    words = [line.split() for line in lines if line.endswith(b"\n")]
    return [(what.decode(), int(number)) for what, number in words]


def test_nothing_acknowledged_is_lost_and_only_uncommitted_messages_come_again(tmp_path: Path) -> None:
    acked: set[int] = set()
    done: set[int] = set()
    got: list[int] = []
    for round_number in range(ROUNDS):
        first = round_number * 1_000_000  # numbers rise from round to round, so order shows across them
        for what, number in run_and_kill(tmp_path, first, after_lines=150 + 61 * round_number):
            if what == "acked":
                acked.add(number)
            elif what == "done":
                done.add(number)
            else:
                assert number not in done, f"{number} was committed and delivered again"
                got.append(number)
    bus = open_bus(tmp_path)
    reader = bus.subscribe("orders", "billing")
    while taken := reader.take():
        rest = [int(delivery.value) for delivery in taken]
        assert not done & set(rest)
        got += rest
        reader.commit_sync()
    bus.close_sync()
    assert len(acked) > 100 * ROUNDS / 2
    assert acked <= set(got), sorted(acked - set(got))[:10]
    assert_in_order_but_for_repeats(got)


def assert_in_order_but_for_repeats(got: list[int]) -> None:
    """A number may come again; the first time that each one comes is in the order of its key."""
    firsts: dict[int, list[int]] = defaultdict(list)
    for number in dict.fromkeys(got):
        firsts[number % 1_000_000 % KEYS].append(number)
    for numbers in firsts.values():
        assert numbers == sorted(numbers)
