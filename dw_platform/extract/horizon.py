"""Up to which cursor value a table has settled, so that nothing below it can still appear.

A row gets its cursor value (a time, a number of a sequence) when it is written and becomes visible when its transaction
commits, which may be later than rows with higher values. Whoever reads up to the highest visible value and goes on from
there loses such a row. Two things guard against it:

* PostgreSQL says since when its oldest writing transaction runs, and which rows were written by transactions that are
  not older than it. The bound stays below both.
* Everywhere, the next reading begins an overlap before the bound, for what nobody can see: a transaction that has taken
  its time or number but has not written yet, and other databases' running transactions.

Times are compared among themselves and never with a clock: a column without a zone may hold any zone's time.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
from sqlalchemy import Connection, text

from dw_platform.extract.description import SourceTable
from dw_platform.extract.notation import notation_of
from dw_platform.foundation import PermanentError

CursorKind = Literal["number", "time"]

# Sessions that have written and not yet ended, and prepared transactions. What belongs to others is hidden from users
# without pg_read_all_stats.
_OLDEST_WRITER = """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - min(began)), count(*) FILTER (WHERE hidden)
FROM (
  SELECT CASE WHEN backend_xid IS NOT NULL THEN xact_start END AS began,
         backend_type IS NULL AND pid <> pg_backend_pid() AS hidden
  FROM pg_stat_activity WHERE datname = current_database() OR datname IS NULL
  UNION ALL SELECT prepared, false FROM pg_prepared_xacts WHERE database = current_database()
) AS open
"""


class CursorNotReadableError(PermanentError):
    """A stored cursor value is no number and no time."""

    def __init__(self, table: str, column: str) -> None:
        self.table, self.column = table, column
        super().__init__(
            f"{table}: the last value of {column} is neither a number nor a time within the years 1 to 9999, so nobody "
            "can say what lies before it. Correct it in the source, or choose another cursor."
        )


@dataclass(frozen=True, slots=True)
class Horizon:
    """The bound, as a Python value; None when there is nothing to read."""

    value: Any | None
    why: str


def cursor_kind(kind: pa.DataType) -> CursorKind | None:
    """Return how a column of this type grows; None if it cannot serve as a cursor."""
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return "number"
    return "time" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else None


def settled_upto(connection: Connection, table: SourceTable, column: str, kind: CursorKind) -> Horizon:
    """Return the highest value of `column` below which nothing can appear any more, as far as the database tells."""
    quoted = table.quote(column)
    highest = connection.execute(text(_escaped(f"SELECT max({quoted}) FROM {table.quoted()}"))).scalar()  # noqa: S608
    if highest is None:
        return Horizon(None, "the table has no row with a cursor")
    if table.kind != "postgresql" or table.is_view:
        return Horizon(highest, "the highest value")
    if kind == "number":
        return _below_unsettled(connection, table, quoted, highest)
    age, hidden = connection.execute(text(_OLDEST_WRITER)).one()
    if age is None:
        told = "; transactions of other users are hidden from this one" if hidden else ""
        return Horizon(highest, f"the highest value{told}")
    return Horizon(earlier(table, column, highest, timedelta(seconds=float(age))), "below the oldest open transaction")


def _below_unsettled(connection: Connection, table: SourceTable, quoted: str, highest: Any) -> Horizon:
    # age() because the numbers of transactions wrap around; the horizon itself is the first that may still run.
    statement = (
        f"SELECT min({quoted}) FROM {table.quoted()} "  # noqa: S608
        "WHERE age(xmin) <= age(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS xid))"
    )
    lowest = connection.execute(text(_escaped(statement))).scalar()
    if lowest is None:
        return Horizon(highest, "the highest value")
    return Horizon(lowest - 1, "below the rows of the oldest open transaction")


def _escaped(statement: str) -> str:
    """Return a statement in which no colon of a name is taken for a parameter."""
    return statement.replace(":", r"\:")


def lower_bound(table: SourceTable, column: str, reached: str, overlap: timedelta | int) -> Any:
    """Return the value from which to read again, given the text of the value that was reached."""
    value = _value(table, column, reached)
    if isinstance(value, int | Decimal):
        # A duration says nothing about numbers; this many are enough for a second's worth of a busy sequence.
        return value - (overlap if isinstance(overlap, int) else 10_000)
    return earlier(table, column, value, overlap if isinstance(overlap, timedelta) else timedelta(seconds=overlap))


def earlier(table: SourceTable, column: str, value: Any, by: timedelta) -> Any:
    """Return a time before `value`, in the same form: SQLite compares texts."""
    if isinstance(value, str):
        moment = _parsed(table, column, value)
        moved = _minus(moment, by)
        separator = "T" if "T" in value else " "
        return moved.isoformat(separator) if isinstance(moved, datetime) else moved.isoformat()
    return _minus(value, by)


def _minus(value: Any, by: timedelta) -> Any:
    if isinstance(value, datetime):
        first = datetime.min.replace(tzinfo=value.tzinfo)
        return value - by if value - first > by else first
    # A date has no hours; one day more covers what is left over.
    return value - timedelta(days=by.days + 1) if value > date.min + by + timedelta(days=1) else date.min


def _value(table: SourceTable, column: str, reached: str) -> Any:
    if table.kind == "postgresql":
        try:
            return int(reached)
        except ValueError:
            return _parsed(table, column, reached)
    family, _, body = reached.partition(":")
    if family in {"n", "i"}:
        return int(body)
    # MySQL's dates and moments become values; SQLite's stay text, because they are compared as text.
    return body if table.kind == "sqlite" and family == "t" else _parsed(table, column, body)


def _parsed(table: SourceTable, column: str, body: str) -> date:
    try:
        return date.fromisoformat(body) if len(body) == 10 else datetime.fromisoformat(body)
    except ValueError:
        raise CursorNotReadableError(str(table), column) from None


def text_of(table: SourceTable, value: Any) -> str | None:
    """Return a value as a position's text."""
    return notation_of(table.kind).text_of((value,))
