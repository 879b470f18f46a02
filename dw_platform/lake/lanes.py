"""Run the lanes of a long read, in Spark tasks or in threads of this process, and hand out their parts as they finish.

    for part in run_lanes(job, [(0, None), (1, 500_000)], read, workers=2, part_rows=200_000, spark=provider.get):
        ...  # commit it

Whatever fails, the parts that were finished before are handed out first, so that they can be committed; then the error
is raised. Whoever stops early (closes the generator) ends the tasks as soon as they have finished their page.
"""

import concurrent.futures
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from dw_platform.foundation import PermanentError
from dw_platform.lake.jobs import UnderWay, job_under_way
from dw_platform.lake.lane_task import Lane, LaneWork
from dw_platform.lake.opening import StorageUnreachableError
from dw_platform.lake.parquet import WriteJob
from dw_platform.lake.parts import LaneReader, Part, PartBoard, ReadPage

# How soon a finished part is noticed; a look is one listing of a small folder.
_LOOK_EVERY_S = 0.1


def run_lanes(
    job: WriteJob,
    lanes: Sequence[Lane],
    read: LaneReader,
    *,
    workers: int,
    part_rows: int,
    spark: Callable[[], SparkSession] | None,
) -> Iterator[Part]:
    """Yield the parts of all lanes, each lane's in order; at most `workers` lanes are read at once."""
    hands = [list(lanes[first::workers]) for first in range(min(workers, len(lanes)))]
    if not hands:
        return
    board, chains = PartBoard(job.location, job.job_id), _Chains(dict(lanes))
    work = LaneWork(job, hands, read, part_rows)
    running = _in_threads(work) if spark is None else job_under_way(spark(), len(hands), work.write, "lanes")
    with running as under_way:
        while not (ended := under_way.wait(_LOOK_EVERY_S)):
            yield from chains.take(board)
        yield from chains.take(board)
        if ended.error is not None:
            raise _meaning(job, ended.error)


def _meaning(job: WriteJob, error: BaseException) -> BaseException:
    if isinstance(error, OSError):
        return StorageUnreachableError(job.location.uri, str(error).splitlines()[0])
    return error


class _Chains:
    """Which parts were taken, and where each lane's chain has come to."""

    def __init__(self, starts: Mapping[int, Any]) -> None:
        self._at = {lane: json.dumps(start) for lane, start in starts.items()}
        self._seen = set[str]()
        self._waiting = dict[str, Part]()

    def take(self, board: PartBoard) -> Iterator[Part]:
        """Yield the new parts that continue their chain."""
        for name in board.names():
            if name not in self._seen:
                self._seen.add(name)
                self._waiting[name] = board.read(name)
        while following := [
            name for name, part in self._waiting.items() if json.dumps(part.start) == self._at[part.lane]
        ]:
            # Another attempt at the same lane may have left a part with the same start; it stays behind.
            part = self._waiting.pop(following[0])
            self._at[part.lane] = json.dumps(part.end)
            yield part

    def _continues(self, name: str) -> bool:
        part = self._waiting[name]
        return json.dumps(part.start) == self._at[part.lane]


@contextlib.contextmanager
def _in_threads(work: LaneWork) -> Iterator[UnderWay]:
    stop = threading.Event()

    def until_stopped(lane: int, start: Any) -> Iterator[ReadPage]:
        for page in work.read(lane, start):
            if stop.is_set():
                raise LanesStoppedError
            yield page

    def run() -> None:
        with concurrent.futures.ThreadPoolExecutor(len(work.hands), "lane") as pool:
            stoppable = replace(work, read=until_stopped)
            running = [pool.submit(stoppable.write, hand) for hand in range(len(work.hands))]
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_EXCEPTION)
            errors = [error for each in done if (error := each.exception()) is not None]
            if errors:
                stop.set()
                raise errors[0]

    under_way = UnderWay(run, "lanes")
    try:
        yield under_way
    finally:
        stop.set()
        under_way.join()


class LanesStoppedError(PermanentError):
    """Whoever wanted the parts does not want more of them."""

    def __init__(self) -> None:
        super().__init__("The read was stopped; it goes on from its last committed part when it is started again.")
