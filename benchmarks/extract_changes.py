"""Changes by key into a table: the merge of the extraction beside Spark's MERGE, on equal tables.

The table is a copy that the extraction made. Every run gets it anew, by links to the same files, and the changes as
files that are there already, so that nothing but the merge is measured.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import Measure
from dw_platform.lake.changes import ChangedRows
from dw_platform.lake.lake import Lake
from dw_platform.lake.load import LoadState, TableLoad
from dw_platform.lake.parquet import write_batches
from dw_platform.lake.planning import new_job

# Every so many-th row changes: 100,000 of 2,000,000.
EVERY = 20
MERGE, VECTORS, OURS = "Spark's MERGE", "Spark's MERGE with deletion vectors", "upsert"
TABLES = {MERGE: "bench.merged", VECTORS: "bench.masked", OURS: "bench.upserted"}
_YEAR_US = 365 * 24 * 3600 * 1_000_000


@dataclass(slots=True)
class Changing:
    """The table as it was, the changed rows, and what is ready for the next run."""

    lake: Lake
    original: str
    changes: Path
    rows: int = 0
    _ready: tuple[TableLoad, LoadState, ChangedRows] | None = None

    def make_changes(self) -> None:
        """Write every so many-th row with another note and a later time."""
        table = self.lake.table(self.original).snapshot().read_arrow()
        table = table.filter(pc.equal(pc.subtract(table["id"], pc.multiply(pc.divide(table["id"], EVERY), EVERY)), 3))
        later = pc.add(table["updated_at"], pa.scalar(_YEAR_US, pa.duration("us")))
        changed = {"note": pa.array(["changed"] * len(table)), "updated_at": later}
        for name, values in changed.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), values)
        pq.write_table(table, self.changes)
        self.rows = len(table)

    def measures(self) -> list[Measure]:
        """Return the merge and its peers; each run begins with the original table."""
        return [
            Measure(name=MERGE, run=lambda: self._merge(MERGE), before=lambda: self._copied(MERGE)),
            Measure(name=VECTORS, run=lambda: self._merge(VECTORS), before=self._with_vectors, peer=MERGE),
            Measure(name=OURS, run=self._upsert, before=self._staged, peer=MERGE),
        ]

    def _copied(self, measure: str) -> None:
        place = Path(self.lake.location(TABLES[measure]).uri)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.lake.location(self.original).uri, place, copy_function=os.link)

    def _with_vectors(self) -> None:
        self._copied(VECTORS)
        place = self.lake.location(TABLES[VECTORS]).uri
        statement = f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        self.lake.spark.get().sql(statement)

    def _merge(self, measure: str) -> None:
        rows = self.lake.spark.get().read.parquet(str(self.changes))
        self.lake.table(TABLES[measure]).merge(rows, keys=["id"])

    def _staged(self) -> None:
        self._copied(OURS)
        table = self.lake.table(TABLES[OURS])
        load = table.load("bench")
        state = load.state()
        schema = state.snapshot.schema
        files = list(write_batches(new_job(state.snapshot, schema), pq.read_table(self.changes).to_batches()))
        self._ready = load, state, ChangedRows(files=files, schema=schema, keys=("id",), newest_by="updated_at")

    def _upsert(self) -> None:
        assert self._ready is not None
        load, state, changes = self._ready
        report = load.upsert(state, changes, {}, reason="the benchmark merges")
        assert (report.written, report.replaced) == (self.rows, self.rows)
