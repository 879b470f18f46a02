"""Values written into statements: the database reads back what was meant, and nothing ends a literal early."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.extract.conditions import OPERATORS, Condition, conditions_sql
from dw_platform.extract.keyset import OrderColumn, branches
from dw_platform.extract.notation import InvalidPositionError, notation_of
from dw_platform.extract.source import open_engine
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox

Ask = Callable[[str], Any]
SHARED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ("postgresql", "mysql", "sqlite")
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
TEXTS = st.text(CHARACTERS) | st.text(st.sampled_from("'\\\"`%:;-/*\n$?_XxE0\u2019")) | st.just("\\'; DROP TABLE t; --")


@pytest.fixture
def ask(box: Sandbox) -> Iterator[Ask]:
    engine = open_engine(box.source)
    with engine.connect() as connection:

        def asked(expression: str) -> Any:
            options = {"no_parameters": True}
            return connection.exec_driver_sql(f"SELECT {expression}", execution_options=options).scalar_one()

        yield asked
    engine.dispose()


def written(kind: str, value: Any) -> str:
    notation = notation_of(kind)
    text = notation.text_of((value,))
    assert text is not None
    return notation.literal(text)


@given(text=TEXTS)
@SHARED
def test_text_arrives_as_it_is(box: Sandbox, ask: Ask, text: str) -> None:
    assert ask(written(box.kind, text)) == text


@given(number=st.floats(allow_nan=False, allow_infinity=False))
@SHARED
def test_a_float_arrives_to_the_last_bit(box: Sandbox, ask: Ask, number: float) -> None:
    target = {"postgresql": "CAST({} AS float8)", "mysql": "{}", "sqlite": "{}"}[box.kind]
    found = ask(target.format(written(box.kind, number)))
    assert found == number
    assert ask(f"{target.format(written(box.kind, number))} = {target.format(written(box.kind, found))}")


@given(raw=st.binary(max_size=200))
@SHARED
def test_bytes_arrive_as_they_are(box: Sandbox, ask: Ask, raw: bytes) -> None:
    target = "CAST({} AS bytea)" if box.kind == "postgresql" else "{}"
    assert bytes(ask(target.format(written(box.kind, raw)))) == raw


@given(number=st.integers(-(2**63), 2**63 - 1))
@SHARED
def test_a_whole_number_arrives_exactly(box: Sandbox, ask: Ask, number: int) -> None:
    target = "CAST({} AS bigint)" if box.kind == "postgresql" else "{}"
    assert ask(target.format(written(box.kind, number))) == number


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters()) | st.from_regex(r"[nfsxdmtirb]:.*", fullmatch=True))
def test_a_position_is_written_safely_or_refused(kind: str, text: str) -> None:
    try:
        literal = notation_of(kind).literal(text)
    except InvalidPositionError:
        return
    # What is left without the quoted parts is made of harmless characters, so no part of the text got out.
    outside = "".join(literal.replace("\\\\", "").replace("''", "").split("'")[::2])
    assert set(outside) <= set("E_utf8mbXDATEIMSPCR(+-*/.) 0123456789eL") | set("CAST AS REAL TEXT"), literal


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("postgresql", "a\0b"),
        ("postgresql", "\ud800"),
        ("mysql", "5"),
        ("mysql", "n:5; DROP TABLE t"),
        ("mysql", "n:0x41"),
        ("mysql", "f:1.5"),
        ("mysql", "x:4"),
        ("mysql", "d:2024-01-01' OR '1"),
        ("mysql", "s:\ud800"),
        ("sqlite", "5"),
        ("sqlite", "i:99999999999999999999"),
        ("sqlite", "i:5 OR 1"),
        ("sqlite", "r:nan"),
        ("sqlite", "r:1e999999x"),
        ("sqlite", "b:4"),
        ("sqlite", "q:1"),
    ],
)
def test_a_text_that_is_no_position_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidPositionError, match="Start again"):
        notation_of(kind).literal(text)


def test_a_position_of_another_key_is_refused() -> None:
    order = [OrderColumn("a"), OrderColumn("b")]
    for after, upto in ((("1",), None), (None, ("1", "2", "3"))):
        with pytest.raises(InvalidPositionError, match="the key has 2 columns"):
            branches(order, after, upto, notation=notation_of("postgresql"), quote=str)
    with pytest.raises(InvalidValueError):
        branches([], None, None, notation=notation_of("postgresql"), quote=str)
    with pytest.raises(InvalidValueError, match="postgresql, mysql, sqlite"):
        notation_of("oracle")


def test_an_infinite_double_is_no_value_of_mysql() -> None:
    with pytest.raises(InvalidPositionError):
        notation_of("mysql").text_of((math.inf,))


# What Python values a filter may have: (value, type to compare in, on which databases).
VALUES: list[tuple[Any, dict[str, str]]] = [
    (True, {"postgresql": "boolean", "mysql": "signed"}),
    (Decimal("12345678901234567890.123"), {"postgresql": "numeric", "mysql": "decimal(30,3)"}),
    (Decimal("-0.5"), {"postgresql": "numeric", "mysql": "decimal(30,3)", "sqlite": "REAL"}),
    (Decimal(7), {"sqlite": "INTEGER"}),
    (date(2024, 2, 29), {"postgresql": "date", "mysql": "date", "sqlite": "TEXT"}),
    (datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), {"postgresql": "timestamptz", "mysql": "datetime(6)"}),
    (timedelta(days=-1, seconds=5, microseconds=7), {"postgresql": "interval", "mysql": "time(6)"}),
]


def test_values_of_filters_are_compared_as_what_they_are(box: Sandbox, ask: Ask) -> None:
    notation = notation_of(box.kind)
    for value, types in VALUES:
        if box.kind in types:
            literal = written(box.kind, value)
            condition = Condition("x", "=", value)
            where = conditions_sql([condition], notation=notation, quote=lambda name: f"q.{name}")
            origin = f"(SELECT CAST({literal} AS {types[box.kind]}) AS x) AS q"
            assert ask(f"count(*) FROM {origin} WHERE {where}") == 1, value


@pytest.mark.parametrize(
    ("op", "value"),
    [("like", "x"), ("=", None), ("=", [1]), ("in", "text"), ("in", 5), ("in", [1, None]), ("is_null", 1)],
)
def test_a_condition_that_makes_no_sense_is_refused(op: str, value: Any) -> None:
    with pytest.raises(InvalidValueError):
        Condition("a", op, value)


def test_conditions_are_joined_and_none_of_none_is_never_true() -> None:
    def sql(*conditions: Condition, **options: Any) -> str:
        return conditions_sql(conditions, notation=notation_of("mysql"), quote=lambda name: f"`{name}`", **options)

    assert sql() == ""
    assert sql(Condition("a", "=", 1), Condition("b", "is_null")) == "`a` = 1 AND `b` IS NULL"
    assert sql(Condition("a", "in", ())) == "1 = 0"
    assert sql(Condition("a", "<", "5"), numbers=frozenset({"a"})) == "`a` < 5"
    for bad in ("five", "NaN", "inf"):
        with pytest.raises(InvalidValueError, match="number"):
            sql(Condition("a", "<", bad), numbers=frozenset({"a"}))
    assert len(set(OPERATORS)) == 9
