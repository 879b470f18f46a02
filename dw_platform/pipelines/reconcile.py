"""Find rows that were deleted in the source, and what else differs, without reading the source again.

Source and table are compared by fingerprints of their keys, bucket by bucket (see extract/fingerprint.py). Only what
lies in buckets that differ is looked at: rows that the source no longer has are deleted, rows that the table misses
are read and merged. All of it is one commit; if nothing differs, there is none.

The comparison begins with an incremental extraction, so that rows that are merely new do not look like differences.
Rows that change while it runs are read as they are then; a row is deleted only if the source did not have its key when
the differing bucket was read.
"""

import concurrent.futures
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dw_platform.extract.conditions import Condition
from dw_platform.extract.fingerprint import (
    PRIME,
    Bucketing,
    buckets_of,
    differing,
    fingerprints_of_batches,
    fingerprints_of_source,
    shift_for,
)
from dw_platform.extract.horizon import text_of
from dw_platform.extract.keyset import Position
from dw_platform.extract.reader import PageReader
from dw_platform.extract.source import open_engine, translated
from dw_platform.lake.changes import ChangedRows
from dw_platform.lake.lanes import run_lanes
from dw_platform.lake.load import LoadState, TableLoad
from dw_platform.lake.parts import Part
from dw_platform.lake.value_files import ValueFiles
from dw_platform.pipelines.extract_plan import ExtractPlan, lake_name
from dw_platform.pipelines.extract_state import ExtractState
from dw_platform.pipelines.platform import Platform

# Keys of one statement: long lists make statements that databases take long to understand.
_KEYS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What a comparison found and mended."""

    buckets: int
    differing: int
    rows: int = 0
    """Rows that were read again."""

    pages: int = 0
    written: int = 0
    deleted: int = 0
    version: int | None = None
    """The commit; None when nothing differed."""


@dataclass(slots=True)
class Reconciliation:
    """One comparison under way; used by one thread."""

    platform: Platform
    plan: ExtractPlan
    load: TableLoad

    def run(self, at: LoadState, state: ExtractState) -> Reconciled:
        """Compare, mend and commit; `state` is what the table has reached, and stays so."""
        bucketing = self._bucketing(at)
        # The database works on its side while this process works on its own.
        with concurrent.futures.ThreadPoolExecutor(1, "fingerprints") as beside:
            asked = beside.submit(self._of_source, bucketing)
            ours = fingerprints_of_batches(at.snapshot.stream_arrow(self.plan.key_names), bucketing)
            theirs = asked.result()
        wrong = differing(theirs, ours)
        total = len(theirs.keys() | ours.keys())
        if not wrong:
            return Reconciled(buckets=total, differing=0)
        keys = self._our_keys(at, bucketing, wrong)
        read = self._by_ranges if bucketing.by_range else self._by_keys
        parts, there = read(at, bucketing, wrong, keys)
        gone = _without(keys, there, self.plan.key_names)
        report = self.load.upsert(
            at,
            ChangedRows(
                files=[file for part in parts for file in part.files],
                schema=self.plan.schema,
                keys=self.plan.key_names,
                newest_by=lake_name(self.plan.section.cursor) if self.plan.section.cursor else None,
                deleted=gone,
            ),
            state.to_json(),
            reason=f"{self.plan.name} is reconciled: {len(gone):,} rows deleted",
        )
        return Reconciled(
            buckets=total,
            differing=len(wrong),
            rows=sum(part.rows for part in parts),
            pages=sum(part.pages for part in parts),
            written=report.written,
            deleted=len(gone),
            version=report.commit.version if report.commit else None,
        )

    def _bucketing(self, at: LoadState) -> Bucketing:
        columns = tuple(next(each for each in self.plan.columns if each.name == name) for name in self.plan.key.columns)
        bucketing = Bucketing(table=self.plan.table, columns=columns)
        if not bucketing.by_range:
            return bucketing
        lowest, highest = at.snapshot.logged_bounds(self.plan.key_names[0]) or self._bounds(at)
        # A salt of its own for every comparison: what collides once does not collide again.
        salt = PRIME + secrets.randbelow(PRIME)
        return Bucketing(table=self.plan.table, columns=columns, shift=shift_for(lowest, highest), salt=salt)

    def _bounds(self, at: LoadState) -> tuple[int, int]:
        """Return the lowest and highest key, by reading them; they decide how wide buckets are, and nothing else."""
        found = [
            pc.min_max(batch.column(0)).as_py() for batch in at.snapshot.stream_arrow(self.plan.key_names) if len(batch)
        ]
        return min((each["min"] for each in found), default=0), max((each["max"] for each in found), default=0)

    def _of_source(self, bucketing: Bucketing) -> dict[int, Any]:
        engine = open_engine(self.plan.source)
        try:
            with translated(self.plan.source, str(self.plan.table)), engine.connect() as connection:
                return fingerprints_of_source(connection, bucketing)
        finally:
            engine.dispose()

    def _our_keys(self, at: LoadState, bucketing: Bucketing, wrong: set[int]) -> pa.Table:
        """Return the keys that the table has in the differing buckets."""
        return self._in_buckets(at.snapshot.stream_arrow(self.plan.key_names), bucketing, wrong)

    def _in_buckets(self, batches: Iterable[pa.RecordBatch], bucketing: Bucketing, wrong: set[int]) -> pa.Table:
        schema = pa.schema([self.plan.schema.field(name) for name in self.plan.key_names])
        found = []
        for batch in batches:
            if len(batch):
                inside = np.isin(buckets_of(batch, bucketing), list(wrong))
                found.append(batch.filter(pa.array(inside)).rename_columns(schema.names))
        return pa.Table.from_batches(found).cast(schema) if found else schema.empty_table()

    def _by_ranges(
        self, at: LoadState, bucketing: Bucketing, wrong: set[int], _: pa.Table
    ) -> tuple[list[Part], pa.Table]:
        """Read the differing ranges of the key again, neighbouring ones in one go."""
        parts = self._read(at, [self._lane(bucketing, first, last) for first, last in _runs(sorted(wrong))])
        return parts, _keys_of(at, parts, self.plan)

    def _lane(self, bucketing: Bucketing, first: int, last: int) -> tuple[Position | None, Position]:
        low, high = first << bucketing.shift, ((last + 1) << bucketing.shift) - 1
        if bucketing.table.kind == "mysql":  # its buckets have no sign, its keys do
            low, high = (value - 2**64 if value >= 2**63 else value for value in (low, high))
        table = self.plan.table
        start = None if low <= -(2**63) else (text_of(table, low - 1),)
        return start, (text_of(table, high),)

    def _by_keys(
        self, at: LoadState, bucketing: Bucketing, wrong: set[int], ours: pa.Table
    ) -> tuple[list[Part], pa.Table]:
        """Read the source's keys, and the rows of those that the table does not have in the differing buckets."""
        theirs = self._in_buckets(self._their_keys(bucketing), bucketing, wrong)
        missing = _without(theirs, ours, self.plan.key_names)
        values = pc.unique(missing[self.plan.key_names[0]]).to_pylist()
        parts = list[Part]()
        for first in range(0, len(values), _KEYS_AT_ONCE):
            # Rows that share the key's first column come along; they are merged as they are now.
            some = Condition(self.plan.key.columns[0], "in", tuple(values[first : first + _KEYS_AT_ONCE]))
            parts += self._read(at, [(None, None)], some)
        return parts, theirs

    def _their_keys(self, bucketing: Bucketing) -> Iterator[pa.RecordBatch]:
        query = replace(self.plan.query, columns=bucketing.columns)
        with PageReader(self.plan.source, query) as reader:
            after, ended = None, False
            while not ended:
                page = reader.page(after, self.plan.page_rows)
                after, ended = page.last, page.exhausted
                yield from page.rows.to_batches()

    def _read(
        self, at: LoadState, lanes: Sequence[tuple[Position | None, Position | None]], *where: Condition
    ) -> list[Part]:
        job = self.plan.job(at.snapshot)
        query = replace(self.plan.query, where=where)
        parts = run_lanes(
            job,
            [(number, start) for number, (start, _) in enumerate(lanes)],
            self.plan.pages([end for _, end in lanes], ValueFiles(job.location), query),
            workers=self.plan.workers(self.plan.cores_without_spark(self.platform)),
            part_rows=self.plan.section.commit_rows,
            spark=self.platform.spark.get if self.platform.spark.started else None,
        )
        try:
            return list(parts)
        finally:
            self.load.clear_notes()


def _keys_of(at: LoadState, parts: Sequence[Part], plan: ExtractPlan) -> pa.Table:
    """Return the keys of the rows that were read."""
    schema = pa.schema([plan.schema.field(name) for name in plan.key_names])
    system, root = at.snapshot.location.filesystem()
    found = [
        pq.read_table(f"{root}/{file.path}", columns=schema.names, filesystem=system, partitioning=None)
        for part in parts
        for file in part.files
    ]
    return pa.concat_tables(found).cast(schema) if found else schema.empty_table()


def _without(keys: pa.Table, others: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the keys that are not among the others."""
    return keys.join(others, keys=list(names), join_type="left anti") if len(keys) else keys


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of neighbouring numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
