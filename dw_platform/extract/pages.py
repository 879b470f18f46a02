"""What a page is to its reader."""

from dataclasses import dataclass, replace
from typing import Any, Literal

Method = Literal["keyset", "offset"]
"""`keyset`: after the last row's key, exact whatever happens meanwhile. `offset`: after so many rows, which others may
shift; only where nothing tells the rows apart."""

Count = Literal["none", "exact", "estimate"]
"""Whether the total is wanted: counted (which reads the whole index), or as the database estimates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedQueryResult:
    """One page, and how to get the next."""

    items: list[dict[str, Any]]
    has_more: bool
    continuation_token: str | None
    """For the next page; None exactly if `has_more` is false."""

    method: Method
    total_count: int | None = None
    """Rows of all pages when the first was read; None unless it was asked for."""

    total_is_estimate: bool = False

    def copy(self) -> "PagedQueryResult":
        """Return the same page with rows of its own, which the caller may change."""
        return replace(self, items=[dict(item) for item in self.items])
