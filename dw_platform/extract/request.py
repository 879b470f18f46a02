"""One question for pages, checked once and bound to its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from dw_platform.extract.conditions import Condition
from dw_platform.extract.ordering import Wished
from dw_platform.extract.pages import Count
from dw_platform.foundation import InvalidValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What to read, from a table or by a query; the same for all pages."""

    source: str
    table: str | None = None
    query: str | None = None
    """One SELECT; who may write it may read everything that the source's user may."""

    key: tuple[str, ...] = ()
    """Columns that tell rows apart: of a table in place of its own key, of a query so that it needs no offset."""

    columns: tuple[str, ...] = ()
    """Of a table; all if none are named."""

    order: tuple[Wished, ...] = ()
    where: tuple[Condition, ...] = ()

    @classmethod
    def of(
        cls,
        source: str,
        *,
        table: str | None = None,
        query: str | None = None,
        key: Sequence[str] = (),
        columns: Sequence[str] = (),
        order: Sequence[Wished] = (),
        where: Sequence[Condition] = (),
    ) -> "PageRequest":
        """Return the request, or refuse what contradicts itself."""
        if (table is None) == (query is None):
            raise InvalidValueError("table", table, "given, or else a query, but not both")
        if query is not None:
            query = query.strip().removesuffix(";").rstrip()
            if not query:
                raise InvalidValueError("query", query, "a SELECT")
            if columns:
                raise InvalidValueError("columns", tuple(columns), "left to the query itself")
        return cls(
            source=source,
            table=table,
            query=query,
            key=tuple(key),
            columns=tuple(columns),
            order=tuple(order),
            where=tuple(where),
        )


def check_count(count: str) -> None:
    """Refuse an unknown wish for the total."""
    if count not in get_args(Count):
        raise InvalidValueError("count", count, f"one of {', '.join(get_args(Count))}")
