"""Back up one table into the platform's repository.

1. The job is recorded, and the table's newest version is captured: its log's files and all files that they name.
2. What an earlier backup has unchanged is taken from there; the rest is copied, by Spark tasks or by threads here.
3. The manifest is written last. Until then there is no backup, and whoever goes on copies nothing twice.

A file that vanishes while it is copied means that VACUUM or log cleanup was faster: the backup looks at the table
again, a few times at most, then it fails by the file's name.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from dw_platform.backup import (
    BackupHeader,
    BackupIdentity,
    BackupKind,
    BackupRef,
    BackupRepository,
    CopyPlan,
    Hold,
    Journal,
    KindDecision,
    Manifest,
    ManifestDamagedError,
    Place,
    SourceFileChangedError,
    SourceFileGoneError,
    StoredFile,
    TableCapture,
    capture_table,
    current_chain,
    decide_kind,
    full_plan,
    incremental_plan,
    new_manifest,
)
from dw_platform.config import BackupPolicySection
from dw_platform.foundation import TransientError, format_duration
from dw_platform.lake.opening import TableMissingError
from dw_platform.pipelines.backup_catalogue import catalogue_backups
from dw_platform.pipelines.backup_copy import CopyWork, hands_of, pieces_of, without_log
from dw_platform.pipelines.backup_jobs import BackupJob, job_on
from dw_platform.pipelines.backup_report import BackupReport, OnProgress
from dw_platform.pipelines.backup_repository import (
    chain_policy,
    find_policy,
    open_repository,
    place_of,
)
from dw_platform.pipelines.backup_tasks import NotedProgress, run_tasks, stream_policy, task_count
from dw_platform.pipelines.platform import Platform

log = logging.getLogger(__name__)

# Each attempt copies only what is new, so a table is hardly ever faster than the third.
_ATTEMPTS = 3
_RETENTION = "delta.deletedFileRetentionDuration"
_DELTAS_RETENTION = timedelta(days=7)
_INTERVAL = re.compile(r"interval\s+(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


class NotesLostError(TransientError):
    """Notes of what was stored are gone, so the backup would lack files; none was made."""

    def __init__(self, table: str, files: Sequence[str]) -> None:
        self.table, self.files = table, tuple(files)
        super().__init__(
            f"{table}: the notes about {len(files)} files that were just copied cannot be read, {files[0]} among them. "
            "No backup was made; run it again, and verify the repository if it happens twice: its disk may be failing."
        )


def back_up_table(
    platform: Platform, policy: str, table: str, *, full: bool = False, on_progress: OnProgress = lambda _: None
) -> BackupReport:
    """Back up the table's newest version; `full` reads everything again, whatever the policy says.

    Whatever is raised, earlier backups are as they were, and the next run goes on with what was copied.
    """
    section = find_policy(platform.config, policy)
    if not platform.lake.table(table).exists():
        raise TableMissingError(table, platform.lake.location(table).uri)
    repository = open_repository(platform, create=True)
    with job_on(platform, "backup", table, {"policy": policy}) as (job, _), repository.shared() as hold:
        report = _Backup(platform, repository, section, table, job, hold, on_progress).run(full=full)
    catalogue_backups(platform, repository)
    return report


@dataclass(frozen=True, slots=True)
class _Planned:
    """One attempt: what is there, what an earlier backup has of it, and what is copied."""

    capture: TableCapture
    parent: Manifest | None
    plan: CopyPlan
    decision: KindDecision

    @property
    def unchanged(self) -> bool:
        """Whether the newest backup says all that this one would."""
        same = self.parent is not None and self.parent.header.table_version == self.capture.state.version
        return same and self.decision.kind is BackupKind.INCREMENTAL and not self.plan.copy


@dataclass(slots=True)
class _Backup:
    """One backup under way; used by one thread."""

    platform: Platform
    repository: BackupRepository
    policy: BackupPolicySection
    table: str
    job: BackupJob
    hold: Hold
    on_progress: OnProgress

    def run(self, *, full: bool) -> BackupReport:
        started = self.platform.clock.monotonic()
        journal = self.repository.journal(self.job.id)
        left = _by_file(journal.entries())
        planned = self._copied(journal, full=full)
        stored = _by_file(journal.entries())
        copied = [found for file in planned.capture.files if (found := stored.get(file.identity)) is not None]
        if planned.unchanged:
            assert planned.parent is not None
            header = planned.parent.header
        else:
            header = self._published(planned, copied)
        journal.clear()
        duration_s = self.platform.clock.monotonic() - started
        totals = header.totals
        return BackupReport(
            table=self.table,
            policy=self.policy.name,
            backup_id=header.backup_id,
            kind=header.kind,
            reason="nothing has changed since" if planned.unchanged else planned.decision.reason,
            version=header.table_version,
            chain_id=header.chain_id,
            files=totals.files,
            bytes=totals.bytes,
            copied_files=0 if planned.unchanged else totals.copied_files,
            copied_bytes=0 if planned.unchanged else totals.copied_bytes,
            stored_bytes=totals.stored_bytes,
            unchanged=planned.unchanged,
            resumed_files=sum(file.identity in left for file in planned.capture.files),
            warnings=_warnings(planned.capture, duration_s),
            duration_s=duration_s,
        )

    def _copied(self, journal: Journal, *, full: bool) -> _Planned:
        """Copy what is missing; if a file vanishes meanwhile, capture the table again and go on from there."""
        attempt = 1
        while True:
            planned = self._planned(journal, full=full)
            try:
                self._copy(planned.plan, journal)
            except (SourceFileGoneError, SourceFileChangedError) as error:
                if attempt == _ATTEMPTS:
                    raise
                log.info("capturing again", extra={"table": self.table, "reason": str(error)})
                attempt += 1
            else:
                return planned

    @property
    def _source(self) -> Place:
        return place_of(self.platform.lake.location(self.table))

    def _planned(self, journal: Journal, *, full: bool) -> _Planned:
        capture = capture_table(self._source, history=self.policy.history)
        chain = current_chain(self.repository.manifests.headers(self.table).headers, self.table, self.policy.name)
        parent = self._manifest(chain.newest) if chain else None
        index, notes = self.repository.objects.index(), journal.entries()
        former = parent.files if parent else ()
        increment = incremental_plan(capture, former, index, notes)
        decision = decide_kind(
            chain if parent else None,
            chain_policy(self.policy),
            now=self.platform.clock.now(),
            share=increment.share,
            broken=self.repository.health.broken_ids(),
            forced=full,
        )
        is_full = decision.kind is BackupKind.FULL
        return _Planned(capture, parent, full_plan(capture, former, index, notes) if is_full else increment, decision)

    def _manifest(self, header: BackupHeader) -> Manifest | None:
        try:
            return self.repository.manifests.read(BackupRef(header.table, header.backup_id))
        except ManifestDamagedError:
            return None  # a full backup, which needs no parent, takes its place

    def _copy(self, plan: CopyPlan, journal: Journal) -> None:
        pieces = pieces_of(plan.copy, plan.known)
        total = sum(file.size for file in plan.copy)
        tasks = task_count(self.platform, total)
        work = CopyWork(
            objects=self.repository.objects,
            source=self._source,
            journal=journal,
            hands=hands_of(pieces, tasks),
            known=without_log(plan.known),
            streams=stream_policy(self.platform),
        )
        progress = NotedProgress(f"backing up {self.table}", plan.copy, journal, self.on_progress)
        run_tasks(self.platform, work.copy, len(work.hands), in_spark=tasks > 1, on_wait=progress.tell)

    def _published(self, planned: _Planned, copied: Sequence[StoredFile]) -> BackupHeader:
        fresh = {stored.source.path for stored in copied}
        reused = [stored for stored in planned.plan.reuse if stored.source.path not in fresh]
        # The log's word on a file did not travel with the copy.
        sources = {file.path: file for file in planned.capture.files}
        if lost := sources.keys() - {stored.source.path for stored in (*reused, *copied)}:
            raise NotesLostError(self.table, sorted(lost))
        whole = [replace(stored, source=sources[stored.source.path]) for stored in (*reused, *copied)]
        is_full = planned.decision.kind is BackupKind.FULL
        manifest = new_manifest(
            BackupIdentity(
                repository_id=self.repository.id,
                platform=self.platform.config.name,
                table=self.table,
                policy=self.policy.name,
                job_id=self.job.id,
            ),
            planned.capture.state,
            sorted(whole, key=lambda stored: stored.source.path),
            copied=copied,
            parent=None if is_full or planned.parent is None else planned.parent.header,
            latest_id=self.repository.manifests.latest_id(self.table),
            fence=self.hold.token,
            now=self.platform.clock.now(),
        )
        self.repository.publish(manifest, self.hold)
        return manifest.header


def _by_file(entries: Iterable[StoredFile]) -> dict[tuple[str, int, int], StoredFile]:
    return {stored.source.identity: stored for stored in entries}


def _warnings(capture: TableCapture, duration_s: float) -> tuple[str, ...]:
    """Return what an operator should know although the backup is whole."""
    configured = (capture.state.metadata.get("configuration") or {}).get(_RETENTION)
    retention = deleted_file_retention(configured)
    if retention is not None and duration_s > retention.total_seconds() / 2:
        took = format_duration(timedelta(seconds=round(duration_s)))
        told = f"the backup took {took}, but VACUUM may remove files after {format_duration(retention)}"
        return (f"{told}: raise {_RETENTION} of the table, or back it up more often",)
    return ()


def deleted_file_retention(configured: str | None) -> timedelta | None:
    """Return how long files that a version no longer needs stay; None if the table says it in a way unknown here."""
    if configured is None:
        return _DELTAS_RETENTION
    match = _INTERVAL.fullmatch(configured.strip())
    return timedelta(**{f"{match[2].lower()}s": int(match[1])}) if match else None
