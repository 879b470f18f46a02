"""Declared types of SQLite, whose cells may hold anything: (declared type, value, expected Arrow type, value read)."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.extract.errors import UnmappableColumnError, ValueNotKeptError
from tests.extract.conftest import Sandbox
from tests.extract.reading import query_of, read_all

LOCAL, TEXT = pa.timestamp("us"), pa.string()
KEPT: list[tuple[str, Any, pa.DataType, Any]] = [
    ("INTEGER", -(2**63), pa.int64(), -(2**63)),
    ("TINYINT", 2**63 - 1, pa.int64(), 2**63 - 1),
    ("UNSIGNED BIG INT", 5, pa.int64(), 5),
    ("INT", "7", pa.int64(), 7),
    ("TEXT", "ünï☃ 'q'", TEXT, "ünï☃ 'q'"),
    ("VARCHAR(5)", "longer than five", TEXT, "longer than five"),
    ("TEXT", 5, TEXT, "5"),
    ("TEXT", "nul\0inside", TEXT, "nul\0inside"),
    ("CLOB", "", TEXT, ""),
    ("REAL", 0.1, pa.float64(), 0.1),
    ("DOUBLE PRECISION", 3, pa.float64(), 3.0),
    ("FLOAT", float("inf"), pa.float64(), float("inf")),
    ("BLOB", b"\x00\xff", pa.binary(), b"\x00\xff"),
    ("BLOB", "text", pa.binary(), b"text"),
    ("BOOLEAN", 1, pa.bool_(), True),
    ("BOOL", 0, pa.bool_(), False),
    ("DECIMAL(10,2)", 1.1, pa.decimal128(10, 2), Decimal("1.10")),
    ("DECIMAL(15,2)", 9999999999999.99, pa.decimal128(15, 2), Decimal("9999999999999.99")),
    ("NUMERIC(15,15)", 0.1, pa.decimal128(15, 15), Decimal("0.100000000000000")),
    ("DECIMAL(10,2)", 5, pa.decimal128(10, 2), Decimal("5.00")),
    ("DECIMAL(20,2)", 0.5, pa.float64(), 0.5),
    ("NUMERIC", 5, pa.float64(), 5.0),
    ("NUMERIC", 0.1, pa.float64(), 0.1),
    ("DATE", "2026-01-02", pa.date32(), date(2026, 1, 2)),
    ("DATETIME", "2026-01-02 03:04:05", LOCAL, datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    ("TIMESTAMP", "2026-01-02T03:04:05.678", LOCAL, datetime(2026, 1, 2, 3, 4, 5, 678000)),  # noqa: DTZ001
]


def fill(box: Sandbox, columns: list[tuple[str, Any]]) -> None:
    box.run(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, {', '.join(f'c{at} {kind}' for at, (kind, _) in enumerate(columns))})"
    )
    box.insert("t", [[1, *(value for _, value in columns)], [2, *(None for _ in columns)]])


def test_every_type_keeps_its_values_exactly(sqlite_box: Sandbox) -> None:
    fill(sqlite_box, [(kind, value) for kind, value, _, _ in KEPT])
    rows = read_all(sqlite_box, query_of(sqlite_box))
    assert rows.schema.types[1:] == [kind for _, _, kind, _ in KEPT]
    found = rows.to_pylist()
    assert list(found[0].values())[1:] == [value for _, _, _, value in KEPT]
    assert set(list(found[1].values())[1:]) == {None}
    rows.validate(full=True)


@pytest.mark.parametrize(
    ("declared", "others", "value"),
    [
        ("INTEGER", 1, "text"),
        ("INTEGER", 1, 1.5),
        ("INTEGER", 1, b"\x01"),
        ("REAL", 0.1, "text"),
        ("REAL", 0.1, "nan"),
        ("REAL", 0.1, b"0"),
        ("TEXT", "a", b"bytes"),
        ("BLOB", b"a", 5),
        ("BLOB", b"a", 0.5),
        ("BOOLEAN", 1, 2),
        ("BOOLEAN", 1, "true"),
        ("DECIMAL(10,2)", 1, 0.123),
        ("DECIMAL(10,2)", 1, 0.1 + 0.2),
        ("DECIMAL(4,2)", 1, 12345),
        ("DECIMAL(10,2)", 1, "abc"),
        ("DECIMAL(10,2)", 1, b"1"),
        ("NUMERIC", 0.5, 2**60 + 1),
        ("NUMERIC", 1, 2**60 + 1),
        ("NUMERIC", 0.5, "x"),
        ("DATE", "2026-01-01", 20260101),
        ("DATE", "2026-01-01", "2026-02-30"),
        ("DATE", "2026-01-01", "0000-01-01"),
        ("DATETIME", "2026-01-01", 1767225600),
        ("DATETIME", "2026-01-01", 2461042.5),
        ("DATETIME", "2026-01-01", "2026-01-01T00:00:00Z"),
    ],
)
def test_a_cell_that_does_not_fit_names_its_column(sqlite_box: Sandbox, declared: str, others: Any, value: Any) -> None:
    sqlite_box.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {declared})")
    sqlite_box.insert("t", [[1, others], [2, None], [3, value]])
    with pytest.raises(ValueNotKeptError, match="column c ") as caught:
        read_all(sqlite_box, query_of(sqlite_box))
    assert caught.value.column == "c"


def test_a_text_that_is_no_utf8_names_its_column(sqlite_box: Sandbox) -> None:
    sqlite_box.run("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)", "INSERT INTO t VALUES (1, CAST(X'ff41' AS TEXT))")
    with pytest.raises(ValueNotKeptError, match="no UTF-8"):
        read_all(sqlite_box, query_of(sqlite_box))


@pytest.mark.parametrize("declared", ["", "FOO", "ANY"])
def test_a_column_whose_type_says_nothing_offers_choices(sqlite_box: Sandbox, declared: str) -> None:
    sqlite_box.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {declared})")
    with pytest.raises(UnmappableColumnError) as caught:
        query_of(sqlite_box)
    assert caught.value.choices[0] == "`types: {c: string}`"
    assert caught.value.choices[-1] == "`exclude: [c]`"


@pytest.mark.parametrize(
    ("override", "value", "expected"),
    [
        ("string", 5, "5"),
        ("string", 0.1, "0.1"),
        ("string", 0.1 + 0.2, "0.30000000000000004"),
        ("string", "x", "x"),
        ("bigint", 5, 5),
        ("double", 0.1 + 0.2, 0.1 + 0.2),
        ("double", 5, 5.0),
        ("binary", b"\xff", b"\xff"),
        ("binary", "x", b"x"),
        ("decimal(20,0)", 2**60 + 1, Decimal(2**60 + 1)),
    ],
)
def test_a_choice_makes_it_readable(sqlite_box: Sandbox, override: str, value: Any, expected: Any) -> None:
    sqlite_box.run("CREATE TABLE t (id INTEGER PRIMARY KEY, c)")
    sqlite_box.insert("t", [[1, value], [2, None]])
    rows = read_all(sqlite_box, query_of(sqlite_box, overrides={"c": override}))
    assert rows.column("c").to_pylist() == [expected, None]


@pytest.mark.parametrize(("override", "value"), [("string", b"x"), ("bigint", 1.5), ("bigint", b"5"), ("binary", 5)])
def test_a_choice_still_keeps_values_or_says_so(sqlite_box: Sandbox, override: str, value: Any) -> None:
    sqlite_box.run("CREATE TABLE t (id INTEGER PRIMARY KEY, c)")
    sqlite_box.insert("t", [[1, value], [2, None]])
    with pytest.raises(ValueNotKeptError):
        read_all(sqlite_box, query_of(sqlite_box, overrides={"c": override}))
