"""Made-up orders are the same wherever and however they are made, and look like orders."""

import itertools
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.pipelines.generate import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    ORDERS_SCHEMA,
    OrdersChunk,
    decimals,
    make_orders,
    orders,
)

MIDNIGHT = datetime(2026, 5, 4, tzinfo=UTC)
MANY = 25_000
# Each example makes whole blocks of rows, and a busy machine may take its time.
few = settings(max_examples=25, deadline=None)


def _rows(first: int, last: int, *, seed: int = 7, days: int = 30) -> pa.Table:
    return pa.Table.from_batches(make_orders(OrdersChunk(first, last, seed, days, MIDNIGHT)), ORDERS_SCHEMA)


WHOLE = _rows(0, MANY)


@few
@given(cuts=st.lists(st.integers(0, MANY), max_size=4))
def test_rows_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), MANY]
    parts = [_rows(first, last) for first, last in itertools.pairwise(edges) if first < last]
    assert pa.concat_tables(parts).combine_chunks() == WHOLE.combine_chunks()


@given(rows=st.integers(1, 3 * CHUNK_ROWS))
def test_chunks_cover_every_row_once_and_are_never_empty(rows: int) -> None:
    chunks = orders(rows, days=1, seed=0, now=MIDNIGHT).payloads
    assert [chunk.first for chunk in chunks] == list(range(0, rows, CHUNK_ROWS))
    assert all(chunk.first < chunk.last for chunk in chunks)
    assert [chunk.last for chunk in chunks] == [*(chunk.first for chunk in chunks[1:]), rows]


def test_a_larger_table_starts_with_the_rows_of_a_smaller_one() -> None:
    assert _rows(0, BLOCK_ROWS + 17).combine_chunks() == WHOLE.slice(0, BLOCK_ROWS + 17).combine_chunks()


def test_another_seed_gives_other_rows() -> None:
    assert _rows(0, 100, seed=8) != WHOLE.slice(0, 100)


@few
@given(days=st.integers(1, 400), seed=st.integers(0, 2**63), first=st.integers(0, 10**9))
def test_every_order_lies_inside_the_days_before_midnight(days: int, seed: int, first: int) -> None:
    rows = _rows(first, first + 50, seed=seed, days=days)
    span = pc.min_max(rows["ordered_at"]).as_py()
    assert MIDNIGHT - timedelta(days=days) <= span["min"]
    assert span["max"] < MIDNIGHT
    assert rows["order_id"].to_pylist() == list(range(first, first + 50))


def test_every_day_of_the_range_has_orders() -> None:
    days = pc.unique(pc.cast(WHOLE["ordered_at"], pa.date32())).to_pylist()
    assert sorted(days) == [(MIDNIGHT - timedelta(days=ago)).date() for ago in range(30, 0, -1)]


def test_values_are_those_of_a_shop() -> None:
    assert set(pc.unique(WHOLE["quantity"]).to_pylist()) == {1, 2, 3, 4, 5}
    assert pc.min(WHOLE["amount"]).as_py() >= Decimal("1.00")
    assert pc.max(WHOLE["customer_id"]).as_py() < 20_000
    assert set(pc.unique(WHOLE["status"]).to_pylist()) == {"paid", "shipped", "delivered", "returned", "cancelled"}
    assert all(column.null_count == 0 for column in WHOLE.columns)


@pytest.mark.parametrize("zone", [timedelta(hours=0), timedelta(hours=14), timedelta(hours=-12)])
def test_today_is_the_day_in_utc(zone: timedelta) -> None:
    now = datetime(2026, 5, 4, 23, 59, 59, 999_999, tzinfo=UTC).astimezone(timezone(zone))
    (chunk,) = orders(5, days=2, seed=0, now=now).payloads
    assert chunk.until == MIDNIGHT


@given(st.lists(st.integers(-(10**12) + 1, 10**12 - 1), max_size=50))
def test_cents_become_exactly_their_decimals(cents: list[int]) -> None:
    made = decimals(np.array(cents, dtype=np.int64))
    made.validate(full=True)
    assert made.to_pylist() == [Decimal(value).scaleb(-2) for value in cents]
