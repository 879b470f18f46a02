"""Every type of PostgreSQL, read by ADBC: (declared type, inserted literal, expected Arrow type, expected value)."""

from datetime import UTC as Z
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.extract.errors import StatementRefusedError, UnmappableColumnError, ValueNotKeptError
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox
from tests.extract.reading import query_of, read_all

pytestmark = pytest.mark.server

UTC, LOCAL, TEXT = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string()
NINES = "9999999999999999999999999999.9999999999"
TYPES = [
    "CREATE TYPE mood AS ENUM ('good', 'bad''ly')",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN small AS int4 CHECK (VALUE < 100)",
    "CREATE TYPE pair AS (a int, b text)",
]
KEPT: list[tuple[str, str, pa.DataType, Any]] = [
    ("int2", "-32768", pa.int16(), -32768),
    ("int4", "2147483647", pa.int32(), 2**31 - 1),
    ("int8", "-9223372036854775808", pa.int64(), -(2**63)),
    ("float4", "0.1", pa.float32(), 0.10000000149011612),
    ("float8", "0.1", pa.float64(), 0.1),
    ("float8", "'-Infinity'", pa.float64(), float("-inf")),
    ("float8", "5e-324", pa.float64(), 5e-324),
    ("bool", "true", pa.bool_(), True),
    ("text", "'ünï\u2603 ''q'' \\'", TEXT, "ünï\u2603 'q' \\"),
    ("varchar(3)", "''", TEXT, ""),
    ("char(5)", "'ab'", TEXT, "ab   "),
    ("name", "'n'", TEXT, "n"),
    ('"char"', "'c'", TEXT, "c"),
    ("bytea", "'\\x00ff'", pa.binary(), b"\x00\xff"),
    ("date", "'0001-01-01'", pa.date32(), date.min),
    ("date", "'9999-12-31'", pa.date32(), date.max),
    ("timestamp", "'0001-01-01'", LOCAL, datetime.min),  # noqa: DTZ901 - without zone is what it is about
    ("timestamp", "'9999-12-31 23:59:59.999999'", LOCAL, datetime.max),  # noqa: DTZ901
    ("timestamp(0)", "'2026-03-29 02:30:00'", LOCAL, datetime(2026, 3, 29, 2, 30)),  # noqa: DTZ001
    ("timestamptz", "'2026-03-29 02:30:00.000001+02'", UTC, datetime(2026, 3, 29, 0, 30, 0, 1, Z)),
    ("timestamptz", "'9999-12-31 23:59:59.999999+00'", UTC, datetime.max.replace(tzinfo=Z)),
    ("numeric(12,2)", "1.10", pa.decimal128(12, 2), Decimal("1.10")),
    ("numeric(38,10)", NINES, pa.decimal128(38, 10), Decimal(NINES)),
    ("numeric(38,10)", f"-{NINES}", pa.decimal128(38, 10), Decimal(f"-{NINES}")),
    ("numeric(38,38)", "0." + "9" * 38, pa.decimal128(38, 38), Decimal("0." + "9" * 38)),
    ("numeric(38,0)", "-" + "9" * 38, pa.decimal128(38, 0), Decimal("-" + "9" * 38)),
    ("numeric(2,-3)", "99000", pa.decimal128(5, 0), Decimal(99000)),
    ("numeric(3,5)", "0.00999", pa.decimal128(5, 5), Decimal("0.00999")),
    ("numeric(60,20)", "1" * 40 + ".5", TEXT, "1" * 40 + "." + "5".ljust(20, "0")),
    ("numeric(39,0)", "'NaN'", TEXT, "NaN"),
    ("numeric", "1e-20", TEXT, "0.00000000000000000001"),
    ("numeric", "'Infinity'", TEXT, "Infinity"),
    ("price", "3.5", pa.decimal128(10, 2), Decimal("3.50")),
    ("small", "7", pa.int32(), 7),
    ("mood", "'bad''ly'", TEXT, "bad'ly"),
    ("interval", "'1 year -2 mons 3 days 04:05:06.789'", TEXT, "P10M3DT4H5M6.789S"),
    ("interval", "'-1 day +1 hour'", TEXT, "P-1DT1H"),
    ("time", "'24:00'", TEXT, "24:00:00"),
    ("time(3)", "'10:00:00.123'", TEXT, "10:00:00.123"),
    ("timetz", "'10:00+05:30'", TEXT, "10:00:00+05:30"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", TEXT, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", """'{"b": 1.10, "a":1,"a":2}'""", TEXT, '{"b": 1.10, "a":1,"a":2}'),
    ("jsonb", """'{"b": 1.10, "a":1}'""", TEXT, '{"a": 1, "b": 1.10}'),
    ("jsonb", "'null'", TEXT, "null"),
    ("inet", "'192.168.0.1'", TEXT, "192.168.0.1"),
    ("inet", "'10.0.0.0/8'", TEXT, "10.0.0.0/8"),
    ("cidr", "'10.0.0.0/8'", TEXT, "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", TEXT, "08:00:2b:01:02:03"),
    ("int4range", "'[1,5)'", TEXT, "[1,5)"),
    ("tstzrange", "'[2026-01-01 00:00+00,)'", TEXT, '["2026-01-01 00:00:00+00",)'),
    ("int4multirange", "'{[1,3),[5,7)}'", TEXT, "{[1,3),[5,7)}"),
    ("bit(4)", "B'0101'", TEXT, "0101"),
    ("varbit", "B'1'", TEXT, "1"),
    ("money", "'-1234.50'", TEXT, "-1234.50"),
    ("point", "'(0.1,2)'", TEXT, "(0.1,2)"),
    ("tsvector", "'a b'", TEXT, "'a' 'b'"),
    ("oid", "4294967295", pa.int64(), 2**32 - 1),
    ("pg_lsn", "'16/B374D848'", TEXT, "16/B374D848"),
    ("int4[]", "'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3]),
    ("int4[]", "'{}'", pa.list_(pa.int32()), []),
    ("int4[]", "'{NULL}'", pa.list_(pa.int32()), [None]),
    ("text[]", """'{"a,b",NULL,"\\""}'""", pa.list_(TEXT), ["a,b", None, '"']),
    ("bool[]", "'{t,f}'", pa.list_(pa.bool_()), [True, False]),
    ("bytea[]", "ARRAY['\\x00'::bytea]", pa.list_(pa.binary()), [b"\x00"]),
    ("float8[]", "'{0.1,-inf}'", pa.list_(pa.float64()), [0.1, float("-inf")]),
    ("numeric(9,2)[]", "'{1.10,NULL}'", pa.list_(pa.decimal128(9, 2)), [Decimal("1.10"), None]),
    ("numeric[]", "'{1.10,NaN}'", pa.list_(TEXT), ["1.10", "NaN"]),
    ("timestamptz[]", "'{2026-01-01 00:00+00}'", pa.list_(UTC), [datetime(2026, 1, 1, tzinfo=Z)]),
    ("date[]", "'{2026-01-01}'", pa.list_(pa.date32()), [date(2026, 1, 1)]),
    ("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", pa.list_(TEXT), ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("jsonb[]", "ARRAY['1.10'::jsonb]", pa.list_(TEXT), ["1.10"]),
    ("mood[]", "'{good}'", pa.list_(TEXT), ["good"]),
    ("small[]", "'{7}'", pa.list_(pa.int32()), [7]),
    ("price[]", "'{3.5}'", pa.list_(pa.decimal128(10, 2)), [Decimal("3.50")]),
    ("inet[]", "'{10.0.0.1,NULL}'", pa.list_(TEXT), ["10.0.0.1", None]),
    ("money[]", "'{1.50}'", pa.list_(TEXT), ["1.50"]),
    ("interval[]", "'{1 day}'", pa.list_(TEXT), ["P1D"]),
    ("char(3)[]", "'{a}'", pa.list_(TEXT), ["a  "]),
    ("oid[]", "'{4294967295}'", pa.list_(pa.int64()), [2**32 - 1]),
]


def fill(box: Sandbox, columns: list[tuple[str, str]]) -> None:
    """Make a table `t` with a row of the given values, and one of NULLs."""
    names = [f"c{at}" for at in range(len(columns))]
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, columns, strict=True))
    box.run(
        *TYPES,
        f"CREATE TABLE t (id int PRIMARY KEY, {declared})",
        f"INSERT INTO t VALUES (1, {', '.join(literal for _, literal in columns)})",
        "INSERT INTO t (id) VALUES (2)",
    )


def test_every_type_keeps_its_values_exactly(postgres_box: Sandbox) -> None:
    fill(postgres_box, [(kind, literal) for kind, literal, _, _ in KEPT])
    rows = read_all(postgres_box, query_of(postgres_box))
    assert rows.schema.types[1:] == [kind for _, _, kind, _ in KEPT]
    found = rows.to_pylist()
    assert list(found[0].values())[1:] == [value for _, _, _, value in KEPT]
    assert set(list(found[1].values())[1:]) == {None}
    rows.validate(full=True)


def test_an_override_to_string_gives_the_databases_own_text(postgres_box: Sandbox) -> None:
    columns = [
        ("timestamptz", "'infinity'", "infinity"),
        ("timestamp", "'-infinity'", "-infinity"),
        ("date", "'4000-01-01 BC'", "4000-01-01 BC"),
        ("numeric(5,2)", "'NaN'", "NaN"),
        ("int4[]", "'{{1,2},{3,4}}'", "{{1,2},{3,4}}"),
        ("int4[]", "'[5:6]={7,8}'", "[5:6]={7,8}"),
        ("pair", "ROW(1, 'x')", "(1,x)"),
        ("bool", "true", "true"),
        ("char(5)", "'ab'", "ab   "),
        ("bytea", "'\\x00ff'", "\\x00ff"),
        ("float8", "0.1", "0.1"),
    ]
    fill(postgres_box, [(kind, literal) for kind, literal, _ in columns])
    query = query_of(postgres_box, overrides={f"c{at}": "string" for at in range(len(columns))})
    row = read_all(postgres_box, query).to_pylist()[0]
    assert list(row.values())[1:] == [text for _, _, text in columns]


@pytest.mark.parametrize(
    ("declared", "literal", "override"),
    [
        ("timestamptz", "'infinity'", None),
        ("timestamptz", "'-infinity'", None),
        ("timestamp", "'infinity'", None),
        ("timestamp", "'-infinity'", None),
        ("date", "'infinity'", None),
        ("date", "'-infinity'", None),
        ("timestamp", "'4000-01-01 BC'", None),
        ("timestamp", "'10000-01-01'", None),
        ("timestamp", "'0001-12-31 23:59:59.999999 BC'", None),
        ("date", "'0001-12-31 BC'", None),
        ("numeric(5,2)", "'NaN'", None),
        ("int4[]", "'{{1,2},{3,4}}'", None),
        ("int4[]", "'[5:6]={7,8}'", None),
        ("timestamptz[]", "'{infinity}'", None),
        ("numeric(5,2)[]", "'{NaN}'", None),
        ("numeric", "1.234", "decimal(10,2)"),
        ("numeric", "9" * 39, "decimal(38,0)"),
        ("numeric", "1e70", "decimal(38,0)"),
        ("numeric", "1e200", "decimal(38,0)"),
        ("numeric", "'Infinity'", "decimal(38,0)"),
        ("int8", "2147483648", "int"),
        ("int8", "9007199254740993", "double"),
        ("int4", "2", "boolean"),
        ("text", "'x'", "bigint"),
        ("text", "'x'", "timestamp"),
    ],
)
def test_a_value_that_cannot_be_kept_names_its_column_and_the_way_out(
    shared_postgres_box: Sandbox, declared: str, literal: str, override: str | None
) -> None:
    shared_postgres_box.run(
        "DROP TABLE IF EXISTS bad", f"CREATE TABLE bad (id int PRIMARY KEY, c {declared})",
        f"INSERT INTO bad VALUES (1, NULL), (2, {literal})",
    )  # fmt: skip
    query = query_of(shared_postgres_box, "bad", overrides={"c": override} if override else {})
    with pytest.raises(ValueNotKeptError, match=r"column c .*`types: \{c: string\}`.*`exclude: \[c\]`") as caught:
        read_all(shared_postgres_box, query)
    assert caught.value.column == "c"


@pytest.mark.parametrize(
    ("declared", "literal", "override", "expected"),
    [
        ("numeric", "12.50", "decimal(10,2)", Decimal("12.50")),
        ("numeric", "9" * 38, "decimal(38,0)", Decimal("9" * 38)),
        ("numeric", "1." + "0" * 50, "decimal(38,0)", Decimal(1)),
        ("numeric(10,2)", "1.25", "double", 1.25),
        ("float8", "0.1", "decimal(5,1)", Decimal("0.1")),
        ("float8", "1e20", "decimal(21,0)", Decimal(10**20)),
        ("int2", "5", "bigint", 5),
        ("int8", "5", "decimal(20,2)", Decimal("5.00")),
        ("bool", "true", "int", 1),
        ("int4", "1", "boolean", True),
        ("text", "'2026-01-02'", "date", date(2026, 1, 2)),
        ("text", "'2026-01-02T03:04:05Z'", "timestamp", datetime(2026, 1, 2, 3, 4, 5, tzinfo=Z)),
        ("text", "'x'", "binary", b"x"),
        ("timestamp", "'2026-01-02'", "timestamp", datetime(2026, 1, 2, tzinfo=Z)),
        ("date", "'2026-01-02'", "timestamp", datetime(2026, 1, 2, tzinfo=Z)),
    ],
)
def test_an_override_changes_the_type_where_the_value_allows_it(
    shared_postgres_box: Sandbox, declared: str, literal: str, override: str, expected: Any
) -> None:
    shared_postgres_box.run(
        "DROP TABLE IF EXISTS good", f"CREATE TABLE good (id int PRIMARY KEY, c {declared})",
        f"INSERT INTO good VALUES (1, {literal})",
    )  # fmt: skip
    query = query_of(shared_postgres_box, "good", overrides={"c": override})
    assert read_all(shared_postgres_box, query).column("c").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("declared", "override"),
    [
        ("bytea", "int"),
        ("int4[]", "bigint"),
        ("timestamp", "date"),
        ("int4", "decimal(39,0)"),
        ("int4", "decimal(2,3)"),
        ("int4", "integer"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(shared_postgres_box: Sandbox, declared: str, override: str) -> None:
    shared_postgres_box.run("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (id int PRIMARY KEY, c {declared})")
    with pytest.raises(InvalidValueError):
        query_of(shared_postgres_box, "odd", overrides={"c": override})


def test_a_composite_column_names_itself_and_the_choices(postgres_box: Sandbox) -> None:
    postgres_box.run(*TYPES, "CREATE TABLE t (id int PRIMARY KEY, c pair, d pair[])")
    with pytest.raises(UnmappableColumnError, match=r"column c .*type pair.*types: \{c: string\}.*exclude: \[c\]"):
        query_of(postgres_box)
    with pytest.raises(UnmappableColumnError, match="column d"):
        query_of(postgres_box, exclude=["c"])
    assert [each.name for each in query_of(postgres_box, exclude=["c", "d"]).columns] == ["id"]


def test_what_is_kept_as_text_says_so_in_the_schema(postgres_box: Sandbox) -> None:
    postgres_box.run("CREATE TABLE t (id int PRIMARY KEY, c numeric(50,2))")
    schema = query_of(postgres_box).schema
    assert schema.field("c").metadata == {b"note": b"numeric(50,2) may have more than 38 digits: kept as text"}


def test_a_text_that_is_no_utf8_is_refused_by_the_server(postgres_server_url: str) -> None:
    from tests.extract.conftest import sandbox
    from tests.servers import create_database

    url = create_database(postgres_server_url, "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    # Without the option psycopg would take all texts of such a database for bytes.
    box = sandbox("ascii", url.replace("postgresql://", "postgresql+psycopg://", 1) + "&client_encoding=utf8")
    box.run("CREATE TABLE t (id int PRIMARY KEY, c text)", "INSERT INTO t VALUES (1, 'ok')")
    assert read_all(box, query_of(box)).num_rows == 1
    box.run(r"INSERT INTO t VALUES (2, E'\xff')")
    with pytest.raises(StatementRefusedError, match="invalid byte sequence"):
        read_all(box, query_of(box))
    box.admin.dispose()
