"""Every branch of a page is one range of the key's index, whether its first column repeats, is unique or is NULL."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dw_platform.extract.keyset import OrderColumn, Position, branches
from dw_platform.extract.notation import notation_of
from dw_platform.extract.source import open_engine
from tests.extract.conftest import Sandbox

ROWS = 20_000
PAGE = 50
TEXT = {"sqlite": "TEXT", "postgresql": "text", "mysql": "varchar(40)"}
NUMBERED = {
    "sqlite": f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT {{}} FROM s",
    "postgresql": f"SELECT {{}} FROM generate_series(1, {ROWS}) AS s(n)",
    "mysql": f"SELECT {{}} FROM (SELECT seq AS n FROM seq_1_to_{ROWS}) AS s",
}
TEXTS_OF_N = {
    "sqlite": ("'x' || (n % 50)", "CAST(n AS TEXT)"),
    "postgresql": ("'x' || (n % 50)", "CAST(n AS text)"),
    "mysql": ("concat('x', n % 50)", "CAST(n AS CHAR)"),
}
ANALYSED = {"sqlite": "ANALYZE", "postgresql": "ANALYZE t", "mysql": "ANALYZE TABLE t"}
KEYS = {
    "few values in front": ["few", "id"],
    "two columns of few values in front": ["few", "several", "id"],
    "a unique column in front": ["many", "id"],
    "NULL in half of the rows": ["gaps", "id"],
    "a unique key alone": ["id"],
}
# PostgreSQL may take the index on `id` alone and pass over rows of other prefixes, where it expects few of them: the
# last key has 1 row in 14. MySQL also counts what the question takes.
LOOKED_AT = {"postgresql": 14 * PAGE, "mysql": PAGE + 20}
PLACES = {"few": "1", "several": "x7", "many": "5000", "gaps": "3", "id": "5000"}

Explain = Callable[[str], Any]


@pytest.fixture
def explain(box: Sandbox) -> Iterator[Explain]:
    """Fill a table with an index for each key, and show how the database would answer a statement."""
    kind, text = box.kind, TEXT[box.kind]
    several, many = TEXTS_OF_N[kind]
    filler = "'rows are wider than their keys'"
    values = f"n, n % 3, {several}, {many}, CASE WHEN n % 2 = 0 THEN n % 7 END, {filler}"
    columns = f"few integer, several {text}, many {text}, gaps integer, filler {text}"
    box.run(
        f"CREATE TABLE t (id integer NOT NULL PRIMARY KEY, {columns})",
        f"INSERT INTO t {NUMBERED[kind].format(values)}",
        *(f"CREATE INDEX i{at} ON t ({', '.join(names)})" for at, names in enumerate(KEYS.values()) if len(names) > 1),
        ANALYSED[kind],
    )
    engine = open_engine(box.source)
    with engine.connect() as connection:

        def shown(statement: str) -> Any:
            asked = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
            return asked.fetchall() if asked.returns_rows else []

        yield shown
    engine.dispose()


def position(kind: str, names: Sequence[str], *, null: str = "") -> Position:
    tags = {"sqlite": ("i:", "t:"), "mysql": ("n:", "s:"), "postgresql": ("", "")}[kind]
    return tuple(None if name == null else tags[name in ("several", "many")] + PLACES[name] for name in names)


def rows_looked_at(kind: str, explain: Explain, statement: str) -> int:
    """Return how many index entries or rows the statement touches, measured by the server itself."""
    if kind == "postgresql":
        (answer,) = explain(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        return max(_postgres_rows(answer[0][0]["Plan"]))
    # Descending `ref` shows up here: it reads every row of the prefix and throws most of them away.
    explain("FLUSH STATUS")
    explain(statement)
    return sum(int(value) for _, value in explain("SHOW SESSION STATUS LIKE 'Handler_read%'"))


def _postgres_rows(node: dict[str, Any]) -> Iterator[int]:
    assert "Seq Scan" not in node["Node Type"], json.dumps(node)
    yield int(node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    for child in node.get("Plans", []):
        yield from _postgres_rows(child)


def test_a_page_touches_hardly_more_rows_than_it_has(box: Sandbox, explain: Explain) -> None:
    for names, null, descending in itertools.product(KEYS.values(), (False, True), (False, True)):
        order = [OrderColumn(name, descending, nullable=name != "id") for name in names]
        at_null = names[0] if null and len(names) > 1 else ""
        after = position(box.kind, names, null=at_null)
        for upto in (None, after):
            for branch in branches(order, after, upto, notation=notation_of(box.kind), quote=lambda name: f"t.{name}"):
                statement = f"SELECT t.* FROM t WHERE {branch.where} ORDER BY {branch.order_by} LIMIT {PAGE}"
                if box.kind == "sqlite":
                    plan = " ".join(row[3] for row in explain(f"EXPLAIN QUERY PLAN {statement}"))
                    assert plan.startswith("SEARCH t USING"), (branch, plan)
                    assert "TEMP B-TREE" not in plan, (branch, plan)
                else:
                    assert rows_looked_at(box.kind, explain, statement) <= LOOKED_AT[box.kind], branch
