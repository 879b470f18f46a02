"""Who in a group reads which partitions, agreed on across processes through one document of the control store.

    dw://internal/streaming/group/{topic}/{group}
    {"members": {"a": "2026-...", "b": "..."}, "targets": ["a", "a", "b"], "owners": {"0": "a", "2": "b"}}

`members` are those who were heard of lately, `targets` who should read each partition (balanced and sticky, by the
bus's `assign`), `owners` who does. A partition is free for its target when its owner has released it, or was silent
for so long that the others put it out. Whoever was put out finds that it is no member and stops: GroupFencedError.

Every change is a compare-and-set of the whole document, so of two members that want the same partition one gets it.
Silence is judged by the wall clock of whoever looks: clocks of all machines must agree far better than the timeout.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from dw_platform.bus import assign
from dw_platform.foundation import Clock, PermanentError
from dw_platform.log import InvalidNameError, check_name
from dw_platform.store import Entry, PersistentStore, internal_key, internal_prefix, key_parts, update
from dw_platform.streaming.contract import ingest_group
from dw_platform.streaming.errors import GroupFencedError

_BEATS_PER_TIMEOUT = 3


# The ingest of a stream commits under such a name; a subscriber of that name would make unread records look read.
RESERVED = ingest_group("")


def check_group(group: str) -> str:
    """Return the name of a group of subscribers; raise InvalidNameError for one that they cannot have."""
    if group.startswith(RESERVED):
        raise InvalidNameError("group", group, f"names that begin with {RESERVED} are those of streams' own ingest")
    return check_name("group", group)


class CorruptGroupError(PermanentError):
    """What is stored about a group makes no sense; checkpoints are untouched."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key} does not describe a group: {reason}. Stop its members and delete the key.")


@dataclass(frozen=True, slots=True)
class GroupState:
    """The document, and its pure transitions."""

    members: Mapping[str, datetime] = field(default_factory=dict)
    targets: tuple[str | None, ...] = ()
    owners: Mapping[int, str] = field(default_factory=dict)

    def with_member(self, member: str, now: datetime) -> "GroupState":
        """Return the group with one more, or with one that was heard of again."""
        known = member in self.members
        state = replace(self, members={**self.members, member: now})
        return state if known else state.assigned(len(self.targets))

    def without(self, members: Collection[str]) -> "GroupState":
        """Return the group without some; what they read is free."""
        if not set(members) & self.members.keys():
            return self
        kept = {member: at for member, at in self.members.items() if member not in members}
        owners = {partition: owner for partition, owner in self.owners.items() if owner in kept}
        return replace(self, members=kept, owners=owners).assigned(len(self.targets))

    def silent_since(self, moment: datetime) -> set[str]:
        """Return who was not heard of since then."""
        return {member for member, at in self.members.items() if at < moment}

    def assigned(self, partitions: int) -> "GroupState":
        """Return the group with targets for so many partitions, moving as few as possible."""
        # `assign` compares members by identity, and equal names that were read from JSON are not the same object.
        names = {member: member for member in sorted(self.members)}
        before = [names.get(target) if target else None for target in self.targets]
        return replace(self, targets=tuple(assign(partitions, list(names.values()), before)))

    def released(self, member: str, partitions: Collection[int]) -> "GroupState":
        """Return the group after `member` has stopped reading some partitions."""
        kept = {p: owner for p, owner in self.owners.items() if owner != member or p not in partitions}
        return replace(self, owners=kept)

    def claimed(self, member: str) -> "GroupState":
        """Return the group after `member` has taken what is meant for it and free."""
        mine = {p: member for p, target in enumerate(self.targets) if target == member and p not in self.owners}
        return replace(self, owners={**self.owners, **mine})

    def owned_by(self, member: str) -> frozenset[int]:
        """Return what `member` may read."""
        return frozenset(partition for partition, owner in self.owners.items() if owner == member)

    def meant_for(self, member: str) -> frozenset[int]:
        """Return what `member` should read."""
        return frozenset(partition for partition, target in enumerate(self.targets) if target == member)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member reads now, and what of that it should release."""

    owned: frozenset[int]
    leaving: frozenset[int]


class GroupMember:
    """One member's view of its group; used by one thread at a time."""

    def __init__(self, store: PersistentStore, topic: str, group: str, member: str, *, clock: Clock) -> None:
        self.topic, self.group, self.member = topic, group, member
        self._store, self._clock, self._key = store, clock, group_key(topic, group)

    def join(self, partitions: int) -> Assignment:
        """Become a member, or come back after having been put out."""
        return self._change(lambda state: state.with_member(self.member, self._clock.now()), partitions)

    def keep_up(self, partitions: int, timeout: timedelta, *, released: Collection[int] = ()) -> Assignment:
        """Tell that it lives and what it has released, put out who is silent, and take what is free for it.

        Raise GroupFencedError if the others have put it out.
        """
        now = self._clock.now()

        def change(state: GroupState) -> GroupState:
            if self.member not in state.members:
                raise GroupFencedError(self.topic, self.group, self.member)
            if now - state.members[self.member] >= timeout / _BEATS_PER_TIMEOUT:
                state = state.with_member(self.member, now)
            state = state.without(state.silent_since(now - timeout) - {self.member})
            return state.released(self.member, released)

        return self._change(change, partitions)

    def leave(self) -> None:
        """Release everything and go; one who is no member is gone already."""
        update(self._store, self._key, lambda entry: _changed(entry, decode(entry).without([self.member])))

    def _change(self, change: Callable[[GroupState], GroupState], partitions: int) -> Assignment:
        def write(entry: Entry | None) -> bytes | None:
            state = change(decode(entry))
            if len(state.targets) != partitions:
                state = state.assigned(partitions)
            return _changed(entry, state.claimed(self.member))

        state = decode(update(self._store, self._key, write, clock=self._clock))
        owned = state.owned_by(self.member)
        return Assignment(owned, owned - state.meant_for(self.member))


def group_key(topic: str, group: str) -> str:
    """Return where a group's document is."""
    return internal_key("streaming", "group", topic, group)


def live_groups(store: PersistentStore, topic: str, *, since: datetime) -> dict[str, int]:
    """Return the groups of a topic that have members heard of since then, and how many."""
    found = {}
    for entry in store.list(internal_prefix("streaming", "group", topic)):
        state = decode(entry)
        alive = len(state.members) - len(state.silent_since(since))
        if alive:
            found[key_parts(entry.key)[-1]] = alive
    return found


def decode(entry: Entry | None) -> GroupState:
    """Return the document, or an empty group where there is none."""
    if entry is None:
        return GroupState()
    try:
        content = json.loads(entry.value)
        return GroupState(
            {name: datetime.fromisoformat(at).astimezone(UTC) for name, at in content["members"].items()},
            tuple(content["targets"]),
            {int(partition): str(owner) for partition, owner in content["owners"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptGroupError(entry.key, str(error)) from error


def _changed(entry: Entry | None, state: GroupState) -> bytes | None:
    """Return what to write, or None if it is there already."""
    if entry is not None and decode(entry) == state:
        return None
    content = {
        "members": {name: at.isoformat() for name, at in state.members.items()},
        "targets": list(state.targets),
        "owners": {str(partition): owner for partition, owner in sorted(state.owners.items())},
    }
    return json.dumps(content).encode()
