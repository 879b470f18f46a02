"""`dw page`: one page as a table or as JSON, and the command line that continues it."""

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dw_platform.cli.page import NoConditionError, parse_condition
from dw_platform.extract.conditions import Condition
from tests.cli.conftest import Dw, MakeFile


@pytest.fixture
def shop(tmp_path: Path, make_file: MakeFile) -> Path:
    """A platform with a database of seven customers."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, credit DECIMAL(8,2), photo BLOB)"
        )
        rows = [(1000 + number, f"it's {number}", f"{number / 2}", b"\x00\xff") for number in range(7)]
        connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", rows)
        connection.execute("UPDATE customers SET name = NULL WHERE id = 1003")
        connection.execute("CREATE TABLE loose (n INTEGER)")
        connection.executemany("INSERT INTO loose VALUES (?)", [(1,), (2,)])
    return make_file(f"databases:\n  - {{name: shop, url: 'sqlite:///{tmp_path}/shop.db'}}\n")


def test_the_printed_command_continues_where_the_page_ends(dw: Dw, shop: Path) -> None:
    command: list[Any] = [
        "page",
        "shop.customers",
        "--config",
        shop,
        "--limit",
        3,
        "--order",
        "-name",
        "--where",
        "id>1000",
    ]
    pages = []
    while True:
        shown = dw(*command)
        assert shown.code == 0, shown.err
        pages.append(shown.out)
        if "Next page: " not in shown.out:
            break
        command = shlex.split(shown.out.partition("Next page: dw ")[2])
    assert len(pages) == 2
    ids = [line.split()[0] for page in pages for line in page.splitlines() if line.startswith("100")]
    assert ids == ["1006", "1005", "1004", "1002", "1001", "1003"]
    assert "3 rows." in pages[0]


def test_a_page_as_json_has_exact_values(dw: Dw, shop: Path) -> None:
    shown = json.loads(dw("page", "shop.main.customers", "-c", shop, "--limit", 1, "--count", "exact", "--json").out)
    token = shown.pop("continuation_token")
    assert shown == {
        "items": [{"id": 1000, "name": "it's 0", "credit": "0.00", "photo": "AP8="}],
        "total_count": 7,
        "total_is_estimate": False,
        "has_more": True,
        "method": "keyset",
    }
    rest = dw("page", "shop.main.customers", "-c", shop, "--limit", 99, "--json", "--token", token)
    found = json.loads(rest.out)
    assert [item["id"] for item in found["items"]] == list(range(1001, 1007))
    assert (found["has_more"], found["continuation_token"], found["total_count"]) == (False, None, None)


def test_filters_and_totals(dw: Dw, shop: Path) -> None:
    shown = dw("page", "shop.customers", "-c", shop, "--where", "name is null", "--count", "estimate")
    assert "1003" in shown.out
    assert "1 row of 1." in shown.out
    assert "No rows of 0." in dw("page", "shop.customers", "-c", shop, "--where", "id=5", "--count", "exact").out


def test_a_table_without_a_key_says_that_it_is_paged_by_offset(dw: Dw, shop: Path) -> None:
    shown = dw("page", "shop.loose", "-c", shop, "--limit", 1)
    assert "paged by offset" in shown.out
    assert "--token" in shown.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop.custmers"], "Similar: customers"),
        (["store.customers"], "There are: shop"),
        (["shop"], "DATABASE.TABLE"),
        (["shop."], "DATABASE.TABLE"),
        (["shop.customers", "--token", "nonsense"], "without a token"),
        (["shop.customers", "--token", ""], "without a token"),
        (["shop.customers", "--order", "nothing"], "no column 'nothing'"),
        (["shop.customers", "--where", "name"], "COLUMN=VALUE"),
        (["shop.customers", "--limit", "0"], "limit"),
        (["shop.customers", "--limit", "1000000"], "from 1 to 10,000"),
    ],
)
def test_mistakes_are_told_with_code_2(dw: Dw, shop: Path, arguments: list[str], told: str) -> None:
    shown = dw("page", *arguments, "-c", shop)
    assert shown.code == 2
    assert told in shown.err
    assert not shown.out


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a=1", Condition("a", "=", "1")),
        ("a = x = y", Condition("a", "=", " x = y")),
        ("a!=1", Condition("a", "!=", "1")),
        ("a<=1", Condition("a", "<=", "1")),
        ("a>1", Condition("a", ">", "1")),
        ("a=", Condition("a", "=", "")),
        ("a is null", Condition("a", "is_null")),
        ("a b IS NOT NULL", Condition("a b", "is_not_null")),
    ],
)
def test_conditions_are_read(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


def test_what_is_no_condition_is_refused() -> None:
    for text in ("", "a", "=1"):
        with pytest.raises(NoConditionError):
            parse_condition(text)
