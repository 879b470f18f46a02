"""One asset for each table that a policy backs up, and the jobs that look after the repository."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from assets.tables import asset_key, retried_when_transient
from dw_platform.backup import NoRepositoryError, VerifyScope
from dw_platform.config import BackupPolicySection, PlatformConfig
from dw_platform.pipelines.backup_care import RepositoryNotHealthyError
from dw_platform.pipelines.backup_manager import BackupScalingManager
from dw_platform.pipelines.backup_report import BackupProgress, BackupReport
from dw_platform.pipelines.backup_repository import policy_tables
from resources import PlatformResource

BACKUP_GROUP = "backups"
BACKUP_POOL = "backup"
RECOVER_JOB = "recover_backups"
PRUNE_JOB = "prune_backups"
VERIFY_JOB = "verify_backups"
# Below everything that people wait for; a backup does not become worse by starting later.
_PRIORITY = {"dagster/priority": "-5"}


class BackupRunConfig(dg.Config):
    """What a run from the launchpad may ask for."""

    full: bool = False
    """Read every file again and begin a new chain, whatever the policy says."""


class VerifyRunConfig(dg.Config):
    """How much a verification reads, besides everything that is new."""

    share: float = 1.0


def backup_key(policy: str, table: str) -> dg.AssetKey:
    """Return the key of a table's backup: `shop.orders` by `nightly` is `backups/nightly/shop/orders`."""
    return dg.AssetKey([BACKUP_GROUP, policy.replace("-", "_"), *table.split(".")])


def backup_assets(config: PlatformConfig) -> list[dg.AssetsDefinition]:
    """Return the assets of `backups.policies`."""
    return [
        _backup_asset(config, policy, table)
        for policy in config.backups.policies
        for table in policy_tables(config, policy)
    ]


def _backup_asset(config: PlatformConfig, policy: BackupPolicySection, table: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=backup_key(policy.name, table),
        deps=[asset_key(table)],
        description=f"Backups of {table} by the policy {policy.name}; restore one with `dw backup restore {table}`.",
        group_name=BACKUP_GROUP,
        kinds={"delta", "backup"},
        metadata={"policy": policy.name, "repository": config.backup_repository},
        pool=BACKUP_POOL,
    )
    def back_up(
        context: dg.AssetExecutionContext, config: BackupRunConfig, platform: PlatformResource
    ) -> dg.MaterializeResult[None]:
        def tell(at: BackupProgress) -> None:
            if at.done_bytes:
                context.log.info(f"{at.files:,} of {at.of_files:,} files copied, {at.done_bytes:,} bytes")

        manager = BackupScalingManager(platform.open())
        with retried_when_transient():
            report = manager.back_up(policy.name, (table,), full=config.full, on_progress=tell)
            for _, error in report.failed:
                raise error
        for warning in report.backups[0].warnings:
            context.log.warning(warning)
        return dg.MaterializeResult(metadata=_metadata(report.backups[0]))

    return back_up


def backup_jobs() -> list[dg.JobDefinition]:
    """Return the jobs that recover, prune and verify."""
    return [recover_backups_job, prune_backups_job, verify_backups_job]


def backup_schedules(config: PlatformConfig) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each policy with a cron line, and those of pruning and verifying."""
    schedules = [
        dg.ScheduleDefinition(
            name=f"{policy.name.replace('-', '_')}_backup_schedule",
            cron_schedule=policy.schedule,
            target=dg.AssetSelection.assets(
                *(backup_key(policy.name, table) for table in policy_tables(config, policy))
            ),
            description=f"Backs up the tables of the policy {policy.name}.",
            tags=_PRIORITY,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for policy in config.backups.policies
        if policy.schedule
    ]
    if config.backups.prune:
        schedules.append(
            _job_schedule("backup_prune_schedule", config.backups.prune, prune_backups_job, "Lets expired backups go.")
        )
    if config.backups.verify:
        schedules.append(
            _job_schedule(
                "backup_verify_schedule",
                config.backups.verify.schedule,
                verify_backups_job,
                "Reads stored backups again and compares them with their hashes.",
                run_config={"ops": {"verify_all_backups": {"config": {"share": config.backups.verify.share}}}},
            )
        )
    return schedules


def _job_schedule(
    name: str, cron: str, job: dg.JobDefinition, description: str, run_config: dict[str, Any] | None = None
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        cron_schedule=cron,
        job=job,
        run_config=run_config,
        description=description,
        tags=_PRIORITY,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


@dg.op(pool=BACKUP_POOL, description="Goes on with backups, restores and removals whose process died.")
def recover_all_backups(context: dg.OpExecutionContext, platform: PlatformResource) -> None:
    """Finish what nobody works on any more; raise the first error after all were tried."""
    recovered = BackupScalingManager(platform.open()).recover_incomplete_jobs()
    for each in recovered:
        context.log.info(f"{each.job.kind} of {each.job.subject}: {each.outcome}, {each.told}")
    for each in recovered:
        if each.outcome == "failed" and each.error is not None:
            raise each.error


@dg.op(pool=BACKUP_POOL, description="Removes backups that no rule keeps, then what no backup needs.")
def prune_all_backups(context: dg.OpExecutionContext, platform: PlatformResource) -> None:
    """Let expire what the policies give up."""
    manager = BackupScalingManager(platform.open())
    try:
        with retried_when_transient():
            report = manager.prune()
    except NoRepositoryError as none:
        context.log.info(f"nothing to remove: {none}")
        return
    for header in report.plan.remove:
        context.log.info(f"{header.backup_id} of {header.table} went: {report.plan.reasons[header.backup_id]}")
    assert report.swept is not None
    context.log.info(f"{report.swept.files:,} files with {report.swept.bytes:,} bytes removed")


@dg.op(pool=BACKUP_POOL, description="Reads stored backups again and compares them with their hashes.")
def verify_all_backups(context: dg.OpExecutionContext, config: VerifyRunConfig, platform: PlatformResource) -> None:
    """Verify what is new, then a share of everything; fail if a backup does not restore as a whole."""
    manager = BackupScalingManager(platform.open())
    # A seed of its own each day, so that in time everything is read.
    seed = datetime.now(UTC).toordinal()
    for scope in (VerifyScope(only_new=True), VerifyScope(share=config.share, seed=seed)):
        try:
            with retried_when_transient():
                report = manager.verify(scope)
        except NoRepositoryError as none:
            context.log.info(f"nothing to verify: {none}")
            return
        context.log.info(f"{report.objects_read:,} of {report.objects_present:,} objects read")
        for finding in report.findings:
            context.log.error(f"{finding.kind.value}: {finding.file}, {finding.reason}")
        if report.broken:
            raise RepositoryNotHealthyError({found.backup_id: found.table for found in report.broken.values()})


def _of_one_op(name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    @dg.job(name=name, description=description, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job


recover_backups_job = _of_one_op(RECOVER_JOB, recover_all_backups, "Goes on with what crashes have left.")
prune_backups_job = _of_one_op(PRUNE_JOB, prune_all_backups, "Lets expired backups go.")
verify_backups_job = _of_one_op(VERIFY_JOB, verify_all_backups, "Verifies stored backups.")


def _metadata(report: BackupReport) -> dict[str, dg.MetadataValue]:
    """Return what the catalog shows of a backup; the numbers are plotted over time."""
    numbers = {
        "files": report.files,
        "bytes": report.bytes,
        "copied_files": report.copied_files,
        "copied_bytes": report.copied_bytes,
        "stored_bytes": report.stored_bytes,
        "delta_version": report.version,
    }
    texts = {"backup": report.backup_id, "kind": report.kind.value, "why": report.reason, "chain": report.chain_id}
    return {
        **{name: dg.MetadataValue.int(value) for name, value in numbers.items()},
        **{name: dg.MetadataValue.text(value) for name, value in texts.items()},
        "unchanged": dg.MetadataValue.bool(report.unchanged),
        "bytes_per_second": dg.MetadataValue.float(round(report.bytes_per_s, 1)),
        "seconds": dg.MetadataValue.float(round(report.duration_s, 3)),
    }
