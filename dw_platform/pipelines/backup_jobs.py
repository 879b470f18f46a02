"""Jobs of backups, restores and removals, at `dw://internal/backup/{job_id}`: what was begun, by whom, how it ended.

A job is recorded before its first byte and forgotten when it is done: a backup is then told by its manifest. What a
crash or a failure leaves is therefore a record, and the next job of the same kind, on the same thing, takes it over
with its id, under which the repository remembers what was stored already.

Only one job at a time works on a table, a target or a policy: a lease keeps others out, and shows who died.
"""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args

from dw_platform.foundation import PlatformError, TransientError, UserError
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.scaling.listing import list_records
from dw_platform.store import Entry, Lease, LeaseLock, LeaseMode, LeaseTimeoutError, internal_key, internal_prefix
from dw_platform.store.owner import is_dead, process_owner

JobKind = Literal["backup", "restore", "prune"]


class JobBusyError(TransientError):
    """Another process does the same at this moment."""

    def __init__(self, kind: str, subject: str, owner: str) -> None:
        self.kind, self.subject, self.owner = kind, subject, owner
        super().__init__(
            f"{subject}: another {kind} is under way ({owner}). Wait until it is done; if its machine has died, its "
            "claim ends by itself within half a minute."
        )


class JobGoneError(TransientError):
    """A job that was to be gone on with is no longer as it was found."""

    def __init__(self, kind: str, subject: str) -> None:
        self.kind, self.subject = kind, subject
        super().__init__(
            f"{subject}: another process has gone on with the {kind} meanwhile, or has cleaned up after it. Look again "
            "with `dw backup list`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupJob:
    """A job that was begun and is not done."""

    id: str
    kind: JobKind
    subject: str
    """The table that is backed up, the folder that is restored to, or the policy that is pruned."""

    owner: str
    """The process that works on it, or did."""

    began: datetime
    attempts: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it takes to go on: the policy, the backup that is restored."""

    error: str | None = None
    """What the last attempt failed with; None while it runs, and for ever if its process was killed."""

    def encode(self) -> bytes:
        """Return the record as the control store holds it."""
        return encode_object(
            {
                "kind": self.kind,
                "subject": self.subject,
                "owner": self.owner,
                "began": self.began.isoformat(),
                "attempts": self.attempts,
                "options": dict(self.options),
                "error": self.error,
            }
        )

    @classmethod
    def decode(cls, entry: Entry) -> "BackupJob":
        """Return what an entry holds; UndecodableRecordError if that is no job."""

        def build(content: dict[str, Any]) -> BackupJob:
            if content["kind"] not in get_args(JobKind):
                raise ValueError(f"{content['kind']!r} is no kind of job")
            return cls(
                id=entry.key.rpartition("/")[2],
                kind=content["kind"],
                subject=str(content["subject"]),
                owner=str(content["owner"]),
                began=as_time(content["began"]),
                attempts=int(content["attempts"]),
                options=as_object(content["options"]),
                error=content["error"],
            )

        return decode_object(entry, build)


def recorded_jobs(platform: Platform) -> list[BackupJob]:
    """Return every job that is not done, oldest first: those that run, that failed, and that were killed."""
    found = (job for _, job in list_records(platform.store, internal_prefix("backup"), BackupJob.decode))
    return sorted(found, key=lambda job: job.began)


def incomplete_jobs(platform: Platform) -> list[BackupJob]:
    """Return the jobs that nobody works on any more."""
    return [job for job in recorded_jobs(platform) if not _runs(platform, job)]


def forget_job(platform: Platform, job: BackupJob) -> None:
    """Remove the record of a job that nobody will go on with."""
    platform.store.delete(_key(job.id))


@contextlib.contextmanager
def left_alone(platform: Platform, job: BackupJob) -> Iterator[None]:
    """Keep everybody off a job that is cleaned up; JobBusyError or JobGoneError if somebody has gone on with it."""
    with _alone(platform, job.kind, job.subject):
        if job not in recorded_jobs(platform):
            raise JobGoneError(job.kind, job.subject)
        yield


@contextlib.contextmanager
def job_on(
    platform: Platform,
    kind: JobKind,
    subject: str,
    options: Mapping[str, Any] | None = None,
    *,
    resumes: str | None = None,
) -> Iterator[tuple[BackupJob, Lease]]:
    """Work on `subject` alone, recorded as a job; an unfinished one of the same kind and options is taken over.

    JobBusyError if another process works on it; with `resumes`, JobGoneError if the job of that id is no longer there.
    When the block fails, the job stays with the reason, and goes on with the next attempt.
    """
    with _alone(platform, kind, subject) as lease:
        job = _begin(platform, kind, subject, dict(options or {}), resumes)
        try:
            yield job, lease
        except UserError:
            # What was asked for cannot be done, so nobody is to go on with it; nothing was begun.
            forget_job(platform, job)
            raise
        except BaseException as error:
            told = str(error) if isinstance(error, PlatformError) else type(error).__name__
            with contextlib.suppress(PlatformError):  # without the store, the job is found by its lease's end
                platform.store.put(_key(job.id), replace(job, error=told).encode())
            raise
        platform.store.delete(_key(job.id))


def _begin(platform: Platform, kind: JobKind, subject: str, options: dict[str, Any], resumes: str | None) -> BackupJob:
    job = BackupJob(
        id=secrets.token_hex(8),
        kind=kind,
        subject=subject,
        owner=process_owner(),
        began=platform.clock.now(),
        options=options,
    )
    same = [each for each in recorded_jobs(platform) if (each.kind, each.subject) == (kind, subject)]
    before = next((each for each in same if each.options == options), None)
    if resumes is not None and (before is None or before.id != resumes):
        raise JobGoneError(kind, subject)
    if before is not None:
        job = replace(job, id=before.id, began=before.began, attempts=before.attempts + 1)
    elif kind == "restore":
        # Something else is restored into the same place, so nobody goes on with what was begun there.
        for each in same:
            forget_job(platform, each)
    platform.store.put(_key(job.id), job.encode())
    return job


@contextlib.contextmanager
def _alone(platform: Platform, kind: JobKind, subject: str) -> Iterator[Lease]:
    lock = _lock(platform, kind, subject)
    lock.forget(is_dead)
    try:
        lease = lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
    except LeaseTimeoutError as error:
        raise JobBusyError(kind, subject, ", ".join(error.holders)) from error
    with lease:
        yield lease


def _runs(platform: Platform, job: BackupJob) -> bool:
    """Whether somebody holds the lease of the job's subject; a dead process of this machine does not."""
    if is_dead(job.owner):
        return False
    try:
        with _lock(platform, job.kind, job.subject).acquire(LeaseMode.EXCLUSIVE, timeout_s=0):
            return False
    except LeaseTimeoutError:
        return True


def _lock(platform: Platform, kind: JobKind, subject: str) -> LeaseLock:
    return LeaseLock(platform.store, internal_key("backup-lease", kind, subject), owner=process_owner())


def _key(job_id: str) -> str:
    return internal_key("backup", job_id)
