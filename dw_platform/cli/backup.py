"""`dw backup`: back up tables, look at what there is, verify it, restore it, let it expire."""

import contextlib
import getpass
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dw_platform.cli.backup_view import (
    show_backup,
    show_list,
    show_plan,
    show_policy_run,
    show_recovered,
    show_restores,
    show_verification,
)
from dw_platform.cli.ingest import OptionsDoNotFitError
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, end_with, say
from dw_platform.cli.steady import steady_progresses
from dw_platform.foundation import UserError
from dw_platform.pipelines.backup_report import BackupProgress, OnProgress

app = typer.Typer(help="Back up tables, verify, restore and prune backups.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The backup's id, as `dw backup list` shows it.")]
_MIB = 1024 * 1024


class TimeNotUnderstoodError(UserError):
    """A text that is no moment."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no time. Write it as 2026-11-18T20:15, in UTC, or with a zone as ...+01:00.")


class KeyFileExistsError(UserError):
    """A key is never written over another one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is there already, and backups may need the key in it. Choose another file.")


class KeyFileNotWrittenError(UserError):
    """The file for a new key cannot be made."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path} cannot be written: {cause}. Name a file in a folder that you may write.")


@app.command(short_help="Back up the tables of a policy.")
def run(
    policy: Annotated[str, typer.Argument(help="A policy of `backups.policies`.")],
    config: ConfigOption = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table of the policy; may be repeated.", show_default=False)
    ] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Read every file again, and begin a new chain.")] = False,
    json: JsonOption = False,
) -> None:
    """Back up the tables of a policy: what has changed since the last backup, or everything when a full one is due.

    A run that fails or is killed leaves earlier backups as they were, and the next one goes on with what was copied.
    Exit code 1 when a table could not be backed up.
    """
    with _manager(config) as manager, _shown() as on_progress:
        report = manager.back_up(policy, tuple(table or ()), full=full, on_progress=on_progress)
    emit_json(report.as_json()) if json else show_policy_run(report)
    end_with(report.errors)


@app.command("list", short_help="List backups by chain.")
def list_backups(
    table: Annotated[str | None, typer.Argument(help="Only this table.", show_default=False)] = None,
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """List the backups by table and chain: what each holds, what it copied, and whether it is whole and pinned."""
    from dw_platform.pipelines.backup_overview import backups_overview

    with open_platform(config) as platform:
        overview = backups_overview(platform, table)
    emit_json(overview.as_json()) if json else show_list(overview)
    end_with([str(error) for error in overview.damaged])


@app.command(short_help="Show one backup.")
def show(
    backup: IdArgument,
    config: ConfigOption = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List every file, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what a backup holds: the table's version, columns and stream positions, its files, and what is wrong."""
    from dw_platform.pipelines.backup_overview import backup_details

    with open_platform(config) as platform:
        details = backup_details(platform, backup, files=files)
    emit_json(details) if json else show_backup(details)


@app.command(short_help="Read backups again and compare them with their hashes.")
def verify(
    config: ConfigOption = None,
    share: Annotated[
        float, typer.Option(min=0.0001, max=1.0, help="Share of the objects to read, another one each time.")
    ] = 1.0,
    *,
    new: Annotated[bool, typer.Option("--new", help="Read only what was stored since the last verification.")] = False,
    json: JsonOption = False,
) -> None:
    """Read what is stored and compare it with its hashes; name every backup that does not restore as a whole.

    What is damaged is set aside, and the next backup stores it again if the table still has the file. Exit code 1 when
    a backup is broken or something had to be mended.
    """
    from dw_platform.backup import VerifyScope

    scope = VerifyScope(only_new=new, share=share, seed=secrets.randbelow(2**31))
    with _manager(config) as manager, _shown() as on_progress:
        report = manager.verify(scope, on_progress=on_progress)
    show_verification(report, json=json)
    if not report.healthy:
        raise typer.Exit(1)


@app.command(short_help="Put a table back, or all tables of a policy.")
def restore(
    table: Annotated[
        str | None, typer.Argument(help="The table; with --policy, all tables of it.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    *,
    to: Annotated[
        str, typer.Option("--to", help="A folder, an s3:// address, or a table's name in the lake.", show_default=False)
    ] = "",
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="As it was at this time (UTC).", show_default=False)
    ] = None,
    backup_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="This backup.", show_default=False)
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="As of this version.", show_default=False)] = None,
    policy: Annotated[str | None, typer.Option(help="Every table of this policy.", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the table that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Restore the newest backup that is whole, or the one of a time, a version or an id.

    The restored table has the rows, columns, history and stream positions of its version; it appears at once when all
    of it is there and compared with its hashes. A restore that was interrupted goes on when it is repeated.
    """
    if (table is None) == (policy is None):
        raise OptionsDoNotFitError("Name one table to restore, or say --policy")
    if not to:
        raise OptionsDoNotFitError("Say where to: --to FOLDER; nothing is restored over the table by itself")
    if sum(wish is not None for wish in (at, backup_id, version)) > 1 or (
        policy and (backup_id or version is not None)
    ):
        raise OptionsDoNotFitError("Choose by one of --at, --id and --version; a policy is restored by --at")
    moment = _moment(at) if at else None
    with _manager(config) as manager, _shown() as on_progress:
        if policy is not None:
            reports = manager.restore_policy(policy, to, at=moment, overwrite=overwrite, on_progress=on_progress)
        else:
            assert table is not None
            reports = [
                manager.restore(
                    table,
                    to,
                    backup_id=backup_id,
                    at=moment,
                    version=version,
                    overwrite=overwrite,
                    on_progress=on_progress,
                )
            ]
    if json:
        emit_json([report.as_json() for report in reports] if policy else reports[0].as_json())
    else:
        show_restores(reports)


@app.command(short_help="Remove the backups that no rule keeps.")
def prune(
    config: ConfigOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go and why; change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove expired backups, then what no backup needs; the newest one that restores and pinned ones always stay."""
    with _manager(config) as manager:
        report = manager.prune(dry_run=dry_run)
    show_plan(report, json=json)


@app.command(short_help="Go on with what a crash has left.")
def recover(
    config: ConfigOption = None,
    *,
    discard: Annotated[bool, typer.Option("--discard", help="Clean up instead of going on.")] = False,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="Also make ops.backups and ops.backup_files again from the manifests.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Finish backups, restores and removals whose process died, or clean up after them; exit code 1 if one failed."""
    from dw_platform.pipelines.backup_catalogue import rebuild_catalogue
    from dw_platform.pipelines.backup_repository import open_repository

    with open_platform(config) as platform, _shown() as on_progress:
        recovered = _managing(platform).recover_incomplete_jobs(discard=discard, on_progress=on_progress)
        named = rebuild_catalogue(platform, open_repository(platform)) if catalogue else None
    show_recovered(recovered, named, json=json)
    end_with([each.told for each in recovered if each.outcome == "failed"])


@app.command(short_help="Keep a backup whatever retention says.")
def pin(
    backup: IdArgument,
    config: ConfigOption = None,
    reason: Annotated[str, typer.Option(help="Why it stays.")] = "kept on request",
) -> None:
    """Keep a backup until it is unpinned."""
    with _manager(config) as manager:
        manager.pin(backup, reason=reason, by=getpass.getuser())
    say(f"{backup} stays until `dw backup unpin {backup}`.")


@app.command(short_help="Let a pinned backup expire like others.")
def unpin(backup: IdArgument, config: ConfigOption = None) -> None:
    """Let a backup expire by the rules of its policy again."""
    with _manager(config) as manager:
        manager.unpin(backup)
    say(f"{backup} expires like others.")


@app.command(short_help="Make a key for an encrypted repository.")
def key(
    file: Annotated[
        Path | None,
        typer.Argument(help="Write it here, readable by you alone; else it is printed.", show_default=False),
    ] = None,
) -> None:
    """Make a new key. Keep a copy where a broken disk does not take it along: without it, backups are lost."""
    made = secrets.token_urlsafe(32)
    if file is None:
        say(made)
        return
    try:
        file.touch(mode=0o600, exist_ok=False)
    except FileExistsError as error:
        raise KeyFileExistsError(file) from error
    except OSError as error:
        raise KeyFileNotWrittenError(file, error.strerror or str(error)) from error
    file.write_text(made + "\n")
    say(f"{file} has the key; keep a copy of it elsewhere.")


@contextlib.contextmanager
def _manager(config: Path | None) -> Iterator[Any]:
    with open_platform(config) as platform:
        yield _managing(platform)


def _managing(platform: Any) -> Any:
    from dw_platform.pipelines.backup_manager import BackupScalingManager

    return BackupScalingManager(platform)


@contextlib.contextmanager
def _shown() -> Iterator[OnProgress]:
    """Yield what shows progress in MiB, one bar a table."""
    with steady_progresses("MiB") as reach:

        def tell(at: BackupProgress) -> None:
            reach(at.what, at.done_bytes // _MIB, at.total_bytes // _MIB)

        yield tell


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise TimeNotUnderstoodError(text) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
