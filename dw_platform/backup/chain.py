"""Full backups and the increments after them, and what the next backup has to copy.

Every backup restores by itself. A chain says how long hashes have been handed on: its full backup read and hashed
every file, each increment trusts its parent for files whose path, size and time are unchanged, because Delta never
writes a data file again. All of this is pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dw_platform.backup.contents import SourceFile, StoredFile, TableCapture
from dw_platform.backup.layout import time_of
from dw_platform.backup.manifest import BackupHeader, BackupKind
from dw_platform.backup.policy import ChainPolicy
from dw_platform.foundation import format_duration


@dataclass(frozen=True, slots=True)
class BackupChain:
    """Backups of one table by one policy that stand on the same full one, oldest first; expired ones are not in it."""

    table: str
    policy: str
    chain_id: str
    members: tuple[BackupHeader, ...]

    @property
    def started(self) -> datetime:
        """Return when its full backup was made, also when that has expired."""
        return time_of(self.chain_id)

    @property
    def newest(self) -> BackupHeader:
        """Return the backup that the next increment would stand on."""
        return self.members[-1]


@dataclass(frozen=True, slots=True)
class KindDecision:
    """What the next backup is, and why."""

    kind: BackupKind
    reason: str


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What of a table is in the repository already, and what has to be read."""

    reuse: tuple[StoredFile, ...]
    copy: tuple[SourceFile, ...]
    known: Mapping[str, StoredFile]
    """By path, where an earlier backup has what is read again; if it still fits, nothing is written."""

    @property
    def share(self) -> float:
        """Return the share of the bytes that has to be read."""
        copied = sum(file.size for file in self.copy)
        total = copied + sum(stored.source.size for stored in self.reuse)
        return copied / total if total else 0.0


def build_chains(headers: Iterable[BackupHeader]) -> tuple[BackupChain, ...]:
    """Return the chains that backups form, oldest first."""
    members: dict[tuple[str, str, str], list[BackupHeader]] = {}
    for header in sorted(headers, key=lambda each: each.backup_id):
        members.setdefault((header.chain_id, header.table, header.policy), []).append(header)
    return tuple(
        BackupChain(table, policy, chain_id, tuple(found))
        for (chain_id, table, policy), found in sorted(members.items(), key=lambda item: item[1][-1].backup_id)
    )


def current_chain(headers: Iterable[BackupHeader], table: str, policy: str) -> BackupChain | None:
    """Return the chain that the next increment would join."""
    chains = build_chains(each for each in headers if (each.table, each.policy) == (table, policy))
    return chains[-1] if chains else None


def decide_kind(
    chain: BackupChain | None,
    policy: ChainPolicy,
    *,
    now: datetime,
    share: float,
    broken: Collection[str] = (),
    forced: bool = False,
) -> KindDecision:
    """Return whether the next backup is a full one; `share` is what an increment would have to copy."""
    if forced:
        return KindDecision(BackupKind.FULL, "a full one was asked for")
    if chain is None:
        return KindDecision(BackupKind.FULL, "there is no backup to stand on")
    age = now - chain.started
    if chain.newest.backup_id in broken:
        return KindDecision(BackupKind.FULL, f"its parent {chain.newest.backup_id} is broken")
    if age >= policy.full_every:
        return KindDecision(BackupKind.FULL, f"the chain began {format_duration(policy.full_every)} ago or earlier")
    if len(chain.members) >= policy.max_length:
        return KindDecision(BackupKind.FULL, f"the chain has {len(chain.members)} backups")
    if share > policy.max_share:
        return KindDecision(BackupKind.FULL, f"{share:.0%} would be copied, more than {policy.max_share:.0%}")
    return KindDecision(BackupKind.INCREMENTAL, f"{share:.0%} is copied, on top of {chain.newest.backup_id}")


def incremental_plan(
    capture: TableCapture,
    parent: Sequence[StoredFile],
    index: Mapping[str, int],
    notes: Sequence[StoredFile] = (),
) -> CopyPlan:
    """Return the plan that trusts the parent, and the notes of this job, for files that are unchanged."""
    return _plan(capture, index, trusted=[*parent, *notes], former=parent)


def full_plan(
    capture: TableCapture,
    former: Sequence[StoredFile],
    index: Mapping[str, int],
    notes: Sequence[StoredFile] = (),
) -> CopyPlan:
    """Return the plan that reads everything again, but for what this very job has read before it was started again."""
    return _plan(capture, index, trusted=notes, former=former)


def _plan(
    capture: TableCapture, index: Mapping[str, int], *, trusted: Iterable[StoredFile], former: Iterable[StoredFile]
) -> CopyPlan:
    """Take a file from the repository only where its object is there in its size.

    So the next backup stores again what verification has taken away.
    """
    there = {each.source.identity: each for each in trusted if index.get(each.object_name) == each.object_size}
    reuse, copy = list[StoredFile](), list[SourceFile]()
    for file in capture.files:
        stored = there.get(file.identity)
        if stored is None:
            copy.append(file)
        else:
            # What the log says about a file may have changed since: a deletion vector, its statistics.
            reuse.append(replace(stored, source=file))
    wanted = {file.path for file in copy}
    known = {each.source.path: each for each in former if each.source.path in wanted}
    return CopyPlan(tuple(reuse), tuple(copy), known)
