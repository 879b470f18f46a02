"""Every type of MariaDB, read through pymysql: (declared type, inserted literal, expected Arrow type, value)."""

from datetime import UTC as Z
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dw_platform.extract.errors import SourceChangedError, UnmappableColumnError, ValueNotKeptError
from dw_platform.extract.reader import PageReader
from tests.extract.conftest import Sandbox
from tests.extract.reading import query_of, read_all

pytestmark = pytest.mark.server

UTC, LOCAL, TEXT = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string()
NINES = "9" * 28 + "." + "9" * 10
KEPT: list[tuple[str, str, pa.DataType, Any]] = [
    ("tinyint", "-128", pa.int8(), -128),
    ("tinyint(1)", "1", pa.int8(), 1),
    ("tinyint unsigned", "255", pa.int16(), 255),
    ("smallint", "-32768", pa.int16(), -32768),
    ("smallint unsigned", "65535", pa.int32(), 65535),
    ("mediumint", "-8388608", pa.int32(), -8388608),
    ("mediumint unsigned", "16777215", pa.int32(), 16777215),
    ("int", "-2147483648", pa.int32(), -(2**31)),
    ("int unsigned", "4294967295", pa.int64(), 2**32 - 1),
    ("int(6) zerofill", "42", pa.int64(), 42),
    ("bigint", "-9223372036854775808", pa.int64(), -(2**63)),
    ("bigint unsigned", "18446744073709551615", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    ("decimal(12,2)", "1.10", pa.decimal128(12, 2), Decimal("1.10")),
    ("decimal(38,10)", f"-{NINES}", pa.decimal128(38, 10), Decimal(f"-{NINES}")),
    ("decimal(60,20)", "1" * 40 + ".5", TEXT, "1" * 40 + "." + "5".ljust(20, "0")),
    ("float", "0.1", pa.float32(), 0.10000000149011612),
    ("float", "16777217", pa.float32(), 16777216.0),
    ("double", "0.1", pa.float64(), 0.1),
    ("double", "1.7976931348623157e308", pa.float64(), 1.7976931348623157e308),
    ("double", "2.2250738585072014e-308", pa.float64(), 2.2250738585072014e-308),
    ("double", "0.30000000000000004", pa.float64(), 0.1 + 0.2),
    ("bool", "true", pa.int8(), 1),
    ("date", "'1000-01-01'", pa.date32(), date(1000, 1, 1)),
    ("date", "'9999-12-31'", pa.date32(), date.max),
    ("datetime", "'2026-03-29 02:30:00'", LOCAL, datetime(2026, 3, 29, 2, 30)),  # noqa: DTZ001
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", LOCAL, datetime.max),  # noqa: DTZ901
    ("datetime(3)", "'2026-01-01 00:00:00.123'", LOCAL, datetime(2026, 1, 1, 0, 0, 0, 123000)),  # noqa: DTZ001
    ("timestamp(6) NULL", "'2026-03-29 02:30:00.000001'", UTC, datetime(2026, 3, 29, 2, 30, 0, 1, Z)),
    ("time", "'838:59:59'", TEXT, "838:59:59"),
    ("time(6)", "'-25:00:00.5'", TEXT, "-25:00:00.500000"),
    ("year", "2155", pa.int16(), 2155),
    ("char(5)", "'ab'", TEXT, "ab"),
    ("varchar(20)", "'ünï☃ \\'q\\''", TEXT, "ünï☃ 'q'"),
    ("varchar(20) CHARACTER SET latin1", "'Größe'", TEXT, "Größe"),
    ("text", "''", TEXT, ""),
    ("longtext", "REPEAT('x', 100)", TEXT, "x" * 100),
    ("enum('a','b,c')", "'b,c'", TEXT, "b,c"),
    ("set('a','b')", "'a,b'", TEXT, "a,b"),
    ("json", """'{"b": 1.10, "a":1}'""", TEXT, '{"b": 1.10, "a":1}'),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", TEXT, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("inet6", "'::1'", TEXT, "::1"),
    ("inet4", "'10.0.0.1'", TEXT, "10.0.0.1"),
    ("binary(3)", "X'00ff'", pa.binary(), b"\x00\xff\x00"),
    ("varbinary(3)", "X'00ff'", pa.binary(), b"\x00\xff"),
    ("blob", "''", pa.binary(), b""),
    ("longblob", "X'ff'", pa.binary(), b"\xff"),
    ("bit(1)", "b'1'", pa.binary(), b"\x01"),
    ("bit(12)", "b'101010101010'", pa.binary(), b"\x0a\xaa"),
]


def fill(box: Sandbox, columns: list[tuple[str, str]]) -> None:
    names = [f"c{at}" for at in range(len(columns))]
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, columns, strict=True))
    box.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {declared})",
        "SET time_zone = '+00:00'",
        f"INSERT INTO t VALUES (1, {', '.join(literal for _, literal in columns)})",
        "INSERT INTO t (id) VALUES (2)",
    )


def test_every_type_keeps_its_values_exactly(mysql_box: Sandbox) -> None:
    fill(mysql_box, [(kind, literal) for kind, literal, _, _ in KEPT])
    rows = read_all(mysql_box, query_of(mysql_box))
    assert rows.schema.types[1:] == [kind for _, _, kind, _ in KEPT]
    found = rows.to_pylist()
    assert list(found[0].values())[1:] == [value for _, _, _, value in KEPT]
    assert set(list(found[1].values())[1:]) == {None}
    rows.validate(full=True)


def test_an_override_to_string_gives_the_databases_own_text(mysql_box: Sandbox) -> None:
    columns = [
        ("date", "'0000-00-00'", "0000-00-00"),
        ("datetime(3)", "'2026-00-00'", "2026-00-00 00:00:00.000"),
        ("bit(4)", "b'1010'", "1010"),
        ("blob", "X'00ff'", "00FF"),
        ("point", "ST_GeomFromText('POINT(1 2)')", "POINT(1 2)"),
        ("float", "0.1", "0.10000000149011612"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ]
    mysql_box.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'c{at} {kind}' for at, (kind, _, _) in enumerate(columns))})",
        "SET sql_mode = ''",
        f"INSERT INTO t VALUES (1, {', '.join(literal for _, literal, _ in columns)})",
    )
    query = query_of(mysql_box, overrides={f"c{at}": "string" for at in range(len(columns))})
    row = read_all(mysql_box, query).to_pylist()[0]
    assert list(row.values())[1:] == [text for _, _, text in columns]


def test_zero_dates_name_their_column_and_the_way_out(mysql_box: Sandbox) -> None:
    for at, (kind, literal) in enumerate(
        [
            ("date", "'0000-00-00'"),
            ("date", "'2026-01-00'"),
            ("date", "'0000-01-01'"),
            ("datetime", "'0000-00-00'"),
            ("datetime", "'2026-02-31'"),
            ("timestamp", "'0000-00-00'"),
        ]
    ):
        mysql_box.run(
            f"CREATE TABLE bad{at} (id int PRIMARY KEY, c {kind})",
            "SET sql_mode = 'ALLOW_INVALID_DATES'",
            f"INSERT INTO bad{at} VALUES (1, {literal})",
        )
        with pytest.raises(ValueNotKeptError, match="zero date"):
            read_all(mysql_box, query_of(mysql_box, f"bad{at}"))


def test_a_shape_names_itself_and_the_choices(mysql_box: Sandbox) -> None:
    mysql_box.run("CREATE TABLE t (id int PRIMARY KEY, c geometry)")
    with pytest.raises(UnmappableColumnError, match=r"column c .*type geometry.*types: \{c: string\}"):
        query_of(mysql_box)


def test_every_kind_of_key_gives_pages_that_continue(mysql_box: Sandbox) -> None:
    keys = {
        "bigint unsigned": ["0", "9223372036854775808", "18446744073709551615"],
        "decimal(40,2)": ["-1.10", "0", "99999999999999999999999999999999999999.99"],
        "varchar(20)": ["''", "'ä'", "'b'"],
        "varbinary(20)": ["''", "X'00'", "X'ff'"],
        "date": ["'1000-01-01'", "'2026-01-01'", "'9999-12-31'"],
        "datetime(6)": ["'1000-01-01'", "'2026-01-01 00:00:00.000001'", "'2026-01-01 00:00:00.000002'"],
        "timestamp(6)": ["'2026-01-01'", "'2026-01-01 00:00:00.000001'", "'2026-01-01 00:00:00.000002'"],
        "time": ["'-838:59:59'", "'00:00:00'", "'25:00:00'"],
        "year": ["1901", "2000", "2155"],
        "double": ["-0.1", "0.1", "0.30000000000000004"],
        "uuid": [f"'{'-'.join(letter * length for length in (8, 4, 4, 4, 12))}'" for letter in "07f"],
    }
    for at, (kind, values) in enumerate(keys.items()):
        rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
        mysql_box.run(f"CREATE TABLE k{at} (k {kind} PRIMARY KEY, n int)", f"INSERT INTO k{at} VALUES {rows}")
        query = query_of(mysql_box, f"k{at}", columns=["n"])
        assert read_all(mysql_box, query, limit=1).column("n").to_pylist() == [0, 1, 2], kind


def test_values_of_every_length_of_the_protocol_come_whole(mysql_box: Sandbox) -> None:
    # A length takes 1, 3, 4 or 9 bytes, and a row beyond 16 MiB comes in several packets.
    lengths = [0, 1, 250, 251, 252, 255, 256, 65535, 65536, 2**24 - 20, 2**24 - 1, 2**24, 2**24 + 5]
    mysql_box.run(
        "SET GLOBAL max_allowed_packet = 67108864",
        "CREATE TABLE t (id int PRIMARY KEY, v longtext, b longblob)",
    )
    mysql_box.admin.dispose()
    for at, length in enumerate(lengths):
        mysql_box.run(f"INSERT INTO t VALUES ({at}, REPEAT('x', {length}), REPEAT('y', {min(length, 300)}))")
    mysql_box.run("INSERT INTO t VALUES (99, NULL, NULL)")
    rows = read_all(mysql_box, query_of(mysql_box), limit=4)
    assert pc.binary_length(rows.column("v")).to_pylist() == [*lengths, None]
    assert rows.column("b").to_pylist() == [*(b"y" * min(length, 300) for length in lengths), None]
    assert pc.all(pc.match_substring_regex(rows.column("v"), "^x*$")).as_py()


def test_a_statement_that_fails_leaves_the_reader_usable(mysql_box: Sandbox) -> None:
    mysql_box.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    query = query_of(mysql_box)
    with PageReader(mysql_box.source, query) as reader:
        mysql_box.run("ALTER TABLE t RENAME COLUMN v TO w")
        with pytest.raises(SourceChangedError):
            reader.page(None, 5)
        mysql_box.run("ALTER TABLE t RENAME COLUMN w TO v")
        assert reader.page(None, 5).rows.num_rows == 2
