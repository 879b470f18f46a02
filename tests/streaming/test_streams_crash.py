"""A process that is killed while it publishes, reads and adds partitions: each stamped batch is there once."""

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from dw_platform.store import open_store
from dw_platform.streaming import ProducerStamp, StreamingScalingManager
from tests.streaming.stream_worker import RECORDS, batch, open_streams

pytestmark = pytest.mark.crash
ROUNDS = 4
ROOT = Path(__file__).parents[2]
Line = tuple[str, str, int]


def run_and_kill(folder: Path, producers: dict[str, int], after_lines: int) -> list[Line]:
    """Return what the process said until it was killed; a line that it did not finish is not said."""
    words = [f"{producer}:{first}" for producer, first in producers.items()]
    command = [sys.executable, "-m", "tests.streaming.stream_worker", str(folder), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after_lines)]
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -9, lines[-1:]
    said = [line.split() for line in lines if line.endswith(b"\n")]
    return [(what.decode(), who.decode(), int(number)) for what, who, number in said]


def everything(streams: StreamingScalingManager) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for number, (start, end) in streams.offsets("orders").items():
        offset = start
        while offset < end:
            part = streams.read("orders", number, offset)
            found.update(part.to_table()["value"].to_pylist())
            offset = part.next_offset
    return found


def test_retries_after_a_kill_write_every_batch_once_and_committed_records_do_not_come_again(tmp_path: Path) -> None:
    following = {"p1": 0, "p2": 0, "p3": 0}
    acked: set[tuple[str, int]] = set()
    done: set[tuple[str, int]] = set()
    firsts: dict[str, list[int]] = defaultdict(list)
    for round_number in range(ROUNDS):
        for what, who, number in run_and_kill(tmp_path, following, after_lines=120 + 97 * round_number):
            if what == "asked":
                # Without an answer it is asked again in the next round, under the same number.
                following[who] = number
            elif what == "acked":
                acked.add((who, number))
                following[who] = number + 1
            elif what == "done":
                done.add((who, number))
            else:
                assert (who, number) not in done, f"{who} {number} was committed and came again"
                if number not in firsts[who]:
                    firsts[who].append(number)
    with open_streams(tmp_path, open_store(f"file://{tmp_path}/store")) as streams:
        for producer, sequence in following.items():
            streams.publish_sync("orders", batch(producer, sequence), stamp=ProducerStamp(producer, sequence))
        found = everything(streams)
    expected = Counter(
        b"%s-%d %d" % (producer.encode(), key, sequence)
        for producer, last in following.items()
        for sequence in range(last + 1)
        for key in range(RECORDS)
    )
    assert found == expected
    assert len(acked) > 10
    # A key is read in its order, through kills and growth.
    assert all(numbers == sorted(numbers) for numbers in firsts.values())
