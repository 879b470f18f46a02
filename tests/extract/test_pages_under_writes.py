"""While another process writes: what is there from the first page to the last comes exactly once, in order."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.extract.conftest import Sandbox
from tests.extract.paging import all_pages, managed

TOP = 400
WRITER = Path(__file__).with_name("restless_writer.py")


@contextmanager
def somebody_writes(box: Sandbox) -> Iterator[None]:
    url = box.admin.url.render_as_string(hide_password=False)
    command = [sys.executable, str(WRITER), url, str(TOP)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline().strip() == "writing", "the writer does not write"
            yield
        finally:
            writer.stdin.close()
            writer.wait(timeout=60)


def test_rows_that_stay_come_exactly_once_and_in_order(box: Sandbox) -> None:
    text = {"sqlite": "TEXT", "postgresql": 'text COLLATE "C"', "mysql": "varchar(9)"}[box.kind]
    box.run(f"CREATE TABLE t (id integer NOT NULL PRIMARY KEY, grp {text}, n integer)", "CREATE INDEX g ON t (grp, id)")
    staying = [2 * number for number in range(TOP // 2)]
    box.insert("t", [(number, f"g{number % 7}", 0) for number in staying])
    with managed(box) as manager, somebody_writes(box):
        for first, order in itertools.product((5, 20), ("", "grp", "-grp", "-id")):
            found = all_pages(manager, box.source.name, [first, 3, 40], table="t", order=[order] if order else [])
            items = [item for page in found for item in page.items]
            ids = [item["id"] for item in items]
            assert len(ids) == len(set(ids)), "a row came twice"
            assert set(staying) <= set(ids), "a row is missing that was there all the time"
            keys = [(item["grp"] if order.endswith("grp") else "", item["id"]) for item in items]
            assert keys == sorted(keys, reverse=order.startswith("-"))


def test_a_sequence_whose_last_row_was_deleted_ends_with_an_empty_page(box: Sandbox) -> None:
    box.run("CREATE TABLE t (id integer NOT NULL PRIMARY KEY)")
    box.insert("t", [(number,) for number in range(4)])
    with managed(box) as manager:
        first = manager.execute_paginated_query(box.source.name, table="t", page_size=3)
        box.run("DELETE FROM t WHERE id = 3")
        rest = manager.execute_paginated_query(box.source.name, table="t", token=first.continuation_token)
    assert (rest.items, rest.has_more) == ([], False)
