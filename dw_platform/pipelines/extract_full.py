"""A full copy: read in parts that a killed run remembers, shown at once when the last of them is there.

1. The greatest key is taken as the fixed end, so that a table that grows meanwhile is read to an end.
2. The key is cut into lanes of even size, and the cuts are committed: whoever goes on uses the same.
3. Tasks read lanes; every few pages a commit without rows says how far each lane is and which files are finished.
4. One commit replaces the table's rows by all files. Until then readers see what was there before.

A run that finds an unfinished one of the same columns and key goes on with it. What the database says must be the same
as well: after a change of the source's columns, or when files are gone, the copy begins again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from dw_platform.lake.lanes import run_lanes
from dw_platform.lake.load import LoadState, TableLoad
from dw_platform.lake.parquet import DataFile, WriteJob
from dw_platform.lake.parts import Part
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.value_files import ValueFiles
from dw_platform.pipelines.extract_plan import ExtractPlan, check_key, cut
from dw_platform.pipelines.extract_report import ExtractProgress, OnProgress
from dw_platform.pipelines.extract_state import ExtractState, LaneState, files_of
from dw_platform.pipelines.platform import Platform

# Older than this the source has moved on too far for the two halves of a copy to go together.
RESUMABLE_FOR = timedelta(days=3)


@dataclass(slots=True)
class FullCopy:
    """One full copy under way; used by one thread."""

    platform: Platform
    plan: ExtractPlan
    load: TableLoad
    on_progress: OnProgress

    commits: int = 0
    resumed: bool = False

    def run(self, at: LoadState, *, anew: bool, cursor: str | None = None) -> tuple[CommitReport, ExtractState]:
        """Copy, going on with an unfinished run unless `anew`; `cursor` is what the copy will have reached."""
        state, files = (None, []) if anew else self._unfinished(at)
        if state is None:
            at, state = self._begin(at, cursor)
        else:
            self.resumed = True
        job = self.plan.job(at.snapshot)
        try:
            at, state = self._read(at, state, files, job)
        finally:
            self.load.clear_notes()
        finished = replace(state, finished=True)
        report = self.load.replace(at, job, files, finished.to_json(), reason=f"a full copy of {self.plan.name}")
        self.commits += 1
        return report, finished

    def _unfinished(self, at: LoadState) -> tuple[ExtractState | None, list[DataFile]]:
        """Return a run to go on with, and its files; nothing if it cannot be trusted to be whole."""
        state = ExtractState.from_json(at.details)
        if state is None or state.finished or state.mode != "full" or state.binding != self.plan.binding:
            return None, []
        if self.platform.clock.now() - state.began > RESUMABLE_FOR:
            return None, []
        files = list[DataFile]()
        wanted = at.position
        for position, told in self.load.told(at.snapshot):
            if position != wanted or told.get("run") != state.run:
                return None, []
            files += files_of(told)
            if position == state.first:
                whole = not self.load.missing(files)
                return (state, files) if whole else (None, [])
            wanted -= 1
        return None, []

    def _begin(self, at: LoadState, cursor: str | None) -> tuple[LoadState, ExtractState]:
        end = check_key(self.plan)
        workers = self.plan.workers(self.plan.cores(self.platform))
        ends = [] if end is None else cut(self.plan, end, self.plan.lane_count(workers, self.plan.section.commit_rows))
        starts = [None, *ends[:-1]]
        state = ExtractState(
            mode="full",
            binding=self.plan.binding,
            began=self.platform.clock.now(),
            first=at.next,
            lanes=tuple(LaneState(start=start, upto=upto, at=start) for start, upto in zip(starts, ends, strict=False)),
            cursor=cursor,
        )
        return self._committed(at, state, [], "an extraction begins"), state

    def _read(
        self, at: LoadState, state: ExtractState, files: list[DataFile], job: WriteJob
    ) -> tuple[LoadState, ExtractState]:
        """Read what is left, committing now and then; before an error goes on, what was read is committed."""
        pending = list[Part]()

        def commit() -> None:
            nonlocal at, state
            new = [file for part in pending for file in part.files]
            state = state.with_parts(pending)
            at = self._committed(at, state, new, f"{state.rows:,} rows of {self.plan.name} are read so far")
            files.extend(new)
            pending.clear()

        try:
            for part in self._parts(state, job):
                pending.append(part)
                waiting = sum(each.rows for each in pending)
                enough = waiting >= self.plan.section.commit_rows
                if enough:
                    commit()
                self._tell(state.rows + (0 if enough else waiting), committed=enough)
        except BaseException:
            if pending:
                commit()
            raise
        if pending:
            files.extend(file for part in pending for file in part.files)
            state = state.with_parts(pending)
        return at, state

    def _parts(self, state: ExtractState, job: WriteJob) -> Iterator[Part]:
        lanes = [(number, lane.at) for number, lane in enumerate(state.lanes) if not lane.done]
        workers = self.plan.workers(self.plan.cores(self.platform))
        return run_lanes(
            job,
            lanes,
            self.plan.pages([lane.upto for lane in state.lanes], ValueFiles(job.location)),
            workers=workers,
            part_rows=max(1, self.plan.section.commit_rows // max(1, min(workers, len(lanes)))),
            spark=self.platform.spark.get if self.plan.use_spark(self.platform) else None,
        )

    def _committed(self, at: LoadState, state: ExtractState, files: list[DataFile], reason: str) -> LoadState:
        self.commits += 1
        return self.load.progress(at, state.to_json(files), reason=reason)

    def _tell(self, rows: int, *, committed: bool) -> None:
        self.on_progress(ExtractProgress(rows=rows, total=self.plan.estimated_rows, committed=committed))
