"""Pages of tables, views and queries through the manager, on each database."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.extract.conditions import Condition
from dw_platform.extract.errors import (
    NoKeyError,
    NullInKeyError,
    StatementRefusedError,
    UnknownSourceColumnError,
    UnknownSourceTableError,
)
from dw_platform.extract.key_column import OrderColumn
from dw_platform.foundation import InvalidValueError
from tests.extract.conftest import Sandbox
from tests.extract.paging import all_pages, column, managed

TEXT = {"sqlite": "TEXT", "postgresql": "text", "mysql": "varchar(40)"}


def fill(box: Sandbox, values: list[Any]) -> None:
    box.run(f"CREATE TABLE t (id integer NOT NULL PRIMARY KEY, word {TEXT[box.kind]})")
    box.insert("t", [(number, value) for number, value in enumerate(values, 1)])


def test_the_last_page_says_that_it_is_the_last(box: Sandbox) -> None:
    cases = [(0, 5, [0]), (1, 5, [1]), (3, 3, [3]), (4, 3, [3, 1]), (6, 3, [3, 3]), (3, 1, [1, 1, 1]), (3, 1000, [3])]
    with managed(box) as manager:
        for rows, size, lengths in cases:
            box.run("DROP TABLE IF EXISTS t")
            fill(box, ["x"] * rows)
            pages = all_pages(manager, box.source.name, [size], table="t")
            assert [len(page.items) for page in pages] == lengths
            assert column(pages, "id") == list(range(1, rows + 1))
            assert {page.method for page in pages} == {"keyset"}


def test_an_order_that_repeats_is_made_total_by_the_key(box: Sandbox) -> None:
    fill(box, ["b", None, "a", "b", "a", None, "b"])
    with managed(box) as manager:
        for order in (["word"], ["-word"], ["word", "-id"], [OrderColumn("word", nulls_first=True)], ["-id", "word"]):
            pages = all_pages(manager, box.source.name, [2, 1, 3], table="t", order=order)
            assert sorted(column(pages, "id")) == list(range(1, 8))
        descending = all_pages(manager, box.source.name, [2], table="t", order=["-word"])
    words = [word for word in column(descending, "word") if word is not None]
    assert words == sorted(words, reverse=True)
    assert [item["id"] for page in descending for item in page.items if item["word"] == "b"] == [7, 4, 1]


@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_of_any_size_and_filter_are_the_rows_that_fit(box: Sandbox, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | st.sampled_from(["", "a", "b", "it's", "%s", "back\\slash"]), max_size=12))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    order = data.draw(st.sampled_from([[], ["word"], ["-word"], ["-id"]]))
    op = data.draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null"]))
    limit = data.draw(st.sampled_from(["", "a", "it's", "%s", "back\\slash"]))
    where = Condition("word", op, None if "null" in op else (limit, "b") if op == "in" else limit)
    box.run("DROP TABLE IF EXISTS t")
    fill(box, values)
    with managed(box) as manager:
        found = all_pages(manager, box.source.name, sizes, table="t", order=order, where=[where], count="exact")
    fits = [number for number, value in enumerate(values, 1) if _fits(op, value, limit)]
    assert sorted(column(found, "id")) == fits
    assert {page.total_count for page in found} == {len(fits)}


def _fits(op: str, value: str | None, limit: str) -> bool:
    if "null" in op:
        return (value is None) == (op == "is_null")
    if value is None:
        return False
    # All of these words sort the same by code point and by the collations of the three.
    answers = {"=": value == limit, "!=": value != limit, "<": value < limit, "<=": value <= limit}
    return {**answers, ">": value > limit, ">=": value >= limit, "in": value in (limit, "b")}[op]


def test_the_total_is_taken_with_the_first_page(box: Sandbox) -> None:
    fill(box, ["x"] * 5)
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, table="t", page_size=2, count="exact")
        box.insert("t", [(6, "x")])
        second = manager.execute_paginated_query(
            box.source.name, table="t", page_size=2, count="exact", token=first.continuation_token
        )
        assert (first.total_count, second.total_count, second.total_is_estimate) == (5, 5, False)
        assert manager.execute_paginated_query(box.source.name, table="t").total_count is None
        estimate = manager.execute_paginated_query(box.source.name, table="t", count="estimate")
        assert estimate.total_count is not None


def test_the_end_is_fixed_with_the_first_page(box: Sandbox) -> None:
    fill(box, ["x"] * 4)
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, table="t", page_size=2)
        box.insert("t", [(number, "late") for number in range(5, 50)])
        rest = manager.execute_paginated_query(
            box.source.name, table="t", page_size=100, token=first.continuation_token
        )
    assert [item["id"] for item in rest.items] == [3, 4]
    assert not rest.has_more


def test_a_table_without_a_key_is_paged_by_offset_and_says_so(box: Sandbox) -> None:
    box.run("CREATE TABLE loose (n integer)")
    box.insert("loose", [(number,) for number in (3, 1, 2, 2, 1)])
    with managed(box) as manager:
        pages = all_pages(manager, box.source.name, [2], table="loose", order=["-n"])
        assert column(pages, "n") == [3, 2, 2, 1, 1]
        assert {page.method for page in pages} == {"offset"}
        with pytest.raises(NoKeyError):
            manager.execute_paginated_query(box.source.name, table="loose", key=["n"])


def test_a_view_is_paged_by_the_key_that_the_user_names(box: Sandbox) -> None:
    fill(box, ["a", "b", "c"])
    box.run("CREATE VIEW v AS SELECT id, word FROM t WHERE id <> 2")
    with managed(box) as manager:
        named = all_pages(manager, box.source.name, [1], table="v", key=["id"])
        assert (column(named, "id"), named[0].method) == ([1, 3], "keyset")
        assert all_pages(manager, box.source.name, [1], table="v", order=["id"])[0].method == "offset"


def test_a_query_with_a_key_is_paged_by_it(box: Sandbox) -> None:
    fill(box, ["a", "b", "a", "b", "c", None])
    query = "SELECT word, count(*) AS n FROM t WHERE word IS NULL OR word NOT LIKE 'z%' GROUP BY word -- all;"
    with managed(box) as manager:
        pages = all_pages(manager, box.source.name, [1, 2], query=query, key=["word"], count="exact")
        assert {page.method for page in pages} == {"keyset"}
        assert sorted((item["word"] or "", item["n"]) for page in pages for item in page.items) == [
            ("", 1), ("a", 2), ("b", 2), ("c", 1),
        ]  # fmt: skip
        assert pages[0].total_count == 4
        by_number = all_pages(
            manager, box.source.name, [1], query=query, key=["word"], order=["-n"], where=[Condition("n", ">", 1)]
        )
        assert sorted(column(by_number, "word")) == ["a", "b"]


def test_a_query_without_a_key_keeps_its_own_order(box: Sandbox) -> None:
    fill(box, ["a", "b", "c", "d", "e"])
    with managed(box) as manager:
        pages = all_pages(manager, box.source.name, [2], query="SELECT id FROM t ORDER BY word DESC;")
        assert column(pages, "id") == [5, 4, 3, 2, 1]
        assert {page.method for page in pages} == {"offset"}
        other = all_pages(manager, box.source.name, [2], query="SELECT id FROM t ORDER BY word DESC LIMIT 3")
        assert column(other, "id") == [5, 4, 3]


def test_names_are_never_taken_for_sql(box: Sandbox) -> None:
    names = ["order", 'quo"te', "back`tick", "per%cent", "co:lon", "x; DROP TABLE t --", "dot.ted", "-minus"]
    quoted = [box.quote(name).replace("%%", "%") for name in names]
    box.run(
        f"CREATE TABLE {quoted[5]} ({', '.join(f'{name} integer' for name in quoted)}, "
        f"PRIMARY KEY ({quoted[0]}, {quoted[1]}))"
    )
    box.run(
        f"INSERT INTO {quoted[5]} VALUES (1, 2, 3, 4, 5, 6, 7, 8)",
        f"INSERT INTO {quoted[5]} VALUES (1, 3, 3, 4, 5, 6, 7, 8)",
    )
    with managed(box) as manager:
        pages = all_pages(
            manager, box.source.name, [1], table=names[5], order=[f"-{name}" for name in names[2:7]] + ["-minus"],
            where=[Condition(name, ">", 0) for name in names],
        )  # fmt: skip
    assert [list(item) for page in pages for item in page.items] == [names, names]
    assert sorted(column(pages, names[1])) == [2, 3]


def test_what_is_not_there_is_named(box: Sandbox) -> None:
    fill(box, [])
    with managed(box) as manager:
        ask = manager.execute_paginated_query
        with pytest.raises(UnknownSourceTableError):
            ask(box.source.name, table="tt")
        with pytest.raises(UnknownSourceColumnError):
            ask(box.source.name, table="t", order=["nothing"])
        with pytest.raises(UnknownSourceColumnError):
            ask(box.source.name, table="t", where=[Condition("nothing", "=", 1)])
        with pytest.raises(InvalidValueError, match="one of"):
            ask("elsewhere", table="t")
        with pytest.raises(InvalidValueError, match="which has id, word"):
            ask(box.source.name, query="SELECT * FROM t", order=["nothing"])
        # MySQL refuses such a query by itself, and SQLite gives the second one another name.
        if box.kind != "sqlite":
            with pytest.raises(StatementRefusedError if box.kind == "mysql" else InvalidValueError):
                ask(box.source.name, query="SELECT id, id FROM t")


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "t", "query": "SELECT 1"},
        {},
        {"query": " ; "},
        {"table": "t", "page_size": 0},
        {"table": "t", "page_size": 10_001},
        {"table": "t", "count": "some"},
        {"table": "t", "order": ["id", "-id"]},
        {"query": "SELECT 1 AS a", "columns": ["a"]},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(sqlite_box: Sandbox, wrong: dict[str, Any]) -> None:
    fill(sqlite_box, [])
    with managed(sqlite_box) as manager, pytest.raises(InvalidValueError):
        manager.execute_paginated_query("lite", **wrong)


def test_columns_may_be_chosen_and_need_not_contain_the_key(box: Sandbox) -> None:
    fill(box, ["a", "b", "c"])
    with managed(box) as manager:
        pages = all_pages(manager, box.source.name, [2], table="t", columns=["word"])
    assert [item for page in pages for item in page.items] == [{"word": "a"}, {"word": "b"}, {"word": "c"}]


def test_null_in_a_key_is_found_before_rows_are_lost(sqlite_box: Sandbox) -> None:
    sqlite_box.run("CREATE TABLE n (k TEXT PRIMARY KEY, v INTEGER)")
    sqlite_box.insert("n", [("a", 1), (None, 2), (None, 3)])
    with managed(sqlite_box) as manager, pytest.raises(NullInKeyError):
        manager.execute_paginated_query("lite", table="n")


@pytest.mark.server
def test_mysql_refuses_to_sort_pages_by_what_compares_otherwise(mysql_box: Sandbox) -> None:
    mysql_box.run("CREATE TABLE e (id integer PRIMARY KEY, mood ENUM('sad', 'happy'))")
    with managed(mysql_box) as manager, pytest.raises(InvalidValueError, match="ENUM"):
        manager.execute_paginated_query("maria", table="e", order=["mood"])
