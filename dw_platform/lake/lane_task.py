"""What a task does with its lanes. Workers of Spark import this module, so it stays light: no deltalake, no Spark."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dw_platform.foundation import PermanentError
from dw_platform.lake.parquet import WriteJob
from dw_platform.lake.parts import LaneReader, write_lanes
from dw_platform.lake.task_errors import carried, packed

Lane = tuple[int, Any]
"""Its number, and where it goes on."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What the tasks do: each takes a hand of lanes and reads them one after the other."""

    job: WriteJob
    hands: Sequence[Sequence[Lane]]
    read: LaneReader
    part_rows: int

    def write(self, hand: int) -> None:
        """Read and write the lanes of one hand."""
        write_lanes(self.job, self.hands[hand], self.read, part_rows=self.part_rows)


def lane_task(work: LaneWork) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task, which is given the numbers of its hands.

    A permanent error travels as a value, for Spark would retry a raised one.
    """

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            error = None
            with carried():
                try:
                    work.write(number)
                except PermanentError as refused:
                    error = packed(refused)
            yield pa.RecordBatch.from_arrays([pa.array([error], pa.string())], ["error"])

    return run
