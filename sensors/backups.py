"""Two sensors around backups: one goes on with what a crash left, one sizes the pool by how busy the disks are.

No JVM: jobs are in the control store, and the counters of the disks are the kernel's. The cursor of the second holds
the counters and the average, because an average needs the samples before.
"""

import json

import dagster as dg

from assets.backups import BACKUP_POOL, RECOVER_JOB
from dw_platform.config import PlatformConfig
from dw_platform.fileio import CounterSource, DiskStats, real_disks, sample_once
from dw_platform.foundation import InvalidValueError
from dw_platform.pipelines.backup_jobs import incomplete_jobs
from dw_platform.pipelines.backup_limits import BackupLimits
from dw_platform.pipelines.limits import effective_backup_limits, limit_control
from dw_platform.scaling.concurrency import ConcurrencyPolicy, Follow, LatencyTrail, decide_concurrency
from resources import PlatformResource, PoolLimits

# What has failed so often waits for a person, or for the next scheduled backup, which goes on with it.
_MOST_ATTEMPTS = 5
# The daemon's own default; the averages remember about three ticks, a minute and a half.
_EVERY_S = 30


def backup_sensors(config: PlatformConfig, counters: CounterSource | None = None) -> list[dg.SensorDefinition]:
    """Return the sensors of backups, none if nothing is backed up; `counters` are those of the machine's disks."""
    return [_recovery(), _concurrency(config, counters or DiskStats())] if config.backups.policies else []


def _recovery() -> dg.SensorDefinition:
    @dg.sensor(
        name="backup_recovery",
        job_name=RECOVER_JOB,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Goes on with backups, restores and removals whose process died.",
    )
    def backup_recovery(
        context: dg.SensorEvaluationContext, platform: PlatformResource
    ) -> dg.RunRequest | dg.SkipReason:
        del context
        jobs = incomplete_jobs(platform.open())
        if not jobs:
            return dg.SkipReason("no backup, restore or removal was left unfinished")
        hopeful = [job for job in jobs if job.attempts < _MOST_ATTEMPTS]
        if not hopeful:
            told = "; ".join(f"{job.kind} of {job.subject} did not end in {job.attempts} attempts" for job in jobs)
            return dg.SkipReason(f"{told}; `dw backup recover` tries again")
        # The attempts are part of the key: what failed is tried again, but not while the last attempt is under way.
        key = ",".join(f"{job.id}:{job.attempts}" for job in hopeful)
        told = "; ".join(f"{job.kind} of {job.subject}" for job in hopeful)
        return dg.RunRequest(run_key=f"{RECOVER_JOB}:{key}", tags={"dw/reason": told})

    return backup_recovery


def _concurrency(config: PlatformConfig, counters: CounterSource) -> dg.SensorDefinition:
    follow = Follow(config.backups.follow)

    @dg.sensor(
        name="backup_concurrency",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Lets more tables be backed up at once while the disks are idle, and fewer while they are busy.",
    )
    def backup_concurrency(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult:
        opened, pools = platform.open(), PoolLimits(context.instance)
        disks, trail = _remembered(context.cursor)
        tick = sample_once(disks, interval_s=_EVERY_S, source=counters, clock=opened.clock)
        limits = effective_backup_limits(opened)
        if (reading := tick.sample.reading) is not None:
            trail = trail.after(limits.jobs, await_ms=reading.await_ms, bytes_per_s=reading.bytes_per_s)
        decision = decide_concurrency(
            limits.jobs, utilisation=tick.sample.utilisation, policy=_policy(limits, follow), latency=trail
        )
        if decision.limit != limits.jobs:
            limit_control(opened).set(
                "backup", {"jobs": decision.limit}, changed_by="sensor:backup_concurrency", reason=decision.reason
            )
        if pools.current(BACKUP_POOL) != decision.limit:
            pools.set(BACKUP_POOL, decision.limit)
        return dg.SensorResult(
            skip_reason=f"{BACKUP_POOL}: {limits.jobs} -> {decision.limit}, {decision.reason}",
            cursor=json.dumps([tick.cursor, trail.to_json()]),
        )

    return backup_concurrency


def _policy(limits: BackupLimits, follow: Follow) -> ConcurrencyPolicy:
    return ConcurrencyPolicy(
        ceiling=ConcurrencyPolicy.for_disks(real_disks()).ceiling,
        follow=follow,
        grow_below=limits.grow_below,
        shrink_above=limits.shrink_above,
    )


def _remembered(cursor: str | None) -> tuple[str | None, LatencyTrail]:
    """Return the disks' counters and the trail; a cursor of another version counts as none."""
    try:
        disks, trail = json.loads(cursor or "null")
        return disks, LatencyTrail.from_json(trail)
    except (ValueError, TypeError, InvalidValueError):
        return None, LatencyTrail()
