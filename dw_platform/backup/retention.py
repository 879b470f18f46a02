"""Which backups go. Pure: a plan says what goes and why, and the sweep acts on it.

For each table and policy by itself, from the newest backup to the oldest:

- count: a backup goes when `max_count` newer ones restore. Broken ones do not push out what restores.
- age: a backup goes when it was made longer than `max_age` ago.
- size: as long as the objects that the kept backups need have more than `max_bytes` together, each object counted
  once, a backup goes: broken ones first, then from the oldest on. What two backups share is freed only with both.

Never goes, whatever the limits say: the newest backup of each table that restores, and every pinned one. If these
alone are above `max_bytes`, the plan says by how much. Where no backup of a table restores, its newest one stays.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dw_platform.backup.manifest import BackupHeader
from dw_platform.backup.policy import RetentionPolicy
from dw_platform.foundation import format_bytes, format_duration

Group = tuple[str, str]
"""A table and the policy it is backed up by."""


@dataclass(frozen=True, slots=True)
class HeldBackup:
    """A backup and the objects that it needs."""

    header: BackupHeader
    objects: Collection[str]

    @property
    def id(self) -> str:
        return self.header.backup_id

    @property
    def group(self) -> Group:
        return self.header.table, self.header.policy


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What stays, what goes, oldest first, and the reason for each that goes."""

    keep: tuple[BackupHeader, ...]
    remove: tuple[BackupHeader, ...]
    reasons: Mapping[str, str]
    """By backup id."""

    bytes_before: int
    bytes_after: int
    """Of all objects that backups need, each once; the difference is freed when the grace period is over."""

    above_limit: Mapping[Group, int]
    """By how many bytes what must stay is above `max_bytes`."""


def plan_expiry(
    backups: Sequence[HeldBackup],
    sizes: Mapping[str, int],
    policy: RetentionPolicy | Mapping[str, RetentionPolicy],
    *,
    now: datetime,
    pins: Collection[str] = (),
    broken: Collection[str] = (),
) -> ExpiryPlan:
    """Return the plan; `sizes` is by object. Of several policies by name, backups of one that is missing all stay."""
    ordered = sorted(backups, key=lambda each: each.id)
    safe = {*pins, *_newest_of_each_table(ordered, broken)}
    reasons: dict[str, str] = {}
    above: dict[Group, int] = {}
    for group, members in _grouped(ordered).items():
        rules = policy if isinstance(policy, RetentionPolicy) else policy.get(group[1])
        if rules is not None:
            expiry = _GroupExpiry(members, rules, safe, frozenset(broken), now)
            expiry.by_count_and_age()
            if excess := expiry.by_size(sizes):
                above[group] = excess
            reasons.update(expiry.reasons)
    kept = [each for each in ordered if each.id not in reasons]
    return ExpiryPlan(
        keep=tuple(each.header for each in kept),
        remove=tuple(each.header for each in ordered if each.id in reasons),
        reasons=reasons,
        bytes_before=_bytes_of(ordered, sizes),
        bytes_after=_bytes_of(kept, sizes),
        above_limit=above,
    )


class _GroupExpiry:
    """The limits applied to the backups of one table by one policy."""

    def __init__(
        self,
        members: Sequence[HeldBackup],
        policy: RetentionPolicy,
        safe: Collection[str],
        broken: Collection[str],
        now: datetime,
    ) -> None:
        self._members, self._policy, self._safe, self._broken, self._now = members, policy, safe, broken, now
        self.reasons: dict[str, str] = {}

    def by_count_and_age(self) -> None:
        newer = 0
        for backup in reversed(self._members):
            if backup.id not in self._safe and (reason := self._claim(backup, newer)):
                self.reasons[backup.id] = reason
            newer += backup.id not in self._broken

    def by_size(self, sizes: Mapping[str, int]) -> int:
        """Let backups go until the rest is small enough; return by how much it is not."""
        limit = self._policy.max_bytes
        if limit is None:
            return 0
        kept = [each for each in self._members if each.id not in self.reasons]
        users: dict[str, int] = {}
        for backup in kept:
            for name in backup.objects:
                users[name] = users.get(name, 0) + 1
        total = sum(sizes[name] for name in users)
        for backup in sorted(kept, key=lambda each: (each.id not in self._broken, each.id)):
            if total <= limit:
                return 0
            if backup.id not in self._safe:
                self.reasons[backup.id] = f"the backups need {format_bytes(total)}, more than {format_bytes(limit)}"
                for name in backup.objects:
                    users[name] -= 1
                    total -= 0 if users[name] else sizes[name]
        return max(0, total - limit)

    def _claim(self, backup: HeldBackup, newer: int) -> str | None:
        policy = self._policy
        if policy.max_count is not None and newer >= policy.max_count:
            return f"{newer} newer backups restore, {policy.max_count} are kept"
        if policy.max_age is not None and self._now - backup.header.created > policy.max_age:
            return f"it is older than {format_duration(policy.max_age)}"
        return None


def _newest_of_each_table(ordered: Iterable[HeldBackup], broken: Collection[str]) -> set[str]:
    """Return the newest backup of each table that restores; where none does, its newest: a part is something."""
    listed = tuple(ordered)
    newest = {each.header.table: each.id for each in listed}
    return set((newest | {each.header.table: each.id for each in listed if each.id not in broken}).values())


def _grouped(ordered: Iterable[HeldBackup]) -> dict[Group, list[HeldBackup]]:
    groups: dict[Group, list[HeldBackup]] = {}
    for backup in ordered:
        groups.setdefault(backup.group, []).append(backup)
    return groups


def _bytes_of(backups: Iterable[HeldBackup], sizes: Mapping[str, int]) -> int:
    return sum(sizes[name] for name in {name for backup in backups for name in backup.objects})
