"""How `dw backup` shows what it did and what there is."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dw_platform.cli.output import emit_json, emit_table, many, say
from dw_platform.foundation import format_bytes
from dw_platform.pipelines.backup_overview import BackupsOverview
from dw_platform.pipelines.backup_report import BackupReport, PolicyReport, RestoreReport


def show_policy_run(report: PolicyReport) -> None:
    """Say what was backed up."""
    for backup in report.backups:
        say(_told(backup))
        for warning in backup.warnings:
            say(f"  note: {warning}")
    if not report.backups and not report.failed:
        say(f"None of the tables of {report.policy} exists yet; nothing was backed up.")


def _told(backup: BackupReport) -> str:
    if backup.unchanged:
        return f"{backup.table} version {backup.version}: nothing has changed since {backup.backup_id}."
    resumed = f", {many(backup.resumed_files, 'file')} of an interrupted run" if backup.resumed_files else ""
    return (
        f"{backup.table} version {backup.version}: {backup.kind.value} backup {backup.backup_id}, "
        f"{many(backup.copied_files, 'file')} with {format_bytes(backup.copied_bytes)} copied of "
        f"{format_bytes(backup.bytes)}{resumed}, {backup.duration_s:.1f} s ({backup.reason})."
    )


def show_list(overview: BackupsOverview) -> None:
    """Print every backup below its chain."""
    if not overview.chains:
        say(f"There are no backups in {overview.place}; `dw backup run POLICY` makes one.")
    rows = []
    for chain in overview.chains:
        for header in chain.members:
            committed = datetime.fromtimestamp(header.committed_at_ms / 1000, UTC)
            marks = [
                name
                for name, ids in (("broken", overview.broken), ("pinned", overview.pinned))
                if header.backup_id in ids
            ]
            rows.append(
                (
                    header.backup_id,
                    header.table,
                    header.policy,
                    header.kind.value,
                    header.table_version,
                    f"{committed:%Y-%m-%d %H:%M:%S}",
                    format_bytes(header.totals.bytes),
                    format_bytes(header.totals.copied_bytes),
                    ", ".join(marks),
                )
            )
    if rows:
        columns = ["backup", "table", "policy", "kind", "version", "as of (UTC)", "table size", "copied", ""]
        emit_table("", columns, rows)
        chains = many(len(overview.chains), "chain")
        say(f"\n{many(len(rows), 'backup')} in {chains}, {format_bytes(overview.stored_bytes)} in {overview.place}.")
    for job in overview.jobs:
        why = f"failed: {job.error}" if job.error else f"under way or killed ({job.owner})"
        say(f"unfinished {job.kind} of {job.subject} since {job.began:%Y-%m-%d %H:%M:%S} UTC, {why}")
    if overview.jobs:
        say("`dw backup recover` goes on with what nobody works on any more.")


def show_backup(details: dict[str, Any]) -> None:
    """Print one backup for people."""
    say(f"{details['backup_id']}: {details['kind']} backup of {details['table']} by {details['policy']}")
    rows = "an unknown number of" if details["rows"] is None else f"{details['rows']:,}"
    say(f"version {details['table_version']} of {details['committed_at']}, {rows} rows; made {details['created']}")
    parent = details["parent_id"] or "none: everything was read"
    say(f"chain {details['chain_id']}, parent {parent}{'; pinned' if details['pinned'] else ''}\n")
    contents = [(kind, found["files"], format_bytes(found["bytes"])) for kind, found in details["contents"].items()]
    emit_table("Contents", ["kind", "files", "size"], contents)
    say()
    columns = [(name, kind if isinstance(kind, str) else kind["type"]) for name, kind in details["columns"].items()]
    emit_table("Columns", ["name", "type"], columns)
    if details["positions"]:
        say()
        emit_table("Source positions", ["source", "next"], sorted(details["positions"].items()))
    if details["broken"]:
        say()
        broken = [(each["file"], each["reason"], len(each["files"])) for each in details["broken"]]
        emit_table("It does not restore as a whole", ["object", "why", "files"], broken)
    if "files" in details:
        say()
        listed = [(each["path"], each["kind"], format_bytes(each["size"]), each["object"]) for each in details["files"]]
        emit_table("Files", ["path", "kind", "size", "object"], listed)


def show_verification(report: Any, *, json: bool) -> None:
    """Say what a verification found."""
    if json:
        emit_json(
            {
                "healthy": report.healthy,
                "objects_present": report.objects_present,
                "objects_read": report.objects_read,
                "bytes_read": report.bytes_read,
                "findings": [
                    {
                        "kind": finding.kind.value,
                        "file": finding.file,
                        "reason": finding.reason,
                        "breaks": {backup: list(files) for backup, files in finding.breaks.items()},
                    }
                    for finding in report.findings
                ],
                "broken": sorted(report.broken),
                "healed": list(report.healed),
            }
        )
        return
    read = (
        f"{report.objects_read:,} of {many(report.objects_present, 'object')} read ({format_bytes(report.bytes_read)})"
    )
    say(f"{read}; {'all is well' if report.healthy else many(len(report.findings), 'finding')}.")
    if report.findings:
        found = [(each.kind.value, each.file, each.reason, len(each.breaks)) for each in report.findings]
        emit_table("", ["finding", "file", "why", "backups broken"], found)
    for backup_id, broken in sorted(report.broken.items()):
        files = sum(len(problem.files) for problem in broken.problems)
        say(f"{backup_id} of {broken.table} does not restore as a whole: {many(files, 'file')} affected.")
    for backup_id in report.healed:
        say(f"{backup_id} is whole again.")


def show_restores(reports: Sequence[RestoreReport]) -> None:
    """Say what was restored."""
    for report in reports:
        rows = "" if report.rows is None else f", {report.rows:,} rows"
        kept = report.files - report.written_files
        there = f" ({many(kept, 'file')} were there already)" if kept else ""
        say(
            f"{report.table} version {report.version}{rows}: restored from {report.backup_id} to {report.target}, "
            f"{many(report.written_files, 'file')} with {format_bytes(report.written_bytes)}{there} in "
            f"{report.duration_s:.1f} s."
        )


def show_plan(report: Any, *, json: bool) -> None:
    """Say what a removal did or would do, and why."""
    plan, swept = report.plan, report.swept
    if json:
        emit_json(
            {
                "dry_run": swept is None,
                "keep": [header.backup_id for header in plan.keep],
                "remove": {header.backup_id: plan.reasons[header.backup_id] for header in plan.remove},
                "bytes_before": plan.bytes_before,
                "bytes_after": plan.bytes_after,
                "above_limit": {f"{table} by {policy}": excess for (table, policy), excess in plan.above_limit.items()},
                "removed_files": 0 if swept is None else swept.files,
                "removed_bytes": 0 if swept is None else swept.bytes,
                "spared_bytes": 0 if swept is None else swept.spared_bytes,
            }
        )
        return
    if plan.remove:
        gone = [(each.backup_id, each.table, each.policy, plan.reasons[each.backup_id]) for each in plan.remove]
        emit_table("Would be removed" if swept is None else "Removed", ["backup", "table", "policy", "why"], gone)
    freed = format_bytes(plan.bytes_before - plan.bytes_after)
    say(
        f"{many(len(plan.remove), 'backup')} {'would go' if swept is None else 'went'}, {len(plan.keep):,} stay; "
        f"{freed} are needed no more."
    )
    for (table, policy), excess in plan.above_limit.items():
        say(f"{table} by {policy} stays {format_bytes(excess)} above its limit: what must stay is that large.")
    if swept is not None:
        young = f", {format_bytes(swept.spared_bytes)} are spared until they are older" if swept.spared_bytes else ""
        say(f"{many(swept.files, 'file')} with {format_bytes(swept.bytes)} removed{young}.")


def show_recovered(recovered: Sequence[Any], named: int | None, *, json: bool) -> None:
    """Say what became of unfinished jobs."""
    if json:
        jobs = [
            {
                "job": each.job.id,
                "kind": each.job.kind,
                "of": each.job.subject,
                "outcome": each.outcome,
                "told": each.told,
            }
            for each in recovered
        ]
        emit_json({"jobs": jobs, "catalogued": named})
        return
    for each in recovered:
        if each.outcome != "failed":
            say(f"{each.outcome}: {each.told}")
    if not recovered:
        say("Nothing was left unfinished.")
    if named is not None:
        say(f"ops.backups names {many(named, 'backup')}.")
