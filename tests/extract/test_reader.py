import os
import pickle
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from dw_platform.extract.conditions import Condition
from dw_platform.extract.description import quote_name
from dw_platform.extract.errors import DatabaseUnavailableError, SourceChangedError
from dw_platform.extract.key_column import OrderColumn
from dw_platform.extract.reader import PageReader
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox, sandbox
from tests.extract.reading import query_of, read_all
from tests.servers import postgres_server

ODD_NAMES = [
    "order", '"', "`", "two words", "100%", "%s", ":x", "back\\slash", "'; DROP TABLE x; --", "dotted.name", "Größe",
    "{brace}", "?", "$1",
]  # fmt: skip


def fill(box: Sandbox, rows: int) -> None:
    box.run("CREATE TABLE t (a int NOT NULL, b int NOT NULL, v varchar(20), PRIMARY KEY (a, b))")
    box.insert("t", [(at // 7, at % 7, None if at % 3 else f"v{at}") for at in range(rows)])


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 100])
def test_pages_laid_end_to_end_are_the_table(box: Sandbox, limit: int) -> None:
    fill(box, 30)
    rows = read_all(box, query_of(box), limit=limit)
    assert rows.to_pylist() == [{"a": at // 7, "b": at % 7, "v": None if at % 3 else f"v{at}"} for at in range(30)]


def test_a_bound_ends_a_table_that_grows(box: Sandbox) -> None:
    fill(box, 10)
    with PageReader(box.source, query_of(box)) as reader:
        bound = reader.last_position()
        first = reader.page(None, 6, upto=bound)
        box.insert("t", [(9, 9, "late")])
        second = reader.page(first.last, 6, upto=bound)
        third = reader.page(first.last, 6)
    assert (first.rows.num_rows, first.exhausted) == (6, False)
    assert (second.rows.num_rows, second.exhausted, second.last) == (4, True, bound)
    assert third.rows.num_rows == 5


def test_a_reader_holds_no_transaction_between_pages(box: Sandbox) -> None:
    fill(box, 10)
    with PageReader(box.source, query_of(box)) as reader:
        reader.page(None, 5)
        # It would wait for the reader's transaction, if there were one.
        box.run("ALTER TABLE t ADD COLUMN w int", "DROP TABLE t")


@pytest.mark.server
def test_the_connection_is_idle_between_pages(postgres_box: Sandbox) -> None:
    fill(postgres_box, 10)
    with PageReader(postgres_box.source, query_of(postgres_box)) as reader, postgres_box.admin.connect() as admin:
        reader.page(None, 5)
        states = admin.exec_driver_sql(
            "SELECT state FROM pg_stat_activity WHERE application_name = 'dw_platform extract'"
            " AND datname = current_database()"
        )
        assert set(states.scalars()) == {"idle"}


def test_a_table_that_is_dropped_between_pages_is_reported_as_changed(box: Sandbox) -> None:
    fill(box, 10)
    with PageReader(box.source, query_of(box)) as reader:
        page = reader.page(None, 5)
        box.run("DROP TABLE t")
        with pytest.raises(SourceChangedError) as caught:
            reader.page(page.last, 5)
    assert (caught.value.source, caught.value.table.rpartition(".")[2]) == (box.source.name, "t")


def test_a_column_that_is_renamed_between_pages_is_reported_as_changed(box: Sandbox) -> None:
    fill(box, 10)
    with PageReader(box.source, query_of(box)) as reader:
        page = reader.page(None, 5)
        box.run("ALTER TABLE t RENAME COLUMN v TO w")
        with pytest.raises(SourceChangedError, match="start again"):
            reader.page(page.last, 5)


@pytest.mark.server
def test_a_column_whose_type_changes_between_pages_is_reported_as_changed(postgres_box: Sandbox) -> None:
    fill(postgres_box, 10)
    with PageReader(postgres_box.source, query_of(postgres_box)) as reader:
        page = reader.page(None, 5)
        postgres_box.run("ALTER TABLE t ALTER COLUMN b TYPE bigint")
        with pytest.raises(SourceChangedError, match="column b came as int32 and now comes as int64"):
            reader.page(page.last, 5)


def test_an_empty_table_gives_one_empty_page_with_the_schema(box: Sandbox) -> None:
    fill(box, 0)
    query = query_of(box)
    with PageReader(box.source, query) as reader:
        assert reader.last_position() is None
        page = reader.page(None, 5)
    assert (page.rows.num_rows, page.last, page.exhausted) == (0, None, True)
    assert page.rows.schema == query.schema
    assert page.rows.schema.names == ["a", "b", "v"]


def test_a_view_is_read_by_the_key_that_the_user_names(box: Sandbox) -> None:
    fill(box, 20)
    box.run("CREATE VIEW w AS SELECT a * 7 + b AS id, v FROM t")
    overrides = {"id": "bigint"} if box.kind == "sqlite" else {}
    rows = read_all(box, query_of(box, "w", key=["id"], overrides=overrides), limit=6)
    assert rows.column("id").to_pylist() == list(range(20))


def test_any_name_of_table_and_column_is_read(box: Sandbox) -> None:
    kind = box.source.kind
    columns = ", ".join(f"{quote_name(kind, name)} int NOT NULL" for name in ODD_NAMES)
    box.run("CREATE TABLE x (a int)")
    for name in ("'; DROP TABLE x; --", "100% :x"):
        quoted = quote_name(kind, name)
        keys = ", ".join(quote_name(kind, each) for each in ODD_NAMES[:4])
        box.run(f"CREATE TABLE {quoted} ({columns}, PRIMARY KEY ({keys}))")
        values = [f"({', '.join(str(row + at) for at in range(len(ODD_NAMES)))})" for row in range(5)]
        box.run(f"INSERT INTO {quoted} VALUES {', '.join(values)}")
        rows = read_all(box, query_of(box, name), limit=2)
        assert rows.schema.names == ODD_NAMES
        assert rows.column("$1").to_pylist() == [13, 14, 15, 16, 17]


def test_the_key_is_read_even_if_it_is_not_among_the_columns(box: Sandbox) -> None:
    fill(box, 10)
    rows = read_all(box, query_of(box, columns=["v"]), limit=3)
    assert rows.schema.names == ["v"]
    assert rows.num_rows == 10


def test_filters_hold_on_every_page(box: Sandbox) -> None:
    fill(box, 30)
    query = query_of(box, where=[Condition("b", "in", (1, 2)), Condition("a", "<", 3)])
    rows = read_all(box, query, limit=2).to_pylist()
    assert [(row["a"], row["b"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]


def test_a_descending_order_begins_at_the_end(box: Sandbox) -> None:
    fill(box, 10)
    query = replace(query_of(box), order=(OrderColumn("a", descending=True), OrderColumn("b")))
    rows = read_all(box, query, limit=4).to_pylist()
    assert [(row["a"], row["b"]) for row in rows] == [(1, 0), (1, 1), (1, 2), *((0, at) for at in range(7))]


def test_null_in_the_key_is_found(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int, v int)", "CREATE UNIQUE INDEX u ON t (a)")
    box.insert("t", [(1, 1), (2, 2)])
    query = query_of(box, key=["a"])
    with PageReader(box.source, query) as reader:
        assert not reader.has_null_in_key()
        box.insert("t", [(None, 3)])
        assert reader.has_null_in_key()


def test_a_step_ahead_passes_over_rows_of_all_branches(box: Sandbox) -> None:
    fill(box, 30)
    with PageReader(box.source, query_of(box)) as reader:
        bound = reader.last_position()
        position, seen = None, []
        while position := reader.position_ahead(position, 8, upto=bound):
            seen.append(reader.page(position, 1).rows.to_pylist())
        assert reader.count(upto=bound) == 30
    assert [(rows[0]["a"], rows[0]["b"]) for rows in seen] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(("kind", "width"), [("sqlite", 2000), ("postgresql", 1600), ("mysql", 1010)])
def test_the_widest_table_is_read(request: pytest.FixtureRequest, kind: str, width: int) -> None:
    if kind != "sqlite":
        request.applymarker(pytest.mark.server)
    fixtures = {"sqlite": "sqlite_box", "postgresql": "postgres_box", "mysql": "mysql_box"}
    box: Sandbox = request.getfixturevalue(fixtures[kind])
    # Narrow ones: a row of PostgreSQL has to fit into a block. NUMERIC, so that SQLite needs guards too.
    declared = "NUMERIC" if kind == "sqlite" else "smallint"
    columns = ", ".join(f"c{at} {declared}" for at in range(width - 1))
    box.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    for row in (1, 2, 3):
        box.run(f"INSERT INTO t VALUES ({row}, {', '.join(str(at % 10 * row) for at in range(width - 1))})")
    rows = read_all(box, query_of(box), limit=2)
    assert (rows.num_rows, rows.num_columns) == (3, width)
    assert rows.column(width - 1).to_pylist() == [(width - 2) % 10 * row for row in (1, 2, 3)]


def test_a_query_survives_pickling(box: Sandbox) -> None:
    fill(box, 3)
    query = pickle.loads(pickle.dumps((box.source, query_of(box, where=[Condition("a", "=", 0)]))))
    assert read_all(replace(box, source=query[0]), query[1]).num_rows == 3


def test_a_closed_reader_and_an_empty_page_are_refused(box: Sandbox) -> None:
    fill(box, 1)
    reader = PageReader(box.source, query_of(box))
    with pytest.raises(InvalidValueError):
        reader.page(None, 5)
    with reader, pytest.raises(InvalidValueError):
        reader.page(None, 0)


def test_memory_of_a_page_is_given_back(box: Sandbox) -> None:
    box.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(200))")
    box.insert("t", [(at, "x" * 200) for at in range(5000)])
    with PageReader(box.source, query_of(box)) as reader:
        before = pa.total_allocated_bytes()
        page = reader.page(None, 5000)
        assert page.rows.nbytes > 1_000_000
        del page
        assert pa.total_allocated_bytes() < before + 200_000


def test_rows_of_sqlite_are_one_snapshot_even_in_two_statements(sqlite_box: Sandbox) -> None:
    columns = ", ".join(f"c{at} INT" for at in range(1999))
    sqlite_box.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {columns})")
    sqlite_box.run(*(f"INSERT INTO t (id, c0) VALUES ({at}, 0)" for at in range(20)))
    stop, failed = threading.Event(), []

    def shift() -> None:
        try:
            with closing(sqlite3.connect(sqlite_box.source.file, timeout=30)) as connection:
                while not stop.is_set():
                    # Every id moves by one, so the halves of a row would not match if they came from two states.
                    connection.execute("UPDATE t SET id = id + 100, c0 = c0 + 100")
                    connection.commit()
                    connection.execute("UPDATE t SET id = id - 100, c0 = c0 - 100")
                    connection.commit()
        except sqlite3.Error as error:
            failed.append(error)

    writer = threading.Thread(target=shift)
    writer.start()
    try:
        with PageReader(sqlite_box.source, query_of(sqlite_box)) as reader:
            for _ in range(20):
                page = reader.page(None, 50)
                last = page.rows.column("id")[-1].as_py()
                assert page.last == (f"i:{last}",)
    finally:
        stop.set()
        writer.join()
    assert not failed


@pytest.fixture
def private_postgres() -> Iterator[str]:
    """A server that a test may kill; not in pytest's folder, which its user could not enter."""
    server = postgres_server(Path(tempfile.mkdtemp(prefix="dw-postgres-kill-")))
    yield server.get_uri()
    _wait_for(server.get_uri())
    server.cleanup()


def _wait_for(url: str) -> None:
    """Return once the server accepts connections again: a stop during its recovery takes a minute."""
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


@pytest.mark.server
def test_a_server_that_dies_in_the_middle_of_a_page_is_unavailable(private_postgres: str) -> None:
    import psycopg

    box = sandbox("doomed", private_postgres.replace("postgresql://", "postgresql+psycopg://", 1))
    box.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 100000) i",
    )
    box.admin.dispose()
    query = query_of(box)

    def kill() -> None:
        with psycopg.connect(private_postgres, autocommit=True) as admin:
            while True:
                for (pid,) in admin.execute(
                    "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY%'"
                ):
                    os.kill(pid, signal.SIGKILL)
                    return

    def read_for_ever(reader: PageReader) -> NoReturn:
        while True:
            reader.page(None, 100_000)

    with PageReader(box.source, query) as reader:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(DatabaseUnavailableError) as caught:
            read_for_ever(reader)
        killer.join()
        # The connection stays dead, also when the server is back.
        with pytest.raises(DatabaseUnavailableError):
            reader.page(None, 1)
    assert caught.value.source == "doomed"
