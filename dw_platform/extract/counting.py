"""How many rows there are: counted, or as the database estimates it."""

from sqlalchemy import Connection

from dw_platform.extract.source import Kind
from dw_platform.extract.statements import ask, select


def count_rows(connection: Connection, origin: str, where: str) -> int:
    """Count the rows of what stands after FROM."""
    return int(ask(connection, select("count(*)", origin, where=[where])).scalar_one())


def estimate_rows(connection: Connection, kind: Kind, origin: str, where: str) -> int | None:
    """Return the planner's estimate where it is one of rows, or None."""
    if kind != "postgresql":
        # MySQL's EXPLAIN estimates rows to be read, SQLite's none at all.
        return None
    plan = ask(connection, f"EXPLAIN (FORMAT JSON) {select('1', origin, where=[where])}").scalar_one()
    return int(plan[0]["Plan"]["Plan Rows"])
