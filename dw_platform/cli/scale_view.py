"""How `dw scale` shows limits, processes and changes: as tables for people, as JSON for programs."""

from typing import Any

from rich.text import Text

from dw_platform.cli.output import emit_table, say
from dw_platform.pipelines.limits_overview import NodeOverview, SubsystemOverview
from dw_platform.scaling import LimitRecord

_COLOURS = {"follows": "green", "behind": "yellow", "refused": "red", "silent": "dim"}


def show_subsystem(found: SubsystemOverview, *, metrics: bool) -> None:
    """Print a subsystem; `metrics`: with every number of every process."""
    say(Text(found.subsystem, "bold"))
    rows = [
        (limit.key, Text(_shown(limit.value), "bold" if limit.changed else ""), _shown(limit.configured), limit.unit,
         limit.reason)
        for limit in found.limits
    ]  # fmt: skip
    emit_table("", ["limit", "in force", "configured", "unit", "what it is for"], rows)
    if found.record is not None:
        record = found.record
        said = "changed" if record.values else "reset to the configured values"
        when = f"{record.at:%Y-%m-%d %H:%M:%S} UTC"
        say(f"\n{said} by {record.changed_by}, {when}, version {record.version}: {record.reason}")
    say()
    if not found.nodes:
        say(f"No process runs {found.subsystem} now; one that starts takes these limits.")
        return
    emit_table("", ["process", "limits", "pressure", "full", "heard of"], [_node_row(node) for node in found.nodes])
    for node in found.nodes if metrics else ():
        if node.snapshot is not None:
            say()
            numbers = [(name, _number(value)) for name, value in sorted(node.snapshot.values.items())]
            emit_table(f"Metrics of {node.node}", ["metric", "value"], numbers)


def _node_row(node: NodeOverview) -> tuple[object, ...]:
    snapshot = node.snapshot
    return (
        node.node,
        Text(node.state, _COLOURS[node.state]),
        snapshot.level.label if snapshot else None,
        f"{snapshot.occupancy:.0%}" if snapshot else None,
        f"{node.age.total_seconds():.0f} s ago" + (", stale" if node.stale else ""),
    )


def history_row(record: LimitRecord) -> tuple[object, ...]:
    """Return one line of the history."""
    at = f"{record.at:%Y-%m-%d %H:%M:%S}"
    return (at, record.subsystem, str(record.version), changes_text(record), record.changed_by, record.reason)


def changes_text(record: LimitRecord) -> str:
    """Return what the record changed, each with its value before."""
    return ", ".join(f"{key}: {_shown(before)} -> {_shown(after)}" for key, (before, after) in record.changes.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def subsystem_json(found: SubsystemOverview) -> dict[str, Any]:
    """Return a subsystem for programs."""
    return {
        "subsystem": found.subsystem,
        "limits": [
            {
                "key": limit.key,
                "value": limit.value,
                "configured": limit.configured,
                "unit": limit.unit,
                "reason": limit.reason,
            }
            for limit in found.limits
        ],
        "record": None if found.record is None else record_json(found.record),
        "problem": found.problem,
        "nodes": [node_json(node) for node in found.nodes],
    }


def record_json(record: LimitRecord) -> dict[str, Any]:
    """Return a change for programs."""
    changes = {key: {"before": before, "after": after} for key, (before, after) in record.changes.items()}
    return {
        "subsystem": record.subsystem,
        "version": record.version,
        "values": dict(record.values),
        "changes": changes,
        "changed_by": record.changed_by,
        "reason": record.reason,
        "at": record.at.isoformat(),
    }


def node_json(node: NodeOverview) -> dict[str, Any]:
    """Return a process for programs."""
    snapshot = node.snapshot
    return {
        "node": node.node,
        "state": node.state,
        "stale": node.stale,
        "version": node.version,
        "error": node.error,
        "age_s": round(node.age.total_seconds(), 3),
        "pressure": snapshot.level.label if snapshot else None,
        "occupancy": snapshot.occupancy if snapshot else None,
        "metrics": dict(snapshot.values) if snapshot else {},
    }
