"""Large values: whole, in order, as they were at one moment, in little memory, and given up when nobody reads."""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dw_platform.extract import values_sqlite
from dw_platform.extract.buffer import StreamClosedError
from dw_platform.extract.description import SourceTable, describe_table, quote_name
from dw_platform.extract.errors import DatabaseUnavailableError, SourceChangedError, UnknownSourceColumnError
from dw_platform.extract.source import open_engine
from dw_platform.extract.spot import find_spot
from dw_platform.extract.values import NoValueError, RowGoneError, ValueReader, copy_value, stream_value
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox

BYTES = {"postgresql": "BYTEA", "mysql": "LONGBLOB", "sqlite": "BLOB"}
TEXT = {"postgresql": "TEXT", "mysql": "LONGTEXT CHARACTER SET utf8mb4", "sqlite": "TEXT"}
PATTERN = bytes(range(256))
# Just beyond two slices of PostgreSQL, and no multiple of anything.
LARGE = (PATTERN * (2 * 4096 + 1))[:-3]


def described(box: Sandbox, name: str) -> SourceTable:
    engine = open_engine(box.source)
    try:
        with engine.connect() as connection:
            return describe_table(connection, box.source, name)
    finally:
        engine.dispose()


def value_of(box: Sandbox, table: SourceTable, key: Any, column: str) -> bytes:
    return b"".join(stream_value(box.source, table, key, column))


def threads_ended(box: Sandbox) -> bool:
    for thread in [each for each in threading.enumerate() if each.name == f"value-{box.source.name}"]:
        thread.join(30)
        if thread.is_alive():
            return False
    return True


@pytest.fixture
def files(box: Sandbox) -> SourceTable:
    box.run(
        f"CREATE TABLE files (id INTEGER PRIMARY KEY, body {BYTES[box.kind]}, words {TEXT[box.kind]}, "
        "amount NUMERIC(10, 2))"
    )
    if box.kind == "postgresql":
        box.run("ALTER TABLE files ALTER body SET STORAGE EXTERNAL")
    box.insert("files", [(1, LARGE, "grüße € 😀" * 100_000, 1.5), (2, b"", "", None), (3, None, None, None)])
    return described(box, "files")


def test_a_value_comes_whole_in_chunks_of_one_size(box: Sandbox, files: SourceTable) -> None:
    stream = stream_value(box.source, files, {"id": 1}, "body")
    chunks = list(stream)
    assert b"".join(chunks) == LARGE
    assert {len(chunk) for chunk in chunks[:-1]} == {64 * 1024}
    assert stream.stats().written_bytes == len(LARGE)


def test_text_comes_as_utf8_and_numbers_as_text(box: Sandbox, files: SourceTable) -> None:
    assert value_of(box, files, {"id": 1}, "words").decode() == "grüße € 😀" * 100_000
    assert float(value_of(box, files, {"id": 1}, "amount")) == 1.5


def test_a_row_is_found_by_its_position_too(box: Sandbox, files: SourceTable) -> None:
    text = {"postgresql": "1", "mysql": "n:1", "sqlite": "i:1"}[box.kind]
    assert value_of(box, files, (text,), "body") == LARGE
    pieces: list[bytes] = []
    assert copy_value(box.source, files, (text,), "body", pieces.append, by=["id"]) == len(LARGE)
    assert b"".join(pieces) == LARGE


def test_null_no_bytes_and_no_row_are_three_things(box: Sandbox, files: SourceTable) -> None:
    assert value_of(box, files, {"id": 2}, "body") == b""
    assert value_of(box, files, {"id": 2}, "words") == b""
    for column in ("body", "words"):
        with pytest.raises(NoValueError) as none:
            value_of(box, files, {"id": 3}, column)
        assert none.value.column == column
        with pytest.raises(RowGoneError) as gone:
            value_of(box, files, {"id": 4}, column)
        assert gone.value.columns == ("id",)


def test_one_connection_reads_many_values_also_after_one_that_is_missing(box: Sandbox, files: SourceTable) -> None:
    with ValueReader(box.source, files) as reader:
        assert b"".join(reader.slices({"id": 1}, "body")) == LARGE
        with pytest.raises(RowGoneError):
            reader.copy({"id": 4}, "body", lambda _: None)
        with pytest.raises(NoValueError):
            reader.copy({"id": 3}, "body", lambda _: None)
        with closing(reader.slices({"id": 1}, "body")) as pieces:
            assert LARGE.startswith(next(pieces))
        assert reader.copy({"id": 2}, "body", lambda _: None) == 0
        assert reader.copy({"id": 1}, "body", lambda _: None) == len(LARGE)


def test_what_names_no_value_is_refused_before_anything_is_read(box: Sandbox, files: SourceTable) -> None:
    with pytest.raises(UnknownSourceColumnError):
        stream_value(box.source, files, {"id": 1}, "bodi")
    with pytest.raises(UnknownSourceColumnError):
        stream_value(box.source, files, {"idd": 1}, "body")
    for key in ({}, ("1", "2")):
        with pytest.raises(InvalidValueError, match="key"):
            stream_value(box.source, files, key, "body")  # type: ignore[arg-type]


def test_a_key_that_names_several_rows_is_refused(box: Sandbox, files: SourceTable) -> None:
    with pytest.raises(InvalidValueError, match="columns that name one row"):
        value_of(box, files, {"amount": None}, "body")


def test_names_and_keys_may_be_any_text(box: Sandbox) -> None:
    table, column, key = 'a "b` ; %s', "order'\"` %d", "it's \\ 100% 😀; DROP TABLE x --"
    kind = "VARCHAR(100) CHARACTER SET utf8mb4" if box.kind == "mysql" else "VARCHAR(100)"
    name = quote_name(box.source.kind, table)
    box.run(f"CREATE TABLE {name} (k {kind} PRIMARY KEY, {quote_name(box.source.kind, column)} {BYTES[box.kind]})")
    box.insert(name if box.kind == "sqlite" else name.replace("%", "%%"), [(key, LARGE)])
    assert value_of(box, described(box, table), {"k": key}, column) == LARGE


def test_a_reader_that_leaves_ends_the_thread_and_its_connection(box: Sandbox, files: SourceTable) -> None:
    source = replace(box.source, buffer_bytes=128 * 1024)
    with stream_value(source, files, {"id": 1}, "body") as stream:
        assert stream.read() == LARGE[: 64 * 1024]
        assert stream.peak_bytes <= 128 * 1024
    assert threads_ended(box)
    with pytest.raises(StreamClosedError):
        stream.read()
    if box.kind == "postgresql":
        # The server notices a moment later that its client has gone.
        deadline = time.monotonic() + 30
        while _sessions(box):
            assert time.monotonic() < deadline, "the session stays"
            time.sleep(0.02)


def _sessions(box: Sandbox, column: str = "state") -> list[Any]:
    with box.admin.connect() as connection:
        found = connection.exec_driver_sql(
            f"SELECT {column} FROM pg_stat_activity WHERE application_name = 'dw_platform extract' "
            "AND datname = current_database()"
        )
        return list(found)


def test_a_value_that_changes_meanwhile_is_read_as_it_was(box: Sandbox, files: SourceTable) -> None:
    source = replace(box.source, buffer_bytes=128 * 1024)
    stream = stream_value(source, files, {"id": 1}, "body")
    first = stream.read()
    box.run("UPDATE files SET body = NULL WHERE id = 1")
    box.run("DELETE FROM files WHERE id = 1")
    if box.kind == "postgresql":
        with box.admin.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM files")
    assert first + b"".join(stream) == LARGE


def test_coroutines_read_it_as_well(box: Sandbox, files: SourceTable) -> None:
    async def read() -> bytes:
        return b"".join([chunk async for chunk in stream_value(box.source, files, {"id": 1}, "body")])

    assert asyncio.run(read()) == LARGE


def test_a_table_that_is_gone_has_changed(box: Sandbox, files: SourceTable) -> None:
    box.run("DROP TABLE files")
    with pytest.raises(SourceChangedError):
        value_of(box, files, {"id": 1}, "body")


# PostgreSQL


@pytest.mark.server
def test_compressed_bytes_documents_and_domains_come_whole(postgres_box: Sandbox) -> None:
    postgres_box.run(
        "CREATE DOMAIN picture AS bytea",
        "CREATE TABLE packed (id int PRIMARY KEY, body picture COMPRESSION pglz, doc jsonb)",
        "INSERT INTO packed SELECT 1, decode(repeat('00ff10ab', 900000), 'hex'), "
        """jsonb_build_object('a', repeat('é"', 600000))""",
    )
    table = described(postgres_box, "packed")
    with postgres_box.admin.connect() as connection:
        (method,) = connection.exec_driver_sql("SELECT pg_column_compression(body) FROM packed").one()
    assert method == "pglz"
    assert value_of(postgres_box, table, {"id": 1}, "body") == bytes.fromhex("00ff10ab") * 900_000
    assert value_of(postgres_box, table, {"id": 1}, "doc").decode() == '{"a": "' + 'é\\"' * 600_000 + '"}'


@pytest.mark.server
def test_a_session_that_dies_in_the_middle_is_an_error_and_not_the_end(postgres_box: Sandbox) -> None:
    postgres_box.run("CREATE TABLE files (id int PRIMARY KEY, body bytea)")
    postgres_box.insert("files", [(1, LARGE * 2)])
    source = replace(postgres_box.source, buffer_bytes=128 * 1024)
    stream = stream_value(source, described(postgres_box, "files"), {"id": 1}, "body")
    got = [stream.read()]
    postgres_box.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dw_platform extract' "
        "AND datname = current_database()"
    )
    with pytest.raises(DatabaseUnavailableError):
        got.extend(stream)
    assert (LARGE * 2).startswith(b"".join(got))


@pytest.mark.server
def test_a_server_that_stops_in_the_middle_is_given_up(postgres_box: Sandbox) -> None:
    postgres_box.run("CREATE TABLE files (id int PRIMARY KEY, body bytea)")
    postgres_box.insert("files", [(1, LARGE * 2)])
    source = replace(postgres_box.source, statement_timeout_s=1.0)
    with ValueReader(source, described(postgres_box, "files")) as reader:
        pieces = reader.slices({"id": 1}, "body")
        next(pieces)
        ((process,),) = _sessions(postgres_box, "pid")
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(DatabaseUnavailableError):
                next(pieces)
        finally:
            os.kill(process, signal.SIGCONT)
        assert reader.copy({"id": 1}, "body", lambda _: None) == len(LARGE) * 2


# SQLite


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE t (k TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID",
        "CREATE TABLE t (k TEXT PRIMARY KEY, body BLOB, rowid TEXT)",
        "CREATE TABLE t (k TEXT PRIMARY KEY, body BLOB, rowid TEXT, oid TEXT, _rowid_ TEXT)",
    ],
    ids=["without rowid", "rowid is a column", "no name left for the rowid"],
)
def test_sqlite_tables_without_a_usable_rowid_are_read_all_the_same(sqlite_box: Sandbox, ddl: str) -> None:
    sqlite_box.run(ddl)
    sqlite_box.run("INSERT INTO t (k, body) VALUES ('a', zeroblob(3000000))")
    assert value_of(sqlite_box, described(sqlite_box, "t"), {"k": "a"}, "body") == bytes(3_000_000)


def test_sqlite_views_and_computed_columns_are_read_all_the_same(sqlite_box: Sandbox) -> None:
    sqlite_box.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, words TEXT, twice TEXT AS (words || words) VIRTUAL)",
        "CREATE VIEW v AS SELECT id, words FROM t",
        "INSERT INTO t (id, words) VALUES (1, 'grüße')",
    )
    assert value_of(sqlite_box, described(sqlite_box, "v"), {"id": 1}, "words").decode() == "grüße"
    table = described(sqlite_box, "t")
    if any(column.name == "twice" for column in table.columns):
        assert value_of(sqlite_box, table, {"id": 1}, "twice").decode() == "grüßegrüße"


def test_a_sqlite_row_that_is_written_through_the_same_connection_is_noticed(sqlite_box: Sandbox) -> None:
    sqlite_box.run("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)", "INSERT INTO t VALUES (1, zeroblob(1000))")
    spot = find_spot(described(sqlite_box, "t"), {"id": 1}, "body", slice_bytes=100)
    with closing(sqlite3.connect(sqlite_box.source.file)) as connection:
        pieces = values_sqlite.slices(connection, spot)
        assert next(pieces) == bytes(100)
        connection.execute("UPDATE t SET body = zeroblob(2000)")
        with pytest.raises(SourceChangedError):
            next(pieces)


def test_text_of_a_utf16_file_comes_as_utf8(tmp_path: Path, sqlite_box: Sandbox) -> None:
    file, words = tmp_path / "wide.db", "grüße € 😀" * 200_000
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, words TEXT)")
        connection.execute("INSERT INTO t VALUES (1, ?)", [words])
        connection.commit()
    wide = Sandbox(replace(sqlite_box.source, url=f"sqlite:///{file}"), sqlite_box.admin)
    assert value_of(wide, described(wide, "t"), {"id": 1}, "words").decode() == words
    spot = find_spot(described(wide, "t"), {"id": 1}, "words", slice_bytes=1)
    with closing(sqlite3.connect(file)) as connection, closing(values_sqlite.slices(connection, spot)) as pieces:
        first = b"".join(itertools.islice(pieces, 200))
    assert words.startswith(first.decode()), "no slice holds a whole character"


# Memory

MEASURE = """
import sys, time
from pathlib import Path
from dw_platform.extract.description import describe_table
from dw_platform.extract.source import DatabaseSource, open_engine
from dw_platform.extract.spot import find_spot
from dw_platform.extract.values import stream_value

source = DatabaseSource(name="shop", url=sys.argv[1])
engine = open_engine(source)
with engine.connect() as connection:
    table = describe_table(connection, source, "huge")

def read(key):
    stream = stream_value(source, table, {"id": key}, "body")
    size = len(stream.read())
    while not stream.stats().closed and stream.stats().buffered_bytes < stream.max_bytes:
        time.sleep(0.01)  # the slowest reader there is: it lets the buffer fill up
    return size + sum(map(len, stream)), stream.peak_bytes

def peak():
    # Not getrusage: what it says is at least what the process was that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

read(0)
before = peak()
print(*read(1), peak() - before)
"""


def measured(box: Sandbox) -> Iterator[int]:
    url = box.source.parsed.render_as_string(hide_password=False)
    done = subprocess.run([sys.executable, "-c", MEASURE, url], check=True, capture_output=True, text=True, timeout=120)
    return map(int, done.stdout.split())


HUGE = {
    "postgresql": [
        "CREATE TABLE huge (id int PRIMARY KEY, body bytea)",
        "ALTER TABLE huge ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO huge VALUES (0, '\\x00')",
        "INSERT INTO huge SELECT 1, decode(repeat('0123456789abcdef', 16777216), 'hex')",
    ],
    "sqlite": [
        "CREATE TABLE huge (id INTEGER PRIMARY KEY, body BLOB)",
        "INSERT INTO huge VALUES (0, x'00'), (1, zeroblob(134217728))",
    ],
}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def test_a_value_of_128_mib_takes_no_more_memory_than_the_buffer(kind: str, request: pytest.FixtureRequest) -> None:
    box: Sandbox = request.getfixturevalue({"sqlite": "sqlite_box", "postgresql": "postgres_box"}[kind])
    box.run(*HUGE[kind])
    size, buffered, growth = measured(box)
    assert size == 128 * 1024**2
    assert buffered == 64 * 1024**2
    assert 64 * 1024**2 < growth < 80 * 1024**2
