"""Records that were not taken, as an answer lists them: every index, and the reasons of the first ones."""

from collections.abc import Iterable, Sequence
from typing import Any

# Reasons are long and mostly alike; indexes are short, and a producer needs each of them.
REASONS_LISTED = 100


def summary(rejected: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return the number of rejected records, all of their indexes as ranges, and the first ones with reasons."""
    return {
        "rejected_count": len(rejected),
        "rejected": [{"index": index, "reason": reason} for index, reason in rejected[:REASONS_LISTED]],
        "rejected_ranges": ranges(index for index, _ in rejected),
    }


def ranges(indexes: Iterable[int]) -> list[list[int]]:
    """Return rising numbers as ranges, both ends included: 1, 2, 3, 7 is [[1, 3], [7, 7]]."""
    found: list[list[int]] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found
