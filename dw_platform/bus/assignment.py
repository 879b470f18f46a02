"""Who in a group reads which partitions: balanced, and moving as few as possible."""

from collections.abc import Sequence
from typing import TypeVar

M = TypeVar("M")


def assign(partitions: int, members: Sequence[M], before: Sequence[M | None] = ()) -> list[M | None]:
    """Return the owner of each partition; `before` are the owners until now.

    Balanced: two members differ by one partition at most. Sticky: a partition moves only if its owner has left or has
    more than its share. Without members nobody owns anything.
    """
    if not members:
        return [None] * partitions
    kept = _keep(partitions, members, before)
    owners: list[M | None] = [None] * partitions
    for member, own in zip(members, kept, strict=True):
        for partition in own:
            owners[partition] = member
    # The smallest load first, the earliest member among equals; one pass is enough, because every step keeps it true.
    for partition in [index for index, owner in enumerate(owners) if owner is None]:
        receiver = min(range(len(members)), key=lambda index: (len(kept[index]), index))
        kept[receiver].append(partition)
        owners[partition] = members[receiver]
    return owners


def _keep(partitions: int, members: Sequence[M], before: Sequence[M | None]) -> list[list[int]]:
    """Return what each member keeps: its share, where the few larger shares go to those who have most."""
    share, larger = divmod(partitions, len(members))
    held = [[p for p, owner in enumerate(before[:partitions]) if owner is member] for member in members]
    order = sorted(range(len(members)), key=lambda index: -len(held[index]))
    kept: list[list[int]] = [[] for _ in members]
    for rank, index in enumerate(order):
        kept[index] = held[index][: share + (rank < larger)]
    return kept
