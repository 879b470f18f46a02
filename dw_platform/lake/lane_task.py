"""What a task does with its lanes. Workers of Spark import this module, so it stays light: no deltalake, no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dw_platform.lake.parquet import WriteJob
from dw_platform.lake.parts import LaneReader, write_lanes

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
