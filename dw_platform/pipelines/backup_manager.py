"""Backups as the rest of the platform sees them: run, verified, restored, pruned, recovered; the subsystem `backup`.

How many tables are backed up at once is the limit `jobs`, which a sensor moves by the utilisation of the disks, and
people by `dw scale set backup`; a run of a policy follows it while it runs. How many files one job copies at once
follows the disks in the job itself.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from dw_platform.backup import BackupChain, BackupHeader, VerifyReport, VerifyScope, build_chains
from dw_platform.fileio.crew import Crew
from dw_platform.foundation import PlatformError
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import PruneReport, prune_backups, verify_backups
from dw_platform.pipelines.backup_jobs import incomplete_jobs
from dw_platform.pipelines.backup_limits import BackupLimits
from dw_platform.pipelines.backup_recover import Recovered, recover_incomplete_jobs
from dw_platform.pipelines.backup_report import BackupReport, OnProgress, PolicyReport, RestoreReport
from dw_platform.pipelines.backup_repository import (
    TableNotInPolicyError,
    find_policy,
    open_repository,
    policy_tables,
)
from dw_platform.pipelines.backup_restore import restore_policy, restore_table
from dw_platform.pipelines.limits import effective_backup_limits
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import GaugeReading, PressureGauge

# How soon a run of a policy notices that more tables may be backed up at once.
_FOLLOW_EVERY_S = 5.0


class BackupScalingManager:
    """A ScalableSubsystem over the platform's repository; any thread may use it, and one process needs one.

    Its pressure is the share of the tables allowed at once that are being backed up.
    """

    name = "backup"

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._limits = effective_backup_limits(platform)
        self._gauge = PressureGauge(self.name, self._limits.thresholds, clock=platform.clock)
        self._lock = threading.Lock()
        self._running = self._done = self._failed = self._copied_bytes = 0

    def back_up(
        self, policy: str, tables: Sequence[str] = (), *, full: bool = False, on_progress: OnProgress = lambda _: None
    ) -> PolicyReport:
        """Back up the policy's tables that exist, or those of `tables`; one that fails does not stop the others."""
        platform, section = self._platform, find_policy(self._platform.config, policy)
        named = policy_tables(platform.config, section)
        for table in tables:
            if table not in named:
                raise TableNotInPolicyError(table, policy, named)
        wanted = list(dict.fromkeys(tables)) or [table for table in named if platform.lake.table(table).exists()]
        done, failed = dict[str, BackupReport](), dict[str, PlatformError]()

        def work(table: str) -> None:
            with self._counted():
                try:
                    done[table] = back_up_table(platform, policy, table, full=full, on_progress=on_progress)
                except PlatformError as error:
                    failed[table] = error
            with self._lock:
                self._failed += table in failed
                self._copied_bytes += done[table].copied_bytes if table in done else 0

        crew = Crew[str, None](work, pace=self._allowed, every_s=_FOLLOW_EVERY_S, streams=self._limits.jobs)
        crew.run(wanted)
        return PolicyReport(
            policy=policy,
            backups=tuple(done[table] for table in wanted if table in done),
            failed=tuple((table, failed[table]) for table in wanted if table in failed),
        )

    def restore(
        self,
        table: str,
        target: str,
        *,
        backup_id: str | None = None,
        at: datetime | None = None,
        version: int | None = None,
        overwrite: bool = False,
        on_progress: OnProgress = lambda _: None,
    ) -> RestoreReport:
        """Restore one table: the newest backup, or that of an id, a version or a time."""
        return restore_table(
            self._platform,
            table,
            target,
            backup_id=backup_id,
            at=at,
            version=version,
            overwrite=overwrite,
            on_progress=on_progress,
        )

    def restore_policy(
        self,
        policy: str,
        folder: str,
        *,
        at: datetime | None = None,
        overwrite: bool = False,
        on_progress: OnProgress = lambda _: None,
    ) -> list[RestoreReport]:
        """Restore every table of a policy below a folder."""
        return restore_policy(self._platform, policy, folder, at=at, overwrite=overwrite, on_progress=on_progress)

    def verify(self, scope: VerifyScope | None = None, *, on_progress: OnProgress = lambda _: None) -> VerifyReport:
        """Read what is stored again and compare it with its hashes."""
        return verify_backups(self._platform, scope, on_progress=on_progress)

    def prune(self, *, dry_run: bool = False) -> PruneReport:
        """Let expire what retention gives up."""
        return prune_backups(self._platform, dry_run=dry_run)

    def recover_incomplete_jobs(
        self, *, discard: bool = False, on_progress: OnProgress = lambda _: None
    ) -> list[Recovered]:
        """Go on with what crashes have left, or clean up after it."""
        return recover_incomplete_jobs(self._platform, discard=discard, on_progress=on_progress)

    def chains(self, table: str | None = None) -> tuple[BackupChain, ...]:
        """Return the chains there are, oldest first."""
        return build_chains(self._headers(table))

    def pin(self, backup_id: str, *, reason: str, by: str) -> None:
        """Keep a backup whatever retention says."""
        open_repository(self._platform).pin(backup_id, reason=reason, by=by)

    def unpin(self, backup_id: str) -> None:
        """Let a backup expire like others."""
        repository = open_repository(self._platform)
        repository.find(backup_id)
        repository.pins.remove(backup_id)

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return what this process has done, and how many jobs nobody works on."""
        with self._lock:
            return {
                "running": self._running,
                "done": self._done,
                "failed": self._failed,
                "copied_bytes": self._copied_bytes,
                "incomplete": len(incomplete_jobs(self._platform)),
            }

    def current_limits(self) -> BackupLimits:
        """Return the limits in force."""
        return self._limits

    def reconfigure_limits(self, limits: BackupLimits) -> None:
        """Back up as many tables at once from now on; what runs is finished."""
        self._limits = limits
        self._gauge.reconfigure(limits.thresholds)

    def backpressure_state(self) -> GaugeReading:
        """Return the pressure after the last backup began or ended."""
        return self._gauge.reading()

    def _headers(self, table: str | None) -> tuple[BackupHeader, ...]:
        return open_repository(self._platform).manifests.headers(table).headers

    def _allowed(self, _: int) -> int:
        """Take what a sensor or an operator has set since."""
        self.reconfigure_limits(effective_backup_limits(self._platform))
        return self._limits.jobs

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count one job while it runs."""
        self._count(begun=1, ended=0)
        try:
            yield
        finally:
            self._count(begun=0, ended=1)

    def _count(self, *, begun: int, ended: int) -> None:
        with self._lock:
            self._running, self._done = self._running + begun - ended, self._done + ended
            share = self._running / self._limits.jobs
        self._gauge.observe(share)
