"""Limits in force beside the configured ones, and what each process that runs a subsystem made of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dw_platform.foundation import PermanentError
from dw_platform.pipelines.limits import limit_catalogue, limit_control
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import (
    LimitControl,
    LimitRecord,
    LimitStatus,
    MetricsSnapshot,
    describe_limits,
    limits_to_json,
)
from dw_platform.scaling.registry import PUBLISH_EVERY_S

# Three snapshots missed: the process was killed, or hangs.
STALE_AFTER = timedelta(seconds=3 * PUBLISH_EVERY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOverview:
    """One limit: what the file says, what is in force, and what it is for."""

    key: str
    value: Any
    configured: Any
    unit: str
    reason: str

    @property
    def changed(self) -> bool:
        """Whether somebody has changed it."""
        return bool(self.value != self.configured)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOverview:
    """One process that runs a subsystem: whether it follows, and how it does."""

    node: str
    version: int | None
    error: str | None
    follows: bool
    """Whether it works with the limits in force."""

    snapshot: MetricsSnapshot | None
    age: timedelta
    """Since it was last heard of."""

    @property
    def stale(self) -> bool:
        """Whether it has fallen silent, so that nothing said about it is news."""
        return self.age > STALE_AFTER

    @property
    def state(self) -> str:
        """Return one word for it."""
        if self.stale:
            return "silent"
        if self.error is not None:
            return "refused"
        return "follows" if self.follows else "behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsystemOverview:
    """One subsystem with its limits and the processes that run it."""

    subsystem: str
    limits: tuple[LimitOverview, ...]
    record: LimitRecord | None
    """The changes in force, with who made the last of them and why."""

    problem: str | None
    """Why the stored changes cannot be used; processes then work with what they had."""

    nodes: tuple[NodeOverview, ...]


def limits_overview(platform: Platform, subsystem: str | None = None) -> list[SubsystemOverview]:
    """Return one subsystem or all; raise UnknownSubsystemError for a name that is none."""
    names = limit_catalogue(platform.config).subsystems if subsystem is None else (subsystem,)
    return [_overview(platform, name) for name in names]


def _overview(platform: Platform, subsystem: str) -> SubsystemOverview:
    """Tell changes that cannot be used as a problem, because the rest is what helps to mend them."""
    configured, control = limit_catalogue(platform.config).configured(subsystem), limit_control(platform)
    record, problem, effective = None, None, configured
    try:
        record = control.current(subsystem)
        effective = control.effective(subsystem)
    except PermanentError as error:
        problem = str(error)
    before = limits_to_json(configured)
    return SubsystemOverview(
        subsystem=subsystem,
        limits=tuple(
            LimitOverview(
                key=info.key, value=info.value, configured=before[info.key], unit=info.unit, reason=info.reason
            )
            for info in describe_limits(effective)
        ),
        record=record,
        problem=problem,
        nodes=node_overviews(control, subsystem, record, platform.clock.now()),
    )


def node_overviews(
    control: LimitControl, subsystem: str, record: LimitRecord | None, now: datetime
) -> tuple[NodeOverview, ...]:
    """Return every process that runs the subsystem, or did until it was killed."""
    statuses = {status.node: status for status in control.statuses(subsystem)}
    snapshots = {snapshot.node: snapshot for snapshot in _of(control.metrics(), subsystem)}
    return tuple(
        _node(node, statuses.get(node), snapshots.get(node), record, now)
        for node in sorted(statuses.keys() | snapshots.keys())
    )


def _of(snapshots: Iterable[MetricsSnapshot], subsystem: str) -> Iterable[MetricsSnapshot]:
    return (snapshot for snapshot in snapshots if snapshot.subsystem == subsystem)


def _node(
    node: str, status: LimitStatus | None, snapshot: MetricsSnapshot | None, record: LimitRecord | None, now: datetime
) -> NodeOverview:
    heard = max(told.at for told in (status, snapshot) if told is not None)
    wanted = record.version if record else None
    version = status.version if status else None
    return NodeOverview(
        node=node,
        version=version,
        error=status.error if status else None,
        follows=status is not None and status.applied and version == wanted,
        snapshot=snapshot,
        age=max(now - heard, timedelta(0)),
    )
