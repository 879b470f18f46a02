"""`dw scale`: limits that are changed while the platform runs, who follows them, and the pressure that asks for it."""

import getpass
import os
import socket
import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, end_with, say
from dw_platform.cli.scale_view import changes_text, history_row, node_json, record_json, show_subsystem, subsystem_json
from dw_platform.foundation import UserError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.limits import limit_control
from dw_platform.pipelines.limits_overview import NodeOverview, limits_overview, node_overviews
from dw_platform.scaling import LimitRecord

app = typer.Typer(help="Look at limits and pressure, and change limits while the platform runs.", no_args_is_help=True)

SubsystemArgument = Annotated[str, typer.Argument(help="The subsystem, such as bus.")]
OptionalSubsystem = Annotated[str | None, typer.Argument(help="Only this subsystem.", show_default=False)]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the history.")]

# Processes look for changes four times a second; who has not answered by then is busy or gone.
_FOLLOW_LIMIT_S = 3.0
_LOOK_EVERY_S = 0.1


class MalformedChangeError(UserError):
    """A change that is not written as KEY=VALUE; nothing was changed."""

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason
        super().__init__(f"{text!r} {reason}. Write KEY=VALUE, such as partitions=16; nothing was changed.")


@app.command(short_help="Show limits, pressure and who follows.")
def show(subsystem: OptionalSubsystem = None, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show each limit as configured and in force, and each process with its pressure and whether it follows.

    The exit code is 1 when changes that are stored cannot be used, or a running process refuses them.
    """
    with open_platform(config) as platform:
        found = limits_overview(platform, subsystem)
    if json:
        emit_json([subsystem_json(each) for each in found])
    else:
        for number, each in enumerate(found):
            if number:
                say()
            show_subsystem(each, metrics=subsystem is not None)
    problems = [each.problem for each in found if each.problem]
    problems += [
        f"{node.node} refuses the limits of {each.subsystem}: {node.error}"
        for each in found
        for node in each.nodes
        if node.state == "refused"
    ]
    end_with(problems)


@app.command("set", short_help="Change limits, without a restart.")
def set_limits(
    subsystem: SubsystemArgument,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Such as partitions=16 or linger=5ms.")],
    reason: ReasonOption = "not given",
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Change limits; all of the changes are taken, or none. Running processes apply them within a second.

    The exit code is 1 when a running process refuses them.
    """
    wanted = parse_changes(changes)
    with open_platform(config) as platform:
        record = limit_control(platform).set(subsystem, wanted, changed_by=_who(), reason=reason)
        _tell(platform, subsystem, record, json=json)


@app.command(short_help="Go back to the configured limits.")
def reset(
    subsystem: SubsystemArgument,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="Only these limits.")] = None,
    reason: ReasonOption = "not given",
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Go back to what platform.yaml says, for all limits of the subsystem or for those that are named."""
    with open_platform(config) as platform:
        record = limit_control(platform).reset(subsystem, keys or None, changed_by=_who(), reason=reason)
        if record is None:
            unchanged = f"The limits of {subsystem} are the configured ones; nothing was ever changed."
            emit_json({"subsystem": subsystem, "changes": {}, "nodes": []}) if json else say(unchanged)
            return
        _tell(platform, subsystem, record, json=json)


@app.command(short_help="Show who changed what, when and why.")
def history(
    subsystem: OptionalSubsystem = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many changes at most.")] = 20,
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show the newest changes of limits, newest first."""
    with open_platform(config) as platform:
        records = limit_control(platform).history(subsystem, limit=limit)
    if json:
        emit_json([record_json(record) for record in records])
    elif not records:
        say("No limit was ever changed.")
    else:
        columns = ["at (UTC)", "subsystem", "version", "changes", "by", "reason"]
        emit_table("", columns, [history_row(record) for record in records])


def parse_changes(texts: Sequence[str]) -> dict[str, str]:
    """Return what to change by key; the value is everything after the first `=`."""
    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise MalformedChangeError(text, "has no key" if separator else "has no =")
        if key.strip() in found:
            raise MalformedChangeError(text, "names a limit that was named already")
        found[key.strip()] = value.strip()
    return found


def _tell(platform: Platform, subsystem: str, record: LimitRecord, *, json: bool) -> None:
    """Say what is stored now and what the running processes made of it."""
    nodes = [node for node in _followers(platform, subsystem, record) if not node.stale]
    if json:
        emit_json(record_json(record) | {"nodes": [node_json(node) for node in nodes]})
    else:
        say(f"{subsystem}: {changes_text(record) or 'nothing had to change'} (version {record.version})")
        if not nodes:
            say(f"No process runs {subsystem} now; one that starts takes these limits.")
        for node in nodes:
            told = {"behind": "has not applied it yet", "refused": "refuses it", "follows": "applied it"}
            say(f"  {node.node} {told[node.state]}")
    end_with([f"{node.node} refuses it and keeps its limits: {node.error}" for node in nodes if node.error])


def _followers(platform: Platform, subsystem: str, record: LimitRecord) -> Sequence[NodeOverview]:
    """Return the processes as soon as each has looked at the change, or when they had time enough."""
    control, deadline = limit_control(platform), platform.clock.monotonic() + _FOLLOW_LIMIT_S
    never = threading.Event()
    while True:
        nodes = node_overviews(control, subsystem, record, platform.clock.now())
        waiting = any(not node.stale and node.version != record.version for node in nodes)
        if not waiting or platform.clock.monotonic() >= deadline:
            return nodes
        platform.clock.wait(never, _LOOK_EVERY_S)


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # nobody is known by this number, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
