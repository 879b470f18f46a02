"""Statements over SQLAlchemy's connections, exactly as they are written: no character in them is a placeholder."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult


def ask(connection: Connection, statement: str, **options: Any) -> CursorResult[Any]:
    """Execute a statement without parameters."""
    # Otherwise drivers get an empty list of them, and take every % for the mark of one.
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True, **options})


def tail(origin: str, *, where: Sequence[str] = (), order_by: str = "", cut: str = "") -> str:
    """Return what stands behind the columns of a SELECT; empty conditions and clauses are left out."""
    conditions = " AND ".join(condition for condition in where if condition)
    clauses = [f"WHERE {conditions}" if conditions else "", f"ORDER BY {order_by}" if order_by else "", cut]
    return " ".join([f"FROM {origin}", *(clause for clause in clauses if clause)])


def select(what: str, origin: str, *, where: Sequence[str] = (), order_by: str = "", cut: str = "") -> str:
    """Return a SELECT; names in it are quoted by the caller, and values are literals of notation.py."""
    return f"SELECT {what} {tail(origin, where=where, order_by=order_by, cut=cut)}"


def cut(limit: int, offset: int = 0) -> str:
    """Return the clause that leaves out the rows before `offset` and those after `limit` more."""
    return f"LIMIT {limit} OFFSET {offset}" if offset else f"LIMIT {limit}"
