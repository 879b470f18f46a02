import pickle
from typing import Any

import pytest
from sqlalchemy import Engine

from dw_platform.extract.description import ColumnKind, SourceTable, UniqueKey, describe_table, quote_name
from dw_platform.extract.errors import UnknownSourceColumnError, UnknownSourceTableError
from dw_platform.extract.source import open_engine
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox

ODD_NAMES = [
    "order", '"', "`", "two words", "100%", "%s", ":x", "back\\slash", "'; DROP TABLE x; --", "dotted.name", "Größe",
    "{brace}", "?", "$1", "tab\there",
]  # fmt: skip


def described(box: Sandbox, text: str) -> SourceTable:
    engine = open_engine(box.source)
    try:
        with engine.connect() as connection:
            return describe_table(connection, box.source, text)
    finally:
        engine.dispose()


def table_of(types: list[str]) -> str:
    return f"CREATE TABLE t ({', '.join(f'c{at} {declared}' for at, declared in enumerate(types))})"


def test_columns_come_in_their_order_with_type_and_nullability(box: Sandbox) -> None:
    box.run("CREATE TABLE t (b varchar(20) NOT NULL, a int, c decimal(12,3), PRIMARY KEY (b))")
    table = described(box, "t")
    assert [(column.name, column.nullable) for column in table.columns] == [("b", False), ("a", True), ("c", True)]
    assert (table.column("c").kind.precision, table.column("c").kind.scale) == (12, 3)
    assert table.keys == (UniqueKey(("b",), primary=True),)
    assert not table.is_view


def test_any_name_is_a_name_and_never_sql(box: Sandbox) -> None:
    box.run("CREATE TABLE x (a int)")
    for name in ODD_NAMES:
        quoted = quote_name(box.source.kind, name)
        box.run(f"CREATE TABLE {quoted} ({quoted} int PRIMARY KEY)")
        table = described(box, name)
        assert (table.name, table.columns[0].name, table.keys[0].columns) == (name, name, (name,))
        assert (table.quote(name), table.quoted().endswith(quoted)) == (quoted, True)
    assert described(box, "x").columns[0].name == "a"


def test_an_unknown_table_names_those_that_are_similar(box: Sandbox) -> None:
    box.run("CREATE TABLE customers (a int)")
    with pytest.raises(UnknownSourceTableError, match="Similar: customers") as caught:
        described(box, "customer")
    assert caught.value.similar == ("customers",)


def test_what_names_no_table_is_refused(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int)")
    for name in ["", "no\0where", ".", "a.", ".a", "a..b", "x' OR '1'='1", "public.nope", "nope.t"]:
        with pytest.raises(UnknownSourceTableError):
            described(box, name)


def test_a_missing_column_is_named_with_those_that_exist(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int, b int)")
    with pytest.raises(UnknownSourceColumnError, match=r"'c'\. It has: a, b"):
        described(box, "t").column("c")


def test_a_view_has_columns_and_no_key(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int PRIMARY KEY)", "CREATE VIEW v AS SELECT a FROM t")
    view = described(box, "v")
    assert (view.is_view, view.keys, [column.name for column in view.columns]) == (True, (), ["a"])


def test_unique_indexes_come_after_the_primary_key_and_nullable_ones_last(box: Sandbox) -> None:
    box.run(
        "CREATE TABLE t (a int NOT NULL PRIMARY KEY, b int NOT NULL, c int, d int NOT NULL)",
        "CREATE UNIQUE INDEX by_c ON t (c)",
        "CREATE UNIQUE INDEX by_b_d ON t (b, d)",
        "CREATE UNIQUE INDEX by_d ON t (d)",
        "CREATE INDEX plain ON t (b)",
    )
    assert [key.columns for key in described(box, "t").keys] == [("a",), ("d",), ("b", "d"), ("c",)]
    assert [key.nullable for key in described(box, "t").keys] == [False, False, False, True]


def test_the_fingerprint_follows_the_columns_alone(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int PRIMARY KEY, b int)")
    before = described(box, "t")
    box.run("CREATE INDEX i ON t (b)")
    assert described(box, "t").fingerprint == before.fingerprint
    box.run("ALTER TABLE t ADD COLUMN c int")
    assert described(box, "t").fingerprint != before.fingerprint


def test_a_description_survives_pickling(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int PRIMARY KEY)")
    table = described(box, "t")
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_cannot_be_a_name_is_not_quoted(name: str) -> None:
    with pytest.raises(InvalidValueError):
        quote_name("sqlite", name)


@pytest.mark.server
class TestPostgres:
    def test_a_schema_may_be_written_in_front(self, postgres_box: Sandbox) -> None:
        postgres_box.run("CREATE SCHEMA s", "CREATE TABLE s.t (a int)", "CREATE TABLE t (b int)")
        assert described(postgres_box, "s.t").columns[0].name == "a"
        assert described(postgres_box, "t").columns[0].name == "b"
        assert described(postgres_box, "s.t").quoted() == '"s"."t"'

    def test_the_whole_text_wins_over_schema_and_name(self, postgres_box: Sandbox) -> None:
        postgres_box.run("CREATE SCHEMA s", "CREATE TABLE s.t (a int)", 'CREATE TABLE "s.t" (b int)')
        assert described(postgres_box, "s.t").columns[0].name == "b"

    def test_types_are_followed_to_what_they_are_made_of(self, postgres_box: Sandbox) -> None:
        expected = [
            ("numeric(12,2)", ColumnKind("numeric", precision=12, scale=2)),
            ("numeric(3,5)", ColumnKind("numeric", precision=3, scale=5)),
            ("numeric(2,-3)", ColumnKind("numeric", precision=2, scale=-3)),
            ("numeric", ColumnKind("numeric")),
            ("numeric(1000,1000)", ColumnKind("numeric", precision=1000, scale=1000)),
            ("numeric(9,1)[]", ColumnKind("_numeric", "array", element=ColumnKind("numeric", precision=9, scale=1))),
            ("money4", ColumnKind("numeric", precision=19, scale=4)),
            ("money4s", ColumnKind("numeric", precision=19, scale=4)),
            ("mood", ColumnKind("public.mood", "enum")),
            ("mood[]", ColumnKind("_mood", "array", element=ColumnKind("public.mood", "enum"))),
            ("pair", ColumnKind("public.pair", "composite")),
            ("int4range", ColumnKind("int4range", "range")),
            ("int4multirange", ColumnKind("int4multirange", "range")),
            ("timestamptz(3)", ColumnKind("timestamptz")),
            ("name", ColumnKind("name")),
            ("point", ColumnKind("point")),
        ]
        postgres_box.run(
            "CREATE DOMAIN money4 AS numeric(19,4)",
            "CREATE DOMAIN money4s AS money4 CHECK (VALUE > 0)",
            "CREATE TYPE mood AS ENUM ('good', 'bad')",
            "CREATE TYPE pair AS (a int, b int)",
            table_of([declared for declared, _ in expected]),
        )
        assert [column.kind for column in described(postgres_box, "t").columns] == [kind for _, kind in expected]

    def test_partial_expression_and_invalid_indexes_prove_nothing(self, postgres_box: Sandbox) -> None:
        postgres_box.run(
            "CREATE TABLE t (a int NOT NULL, b text NOT NULL, c int)",
            "CREATE UNIQUE INDEX ON t (a) WHERE a > 0",
            "CREATE UNIQUE INDEX ON t (lower(b))",
            "CREATE UNIQUE INDEX ON t (b) INCLUDE (c)",
        )
        assert [key.columns for key in described(postgres_box, "t").keys] == [("b",)]

    def test_dropped_columns_are_gone(self, postgres_box: Sandbox) -> None:
        postgres_box.run("CREATE TABLE t (a int, b int, c int)", "ALTER TABLE t DROP COLUMN b")
        assert [column.name for column in described(postgres_box, "t").columns] == ["a", "c"]

    def test_a_key_of_a_parent_does_not_hold_for_tables_that_inherit(self, postgres_box: Sandbox) -> None:
        postgres_box.run("CREATE TABLE t (a int PRIMARY KEY)", "CREATE TABLE u () INHERITS (t)")
        assert (described(postgres_box, "t").keys, described(postgres_box, "t").is_view) == ((), True)

    def test_partitioned_tables_and_materialised_views_have_their_keys(self, postgres_box: Sandbox) -> None:
        postgres_box.run(
            "CREATE TABLE t (a int PRIMARY KEY) PARTITION BY RANGE (a)",
            "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
            "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
            "CREATE UNIQUE INDEX ON m (a)",
        )
        assert described(postgres_box, "t").keys == (UniqueKey(("a",), primary=True),)
        assert described(postgres_box, "m").keys == (UniqueKey(("a",), nullable=True),)


@pytest.mark.server
class TestMysql:
    def test_types_are_taken_apart(self, mysql_box: Sandbox) -> None:
        expected = [
            ("bigint unsigned", ColumnKind("bigint", precision=20, scale=0, unsigned=True)),
            ("int(5) unsigned zerofill", ColumnKind("int", precision=10, scale=0, unsigned=True)),
            ("enum('unsigned','b')", ColumnKind("enum", text=True)),
            ("decimal(40,2)", ColumnKind("decimal", precision=40, scale=2)),
            ("varchar(10)", ColumnKind("varchar", text=True)),
            ("varbinary(10)", ColumnKind("varbinary")),
        ]
        mysql_box.run(table_of([declared for declared, _ in expected]))
        assert [column.kind for column in described(mysql_box, "t").columns] == [kind for _, kind in expected]

    def test_a_unique_prefix_is_no_key(self, mysql_box: Sandbox) -> None:
        mysql_box.run("CREATE TABLE t (a varchar(50) NOT NULL, UNIQUE (a(5)))")
        assert described(mysql_box, "t").keys == ()

    def test_another_database_may_be_written_in_front(self, mysql_box: Sandbox) -> None:
        assert described(mysql_box, "mysql.proc").schema == "mysql"


class TestSqlite:
    @pytest.mark.parametrize(
        ("declared", "expected"),
        [
            ("INTEGER", ColumnKind("INTEGER")),
            ("varchar ( 20 )", ColumnKind("VARCHAR", precision=20, scale=0)),
            ("decimal(10, 2)", ColumnKind("DECIMAL", precision=10, scale=2)),
            ("unsigned  big int", ColumnKind("UNSIGNED BIG INT")),
            ("", ColumnKind("")),
        ],
    )
    def test_declared_types_are_taken_apart(self, sqlite_box: Sandbox, declared: str, expected: ColumnKind) -> None:
        sqlite_box.run(f"CREATE TABLE t (c {declared})")
        assert described(sqlite_box, "t").columns[0].kind == expected

    @pytest.mark.parametrize(
        ("columns", "options", "expected"),
        [
            ("a INTEGER PRIMARY KEY", "", UniqueKey(("a",), primary=True)),
            ("a TEXT PRIMARY KEY", "", UniqueKey(("a",), primary=True, nullable=True)),
            ("a TEXT PRIMARY KEY", "WITHOUT ROWID", UniqueKey(("a",), primary=True)),
            ("a INTEGER PRIMARY KEY DESC", "", UniqueKey(("a",), primary=True, nullable=True)),
            ("a INT, b INT, PRIMARY KEY (b, a)", "WITHOUT ROWID", UniqueKey(("b", "a"), primary=True)),
            ("a TEXT NOT NULL COLLATE NOCASE UNIQUE", "", UniqueKey(("a",))),
            ("a TEXT NOT NULL COLLATE NOCASE, UNIQUE (a COLLATE BINARY)", "", None),
            ("a TEXT NOT NULL COLLATE RTRIM UNIQUE", "", UniqueKey(("a",))),
        ],
    )
    def test_keys_are_those_that_the_columns_own_comparison_keeps(
        self, sqlite_box: Sandbox, columns: str, options: str, expected: Any
    ) -> None:
        sqlite_box.run(f"CREATE TABLE t ({columns}) {options}")
        assert described(sqlite_box, "t").keys == ((expected,) if expected else ())

    def test_names_are_found_whatever_their_case(self, sqlite_box: Sandbox) -> None:
        sqlite_box.run("CREATE TABLE Orders (a INT)")
        assert described(sqlite_box, "main.orders").name == "Orders"


def test_an_engine_describes_without_holding_a_transaction(box: Sandbox, engine: Engine) -> None:
    box.run("CREATE TABLE t (a int PRIMARY KEY)")
    with engine.connect() as connection:
        assert describe_table(connection, box.source, "t").name == "t"
    box.run("DROP TABLE t")
