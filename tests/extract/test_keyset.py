"""Pages laid end to end are the table: for any order, page size, NULLs, type and collation, on each database."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.extract.keyset import OrderColumn, reversed_order
from tests.extract.conftest import KINDS, Sandbox
from tests.extract.laid_out import COLUMNS, Bench, bench, expected, last_position, numbers, pages

# One table serves all examples; each fills it in a transaction of its own.
SHARED = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def workbench(box: Sandbox) -> Iterator[Bench]:
    with bench(box) as opened:
        yield opened


@st.composite
def orders(draw: st.DrawFn, kind: str) -> tuple[OrderColumn, ...]:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS[kind])), max_size=3, unique=True))
    directions = st.booleans()
    columns = [
        OrderColumn(name, draw(directions), nullable=True, nulls_first=draw(st.sampled_from([None, True, False])))
        for name in names
    ]
    # Behind the unique column others may follow; they never decide anything, and must not disturb.
    place = draw(st.integers(max(0, len(columns) - 1), len(columns)))
    columns.insert(place, OrderColumn("id", draw(directions)))
    return tuple(columns)


@st.composite
def tables(draw: st.DrawFn, kind: str, order: tuple[OrderColumn, ...]) -> tuple[list[str], list[list[Any]]]:
    names = [column.name for column in order if column.name != "id"]
    cells = [st.none() | st.sampled_from(COLUMNS[kind][name][1]) for name in names]
    return names, [list(row) for row in draw(st.lists(st.tuples(*cells), max_size=14))]


@given(data=st.data())
@SHARED
def test_pages_laid_end_to_end_are_the_table(workbench: Bench, data: st.DataObject) -> None:
    order = data.draw(orders(workbench.kind))
    names, rows = data.draw(tables(workbench.kind, order))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    with workbench.filled(names, rows):
        assert numbers(pages(workbench, order, sizes)) == expected(workbench, order)


@given(data=st.data())
@SHARED
def test_the_upper_bound_ends_the_pages_right_behind_its_row(workbench: Bench, data: st.DataObject) -> None:
    order = data.draw(orders(workbench.kind))
    names, rows = data.draw(tables(workbench.kind, order))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    with workbench.filled(names, rows):
        positions = [position for page in pages(workbench, order, [20]) for _, position in page]
        for at, position in enumerate(positions):
            assert numbers(pages(workbench, order, sizes, upto=position)) == expected(workbench, order)[: at + 1]
        assert last_position(workbench, order) == (positions[-1] if positions else None)


def test_a_key_of_any_type_continues_exactly_behind_each_value(workbench: Bench) -> None:
    for name, (_, values) in COLUMNS[workbench.kind].items():
        rows = [[value] for value in [None, *values, None, *values]]
        with workbench.filled([name], rows):
            for descending in (False, True):
                order = (OrderColumn(name, descending, nullable=True), OrderColumn("id", not descending))
                assert numbers(pages(workbench, order, [1])) == expected(workbench, order), name


def test_the_reversed_order_gives_the_rows_from_the_other_end(workbench: Bench) -> None:
    name, (_, values) = next(iter(COLUMNS[workbench.kind].items()))
    for nulls_first in (None, True, False):
        order = (OrderColumn(name, nullable=True, nulls_first=nulls_first), OrderColumn("id", descending=True))
        with workbench.filled([name], [[value] for value in [None, *values, None]]):
            backwards = numbers(pages(workbench, reversed_order(order), [3]))
            assert backwards == expected(workbench, order)[::-1]


# What public paging libraries ask of themselves: (values of the ordered column, page size, pages with rows).
EXAMPLES: dict[str, tuple[list[Any], int, list[int]]] = {
    "an empty table": ([], 5, [0]),
    "a single row": ([1], 5, [1]),
    "exactly one page": ([1, 2, 3], 3, [3, 0]),
    "one row more than a page": ([1, 2, 3, 4], 3, [3, 1]),
    "a full last page": ([1, 2, 3, 4, 5, 6], 3, [3, 3, 0]),
    "pages of one row": ([3, 1, 2], 1, [1, 1, 1, 0]),
    "a page larger than the table": ([1, 2, 3], 1000, [3]),
    "one value in all rows": ([7] * 7, 3, [3, 3, 1]),
    "duplicates across the border of a page": ([1, 2, 2, 2, 2, 3], 2, [2, 2, 2, 0]),
    "NULL in all rows": ([None] * 5, 2, [2, 2, 1]),
    "NULLs across the border of a page": ([1, None, None, None, 2], 2, [2, 2, 1]),
    "one NULL": ([None, 1], 1, [1, 1, 0]),
}


@pytest.mark.parametrize("nulls_first", [None, True, False])
@pytest.mark.parametrize("descending", [False, True])
def test_the_usual_cases_of_paging(workbench: Bench, *, descending: bool, nulls_first: bool | None) -> None:
    name = next(iter(COLUMNS[workbench.kind]))
    order = (OrderColumn(name, descending, nullable=True, nulls_first=nulls_first), OrderColumn("id"))
    for case, (values, size, lengths) in EXAMPLES.items():
        with workbench.filled([name], [[value] for value in values]):
            found = pages(workbench, order, [size])
            assert numbers(found) == expected(workbench, order), case
            assert [len(page) for page in found] == lengths, case


def test_every_kind_of_database_is_asked() -> None:
    assert {getattr(kind, "values", (kind,))[0] for kind in KINDS} == set(COLUMNS)
