"""What becomes of a token when the request, the table or the time is another than it was given out for."""

from datetime import timedelta
from typing import Any

import pytest

from dw_platform.extract.conditions import Condition
from dw_platform.extract.errors import (
    TokenExpiredError,
    TokenForgedError,
    TokenForOtherRequestError,
    TokenMalformedError,
    TokenOutdatedError,
    UnknownSourceTableError,
)
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.foundation import FakeClock
from tests.extract.conftest import Sandbox, sandbox
from tests.extract.paging import all_pages, column, managed

REQUEST: dict[str, Any] = {"table": "t", "order": ["-n"], "where": [Condition("n", ">", 0)]}


def fill(box: Sandbox, table: str = "t") -> None:
    box.run(f"CREATE TABLE {table} (id integer NOT NULL PRIMARY KEY, n integer)")
    box.insert(table, [(number, number % 3) for number in range(12)])


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"table": "other"}, "table"),
    ({"table": None, "query": "SELECT * FROM t", "key": ["id"]}, "table"),
    ({"where": []}, "filter"),
    ({"where": [Condition("n", ">", 1)]}, "filter"),
    ({"where": [Condition("n", ">", "0")]}, "filter"),
    ({"order": ["n"]}, "order"),
    ({"order": []}, "order"),
    ({"order": ["-n", "id"]}, "order"),
]


def test_a_token_continues_no_other_request(box: Sandbox) -> None:
    fill(box)
    fill(box, "other")
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, page_size=2, **REQUEST)
        for changed, what in OTHERS:
            with pytest.raises(TokenForOtherRequestError) as refused:
                manager.execute_paginated_query(box.source.name, token=first.continuation_token, **(REQUEST | changed))
            assert refused.value.what == what


def test_a_token_continues_in_no_other_database(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    twin = sandbox("twin", sqlite_box.source.url)
    with managed(sqlite_box, twin) as manager:
        first = manager.execute_paginated_query("lite", table="t", page_size=2)
        with pytest.raises(TokenForOtherRequestError) as refused:
            manager.execute_paginated_query("twin", table="t", token=first.continuation_token)
    twin.admin.dispose()
    assert refused.value.what == "source"


def test_page_size_columns_and_total_may_change_between_pages(box: Sandbox) -> None:
    fill(box)
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, page_size=2, **REQUEST)
        second = manager.execute_paginated_query(
            box.source.name, page_size=100, count="exact", columns=["id"], token=first.continuation_token, **REQUEST
        )
    assert [item["id"] for item in first.items + second.items] == [11, 8, 5, 2, 10, 7, 4, 1]


def test_a_table_altered_between_pages_makes_the_token_outdated(box: Sandbox) -> None:
    fill(box)
    with managed(box) as manager:
        for change in ("ADD COLUMN later integer", "RENAME COLUMN n TO m", "DROP COLUMN m"):
            first = manager.execute_paginated_query(box.source.name, table="t", page_size=2)
            box.run(f"ALTER TABLE t {change}")
            with pytest.raises(TokenOutdatedError) as refused:
                manager.execute_paginated_query(box.source.name, table="t", token=first.continuation_token)
            assert refused.value.table.endswith("t")
            assert column(all_pages(manager, box.source.name, [5], table="t"), "id") == list(range(12))


def test_a_table_dropped_between_pages_is_missed(box: Sandbox) -> None:
    fill(box)
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, table="t", page_size=2)
        box.run("DROP TABLE t")
        with pytest.raises(UnknownSourceTableError):
            manager.execute_paginated_query(box.source.name, table="t", token=first.continuation_token)


def test_a_query_whose_columns_change_makes_the_token_outdated(box: Sandbox) -> None:
    fill(box)
    request: dict[str, Any] = {"query": "SELECT * FROM t", "key": ["id"]}
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, page_size=2, **request)
        box.run("ALTER TABLE t ADD COLUMN later integer")
        with pytest.raises(TokenOutdatedError):
            manager.execute_paginated_query(box.source.name, token=first.continuation_token, **request)


def test_a_bad_token_never_means_the_first_page(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    clock = FakeClock()
    with managed(sqlite_box, clock=clock, limits=DatabaseLimits(token_ttl=timedelta(hours=1))) as manager:
        good = manager.execute_paginated_query("lite", table="t", page_size=2).continuation_token or ""
        for bad in ("", " ", good[:-1], good + "A", good[::-1], "null", "0", "None"):
            with pytest.raises((TokenMalformedError, TokenForgedError)):
                manager.execute_paginated_query("lite", table="t", token=bad)
        clock.advance(3600)
        with pytest.raises(TokenExpiredError):
            manager.execute_paginated_query("lite", table="t", token=good)


def test_pages_go_on_after_the_keys_were_rotated(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    with managed(sqlite_box) as manager:
        first = manager.execute_paginated_query("lite", table="t", page_size=10)
        manager.keyring.rotate()
        rest = manager.execute_paginated_query("lite", table="t", token=first.continuation_token)
    assert [item["id"] for item in rest.items] == [10, 11]


def test_pages_by_offset_are_bound_as_well(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    query = "SELECT n FROM t ORDER BY id"
    with managed(sqlite_box) as manager:
        first = manager.execute_paginated_query("lite", query=query, page_size=5)
        with pytest.raises(TokenForOtherRequestError):
            manager.execute_paginated_query("lite", query=f"{query} DESC", token=first.continuation_token)
        rest = manager.execute_paginated_query("lite", query=query, token=first.continuation_token)
    assert [item["n"] for item in first.items + rest.items] == [number % 3 for number in range(12)]
