"""What a crash left of backups, restores and removals: gone on with, or cleaned up."""

from dataclasses import dataclass
from typing import Literal

from dw_platform.backup import BackupNotFoundError
from dw_platform.foundation import PlatformError
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import prune_backups
from dw_platform.pipelines.backup_jobs import (
    BackupJob,
    JobBusyError,
    JobGoneError,
    forget_job,
    incomplete_jobs,
    left_alone,
)
from dw_platform.pipelines.backup_report import OnProgress
from dw_platform.pipelines.backup_repository import open_repository, policy_tables
from dw_platform.pipelines.backup_restore import restore_backup, undo_restore
from dw_platform.pipelines.platform import Platform

Outcome = Literal["finished", "discarded", "failed", "busy"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one job."""

    job: BackupJob
    outcome: Outcome
    told: str
    error: PlatformError | None = None


def recover_incomplete_jobs(
    platform: Platform, *, discard: bool = False, on_progress: OnProgress = lambda _: None
) -> list[Recovered]:
    """Go on with every job that nobody works on any more; with `discard`, clean up after it instead.

    A job whose table or policy is no longer in platform.yaml, or whose backup has expired, is always cleaned up.
    """
    return [_recover(platform, job, discard=discard, on_progress=on_progress) for job in incomplete_jobs(platform)]


def _recover(platform: Platform, job: BackupJob, *, discard: bool, on_progress: OnProgress) -> Recovered:
    try:
        if discard or not _is_wanted(platform, job):
            return Recovered(job, "discarded", _discard(platform, job))
        return Recovered(job, "finished", _finish(platform, job, on_progress))
    except (JobBusyError, JobGoneError) as error:
        return Recovered(job, "busy", str(error), error)
    except PlatformError as error:
        return Recovered(job, "failed", str(error), error)


def _is_wanted(platform: Platform, job: BackupJob) -> bool:
    if job.kind == "prune":
        return True
    if job.kind == "restore":
        try:
            open_repository(platform).find(str(job.options["backup"]))
        except BackupNotFoundError:
            return False
        return True
    policies = (policy for policy in platform.config.backups.policies if policy.name == job.options.get("policy"))
    return any(job.subject in policy_tables(platform.config, policy) for policy in policies)


def _finish(platform: Platform, job: BackupJob, on_progress: OnProgress) -> str:
    match job.kind:
        case "backup":
            report = back_up_table(platform, str(job.options["policy"]), job.subject, on_progress=on_progress)
            return f"{job.subject} is backed up as {report.backup_id}"
        case "restore":
            restored = restore_backup(
                platform,
                str(job.options["backup"]),
                job.subject,
                overwrite=bool(job.options["overwrite"]),
                # What another process has finished meanwhile is not put back over what was written since.
                resumes=job.id,
                on_progress=on_progress,
            )
            return f"{restored.table} is restored to {job.subject}"
        case "prune":
            prune_backups(platform)
            return "what was to go is gone"


def _discard(platform: Platform, job: BackupJob) -> str:
    with left_alone(platform, job):
        if job.kind == "restore":
            undo_restore(platform, job)
        elif job.kind == "backup":
            # Objects that nobody names go with the next removal.
            open_repository(platform).journal(job.id).clear()
        forget_job(platform, job)
    return f"what the {job.kind} of {job.subject} had begun is given up"
