"""Kill an ingest at random moments while a producer publishes and files are joined; compare with what was promised.

`python -m tests.crash.ingest_rounds FILE spark|here` is the ingest: it prints `opened`, commits without a pause, by
Spark jobs or in its own process, and prints `committed` after the first one. `CrashRounds` is everything around it.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from dw_platform.foundation import TransientError
from dw_platform.log import Records
from dw_platform.pipelines import Platform, ingest_source
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest import StreamIngest, find_stream
from dw_platform.pipelines.ingest_errors import TopicNotThereError
from dw_platform.pipelines.positions import table_positions

REPOSITORY = Path(__file__).parents[2]
PARTITIONS = 2
PLATFORM = f"""
name: crashed
home: home
spark: {{master: "local[1]"}}
streams:
  - name: orders
    table: shop.orders
    partitions: {PARTITIONS}
    format: json
    columns: {{id: bigint, note: string}}
    max_rejected: 50%
    commit: {{rows: 200}}
"""
BATCH = 20


def value(offset: int) -> bytes:
    """Every tenth record is bad; the others say which offset they have."""
    return b"bad" if offset % 10 == 0 else b'{"id": %d, "note": "text"}' % offset


class CrashRounds:
    """A platform in `folder` whose stream is published to, ingested, joined and killed, round by round."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._file = folder / "platform.yaml"
        self._file.write_text(PLATFORM)
        self._chance = random.Random(seed)
        self.acknowledged = [0] * PARTITIONS
        self.optimized = self.killed = self.commits = 0
        self.platform = Platform.open(self._file, environ={})
        self._stream = find_stream(self.platform, "orders")

    def round(self, mode: str, longest_s: float) -> None:
        """Start an ingest, kill it after a moment, and look at what it left."""
        # Half of them die around their first commit, the others in the middle of their work.
        after = self._chance.choice(["opened", "committed"])
        with self._beside(self._publish), self._beside(self._join_files), _started(self._file, mode, after) as process:
            time.sleep(self._chance.uniform(0.0, longest_s))
            process.kill()
            process.wait()
            self.killed += 1
        self.check()

    def finish(self) -> None:
        """Ingest what is left; then every acknowledged record must be in one of the two tables, once."""
        with StreamIngest(self.platform, self._stream) as ingest:
            assert ingest.catch_up(max_rows=50_000).lag == 0
        self.check()
        assert self._positions() == dict(enumerate(self.acknowledged))

    def check(self) -> None:
        """Compare both tables with the positions: nothing below is missing, nothing above is there, nothing twice."""
        positions = self._positions()
        snapshot = self.platform.lake.table("shop.orders").snapshot()
        self.commits = snapshot.version
        rows = snapshot.read_arrow(["_partition", "_offset", "id"])
        assert rows["id"].equals(rows["_offset"]), "a row has the values of its record"
        found = Counter(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
        every = {(number, offset) for number, end in positions.items() for offset in range(end)}
        assert found == Counter(place for place in every if place[1] % 10)
        bad = self.platform.lake.table("shop.orders_rejected").snapshot().read_arrow(["partition", "offset"])
        rejected = Counter(zip(bad["partition"].to_pylist(), bad["offset"].to_pylist(), strict=True))
        assert max(rejected.values(), default=0) <= 1, "a bad record is there once"
        # The process may have died between the two commits, so bad records may be ahead; never behind.
        assert {place for place in every if not place[1] % 10} <= set(rejected)

    def _positions(self) -> dict[int, int]:
        partitions = range(PARTITIONS)
        return dict.fromkeys(partitions, 0) | table_positions(self.platform, self._stream, partitions)

    @contextlib.contextmanager
    def _beside(self, work: Callable[[threading.Event], None]) -> Iterator[None]:
        stop, errors = threading.Event(), list[BaseException]()

        def guarded() -> None:
            try:
                work(stop)
            except BaseException as error:
                errors.append(error)
                raise

        thread = threading.Thread(target=guarded)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not errors

    def _publish(self, stop: threading.Event) -> None:
        with open_stream_broker(self.platform, self._stream) as broker:
            broker.ensure_topic("orders", topic_settings(self._stream))
            while not stop.wait(0.03):
                for partition, first in enumerate(self.acknowledged):
                    result = broker.publish("orders", partition, Records([value(first + n) for n in range(BATCH)]))
                    self.acknowledged[partition] = result.next_offset

    def _join_files(self, stop: threading.Event) -> None:
        table = self.platform.lake.table("shop.orders")
        while not stop.wait(0.2):
            if table.exists():
                with contextlib.suppress(TransientError):
                    table.maintain()
                    self.optimized += 1


@contextlib.contextmanager
def _started(file: Path, mode: str, after: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.crash.ingest_rounds", str(file), mode]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY
    ) as child:
        try:
            assert child.stdout is not None
            assert f"{after}\n" in iter(child.stdout.readline, ""), "it ended by itself"
            yield child
        finally:
            child.kill()


def main(file: str, mode: str) -> None:
    """Be the ingest that is killed."""
    with Platform.open(file) as platform:
        if mode == "spark":
            ingest_source.SMALL_ROWS = 0
            platform.spark.warm()
        said = list[str]()

        def say(line: str) -> None:
            if line not in said:
                said.append(line)
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

        with StreamIngest(platform, find_stream(platform, "orders")) as ingest:
            say("opened")
            while True:
                with contextlib.suppress(TopicNotThereError):
                    ingest.catch_up(on_commit=lambda _: say("committed"))


if __name__ == "__main__":
    main(*sys.argv[1:])
