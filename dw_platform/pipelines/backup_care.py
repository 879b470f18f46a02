"""Looking after a repository: verify what is stored, let expire what retention gives up, pin what must stay."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dw_platform.backup import (
    BackupRepository,
    ExpiryPlan,
    Finding,
    FindingKind,
    ObjectCheck,
    SweepReport,
    VerifyReport,
    VerifyScope,
    expiry,
    prune,
    verify,
)
from dw_platform.fileio.streams import StreamPolicy, run_streams
from dw_platform.foundation import PermanentError
from dw_platform.pipelines.backup_catalogue import catalogue_backups
from dw_platform.pipelines.backup_jobs import job_on
from dw_platform.pipelines.backup_report import BackupProgress, OnProgress
from dw_platform.pipelines.backup_repository import open_repository, retention_policies, sweep_policy
from dw_platform.pipelines.backup_tasks import run_tasks, stream_policy, task_count
from dw_platform.pipelines.platform import Platform

Item = tuple[str, int]


class RepositoryNotHealthyError(PermanentError):
    """Verification found backups that do not restore."""

    def __init__(self, broken: Mapping[str, str]) -> None:
        self.broken = dict(broken)
        shown = ", ".join(f"{backup} of {table}" for backup, table in sorted(broken.items())[:5])
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        super().__init__(
            f"{len(broken)} backups do not restore as a whole: {shown}{more}. What is damaged was set aside; the next "
            "backup of these tables stores it again if the table still has the files. `dw backup show ID` says which."
        )


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a removal did, or would do."""

    plan: ExpiryPlan
    swept: SweepReport | None
    """None for a dry run."""


def verify_backups(
    platform: Platform, scope: VerifyScope | None = None, *, on_progress: OnProgress = lambda _: None
) -> VerifyReport:
    """Read stored objects again and compare them with their hashes; mend or set aside what is damaged."""
    repository = open_repository(platform)
    reading = _Reading(platform, repository, on_progress)
    return verify(repository, scope or VerifyScope(), each=reading.each)


def prune_backups(platform: Platform, *, dry_run: bool = False) -> PruneReport:
    """Remove the backups that no rule of their policy keeps, and then what no backup needs."""
    repository = open_repository(platform)
    policies = retention_policies(platform.config)
    if dry_run:
        return PruneReport(expiry(repository, policies), None)
    with job_on(platform, "prune", platform.config.backup_repository), repository.exclusive() as hold:
        # Planned under the lease: what another process has just backed up is part of it.
        plan = expiry(repository, policies)
        swept = prune(repository, plan.remove, hold, sweep_policy(platform.config))
    catalogue_backups(platform, repository)
    return PruneReport(plan, swept)


@dataclass(slots=True)
class _Reading:
    """Reads objects by Spark tasks or threads, for `verify`."""

    platform: Platform
    repository: BackupRepository
    on_progress: OnProgress

    def each(self, check: Callable[[Item], Finding | None], items: Iterable[Item], /) -> Iterable[Finding | None]:
        """Return what is found in each item."""
        del check  # the work makes its own, whose reads wait for their turn
        listed = sorted(items, key=lambda item: -item[1])
        total = sum(size for _, size in listed)
        tasks = task_count(self.platform, total)
        hands = tuple(tuple(listed[first::tasks]) for first in range(min(tasks, len(listed))))
        work = _VerifyWork(ObjectCheck(self.repository.objects), hands, stream_policy(self.platform))
        self._tell(0, total, 0, len(listed))
        told = run_tasks(self.platform, work.verify, len(hands), in_spark=tasks > 1, on_wait=lambda: None)
        self._tell(total, total, len(listed), len(listed))
        # From a Spark task a finding comes as JSON, in which its kind is a text.
        return [
            Finding(**finding | {"kind": FindingKind(finding["kind"])}) for findings in told for finding in findings
        ]

    def _tell(self, done: int, total: int, files: int, of: int) -> None:
        self.on_progress(BackupProgress(what="verifying", done_bytes=done, total_bytes=total, files=files, of_files=of))


@dataclass(frozen=True, slots=True)
class _VerifyWork:
    """What the tasks of a verification do; picklable."""

    check: ObjectCheck
    hands: tuple[tuple[Item, ...], ...]
    streams: StreamPolicy

    def verify(self, hand: int) -> list[dict[str, Any]]:
        """Return what is wrong with the objects of one hand."""

        def work(item: Item, io: Any) -> Finding | None:
            return ObjectCheck(self.check.objects, io)(item)

        found = run_streams(self.hands[hand], work, self.streams.shared_by(len(self.hands)))
        return [asdict(finding) for finding in found if finding is not None]
