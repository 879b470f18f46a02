"""One connection that answers a SELECT with Arrow columns: ADBC for PostgreSQL and SQLite, pymysql for MySQL."""

from typing import Any, Protocol

import pyarrow as pa

from dw_platform.extract.selection import Selection
from dw_platform.extract.source import DatabaseSource, adbc_connection

# Larger batches are copied more often on their way; smaller ones cost more calls than they save.
_BATCH_BYTES = 1024 * 1024


class Rows(Protocol):
    """Where pages come from."""

    check_text: bool
    """Whether texts may be no UTF-8."""

    def fetch(self, selection: Selection, tail: str, limit: int) -> tuple[list[pa.ChunkedArray], dict[int, Any] | None]:
        """Return the expressions' columns, and the key's expressions of the last row, or None without rows.

        `tail` is everything after the select list; it gives at most `limit` rows. No transaction outlives the call.
        """

    def close(self) -> None:
        """Give the connection back; never raises for one that is dead."""


def open_rows(source: DatabaseSource) -> Rows:
    """Return an open connection to `source`."""
    if source.kind == "mysql":
        from dw_platform.extract.reader_mysql import MysqlRows  # noqa: PLC0415 - needs the optional driver

        return MysqlRows(source)
    return AdbcRows(source)


class AdbcRows:
    """Pages by ADBC."""

    def __init__(self, source: DatabaseSource) -> None:
        self._source = source
        self._connection = adbc_connection(source)
        # PostgreSQL itself checks texts before it sends them.
        self.check_text = source.kind == "sqlite"

    def fetch(self, selection: Selection, tail: str, limit: int) -> tuple[list[pa.ChunkedArray], dict[int, Any] | None]:
        parts = [selection.expressions[each] for each in selection.statements]
        statements = [f"SELECT {', '.join(part)} {tail}" for part in parts]
        # One snapshot for the halves of a row, which only a table at SQLite's limit has.
        together = len(statements) > 1
        columns: list[pa.ChunkedArray] = []
        if together:
            self._run("BEGIN")
        try:
            for statement in statements:
                columns += self._table(statement, limit).columns
        finally:
            if together:
                self._run("COMMIT")
        if not columns or not len(columns[0]):
            return [], None
        return columns, {at: columns[at][-1].as_py() for at in selection.key_expressions}

    def close(self) -> None:
        self._connection.close()

    def _table(self, statement: str, limit: int) -> pa.Table:
        with self._connection.cursor() as cursor:
            if self._source.kind == "sqlite":
                # The driver takes the types from the first batch alone, so there is to be only one.
                options = {"adbc.sqlite.query.batch_rows": max(limit, 1)}
            else:
                options = {"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES}
            cursor.adbc_statement.set_options(**options)
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
