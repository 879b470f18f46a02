"""A table with a column of every type that a key can have, and pages of it laid end to end."""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import cycle
from typing import Any
from uuid import UUID

from dw_platform.extract.keyset import OrderColumn, Position, branches, key_expressions, position_of, reversed_order
from dw_platform.extract.notation import notation_of
from dw_platform.extract.source import open_engine
from tests.extract.conftest import Sandbox

INTEGERS = [-5, 0, 1, 2, 2**31 - 1]
BIG = [-(2**63), 2**63 - 1, 2**53 + 1, 2**53, 0]
TEXTS = [
    "",
    "a",
    "A",
    "á",
    "ä",
    "ae",
    "b",
    "B ",
    "b",
    "it's",
    'say "x"',
    "back\\slash",
    "%s :x",
    "z\U0001f600",
    "ß",
    "-- x",
]
FLOATS = [
    0.0,
    -0.0,
    0.1,
    1 / 3,
    -1.5,
    1e300,
    5e-324,
    2.2250738585072014e-308,
    123456789.12345679,
    0.00012345678901234567,
]
SPECIAL = [math.nan, math.inf, -math.inf]
DECIMALS = [Decimal(text) for text in ("0", "-1.10", "1.1", "12345678901234567890.0123456789", "0.0000000001")]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]
MOMENTS = [datetime(2024, 5, 1, 12, 0, 0, micros) for micros in (0, 1, 123456, 999999)] + [datetime(1970, 1, 2)]  # noqa: DTZ001
ZONED = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
TIMES = [time(0), time(23, 59, 59, 999999), time(12, 30, 0, 1)]
BYTES = [b"", b"\0", b"a", b"A", b"\xff\x00'\\", b"ab"]
UUIDS = [UUID(int=number) for number in (0, 1, 2**127, 2**128 - 1)]

COLUMNS: dict[str, dict[str, tuple[str, list[Any]]]] = {
    "sqlite": {
        "whole": ("INTEGER", [*BIG, 1.5, "text", b"x"]),
        "real_": ("REAL", [*FLOATS, math.inf, -math.inf, "text"]),
        "num": ("NUMERIC", [1, 1.5, "1.5x", 2**60 + 1, b"1"]),
        "plain": ("TEXT", [*TEXTS, "n\0ul", "n\0um"]),
        "nocase": ("TEXT COLLATE NOCASE", TEXTS),
        "rtrim": ("TEXT COLLATE RTRIM", TEXTS),
        "bin": ("BLOB", [*BYTES, 1, 1.0, "1", "a"]),
        "any": ("", [*BIG, *FLOATS[:4], *TEXTS[:6], *BYTES, "1", 1]),
        "day": ("DATE", [day.isoformat() for day in DATES]),
    },
    "postgresql": {
        "i4": ("integer", INTEGERS),
        "i8": ("bigint", BIG),
        "c": ('text COLLATE "C"', TEXTS),
        "own": ("text", TEXTS),
        "libc": ('text COLLATE "C.utf8"', TEXTS),
        "builtin": ("text COLLATE pg_unicode_fast", TEXTS),
        "vc": ("varchar(40)", TEXTS),
        "ch": ("char(10)", TEXTS),
        "u": ("uuid", UUIDS),
        "d": ("date", [*DATES, "infinity", "-infinity", "0044-03-15 BC"]),
        "ts": ("timestamp", [*MOMENTS, "infinity", "-infinity"]),
        "tz": ("timestamptz", [*ZONED, "infinity", "2024-05-01 12:00:00.000001+05:30"]),
        "n": ("numeric", [*DECIMALS, "NaN", "Infinity", "-Infinity", "1e-400", "1e400"]),
        "n2": ("numeric(30,10)", DECIMALS),
        "f8": ("float8", [*FLOATS, *SPECIAL]),
        "f4": ("float4", [0.0, -0.0, 0.1, 1 / 3, 3e38, *SPECIAL]),
        "by": ("bytea", BYTES),
        "bo": ("boolean", [True, False]),
        "en": ("mood", ["sad", "it's", "happy"]),
        "iv": ("interval", ["1 month", "30 days", "-1 month 3 days", "720:00:00.000001", "1 year -00:00:00.5", "0"]),
        "ti": ("time", TIMES),
        "ttz": ("timetz", ["12:00+01", "12:00+02", "11:00:00.000001+00"]),
        "ip": ("inet", ["10.0.0.1", "10.0.0.0/8", "::1"]),
        "ar": ("text[]", [["a", "b'"], [], [None], ["\\", '"']]),
        "dom": ("small", [1, 2, 3]),
        "js": ("jsonb", ['{"a": 1}', "[1.10]", '"x"', "null"]),
    },
    "mysql": {
        "i4": ("int", INTEGERS),
        "u8": ("bigint unsigned", [0, 2**53, 2**53 + 1, 2**64 - 1]),
        "de": ("decimal(40,10)", DECIMALS),
        "do": ("double", FLOATS),
        "general": ("varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", TEXTS),
        "binary_": ("varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", TEXTS),
        "unicode_": ("varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", TEXTS),
        "latin": ("varchar(40) CHARACTER SET latin1", [text for text in TEXTS if "\U0001f600" not in text]),
        "tx": ("text CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", TEXTS),
        "vb": ("varbinary(40)", BYTES),
        "d": ("date", DATES[1:]),
        "dt": ("datetime(6)", MOMENTS),
        "ts": ("timestamp(6) NULL", MOMENTS),
        "ti": ("time(6)", [timedelta(hours=-838), timedelta(microseconds=-1), timedelta(0), timedelta(hours=30)]),
        "ye": ("year", [1970, 2024]),
        "bo": ("boolean", [True, False]),
        "uu": ("uuid", [str(each) for each in UUIDS]),
        "ip": ("inet6", ["::1", "10::", "ffff::1"]),
    },
}
PREPARED = {
    "sqlite": [],
    "mysql": [],
    "postgresql": [
        "CREATE TYPE mood AS ENUM ('sad', 'it''s', 'happy')",
        "CREATE DOMAIN small AS integer CHECK (VALUE < 10)",
    ],
}


_WRITING = {
    "sqlite": "BEGIN",
    "mysql": "START TRANSACTION READ WRITE",
    "postgresql": "SET TRANSACTION READ WRITE",
}


@dataclass(frozen=True)
class Bench:
    """A connection that both writes and reads, with the platform's session settings; nothing is ever committed."""

    box: Sandbox
    connection: Any

    @property
    def kind(self) -> str:
        return self.box.kind

    def column(self, name: str) -> str:
        return f"t.{self.box.quote(name)}"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def filled(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[None]:
        """Hold these rows, numbered from 1, inside a transaction."""
        mark = "?" if self.kind == "sqlite" else "%s"
        names = ", ".join(["id", *map(self.box.quote, columns)])
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(_WRITING[self.kind])
            statement = f"INSERT INTO t ({names}) VALUES ({', '.join([mark] * (len(columns) + 1))})"
            cursor.executemany(statement, [(number, *row) for number, row in enumerate(rows, 1)])
        try:
            yield
        finally:
            self.connection.rollback()


@contextmanager
def bench(box: Sandbox) -> Iterator[Bench]:
    columns = ", ".join(f"{box.quote(name)} {declared}" for name, (declared, _) in COLUMNS[box.kind].items())
    box.run(*PREPARED[box.kind], f"CREATE TABLE t (id integer NOT NULL, {columns})")
    if box.kind == "sqlite":
        import sqlite3

        with closing(sqlite3.connect(box.source.file, isolation_level=None)) as connection:
            yield Bench(box, connection)
        return
    engine = open_engine(box.source)
    raw = engine.raw_connection()
    try:
        yield Bench(box, raw)
    finally:
        raw.close()
        engine.dispose()


def expected(bench: Bench, order: Sequence[OrderColumn]) -> list[int]:
    """Return the numbers of all rows as one statement gives them, with NULLs placed by an expression of its own."""
    items = []
    for column in order:
        name = bench.column(column.name)
        if column.nulls_first is not None:
            items.append(f"CASE WHEN {name} IS NULL THEN 0 ELSE 1 END{'' if column.nulls_first else ' DESC'}")
        items.append(f"{name} DESC" if column.descending else name)
    return [number for (number,) in bench.ask(f"SELECT id FROM t ORDER BY {', '.join(items)}")]


def pages(
    bench: Bench,
    order: Sequence[OrderColumn],
    sizes: Sequence[int],
    *,
    upto: Position | None = None,
    native: frozenset[str] = frozenset(),
) -> list[list[tuple[int, Position]]]:
    """Return the pages as the reader builds them: number and position of each row."""
    notation, quote = notation_of(bench.kind), bench.column
    selected = key_expressions(order, notation=notation, quote=quote, native=native)
    columns = ", ".join(["id", *(part for parts in selected for part in parts)])
    found: list[list[tuple[int, Position]]] = []
    after = None
    for size in cycle(sizes):
        page: list[tuple[int, Position]] = []
        for branch in branches(order, after, upto, notation=notation, quote=quote):
            if len(page) == size:
                break
            where = f"WHERE {branch.where} " if branch.where else ""
            statement = f"SELECT {columns} FROM t {where}ORDER BY {branch.order_by} LIMIT {size - len(page)}"
            for number, *values in bench.ask(statement):
                left = iter(values)
                grouped = [[next(left) for _ in parts] for parts in selected]
                page.append((number, position_of(grouped, notation=notation)))
        found.append(page)
        if len(page) < size:
            return found
        after = page[-1][1]
        assert len(found) < 500, "the pages do not get on"
    raise AssertionError


def numbers(found: Sequence[Sequence[tuple[int, Position]]]) -> list[int]:
    return [number for page in found for number, _ in page]


def last_position(bench: Bench, order: Sequence[OrderColumn]) -> Position | None:
    first = pages(bench, reversed_order(order), [1])[0]
    return first[0][1] if first else None
