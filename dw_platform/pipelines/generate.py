"""Made-up orders and clicks for demonstrations and benchmarks: a row depends on seed, number and days, nothing else.

Rows are made in blocks of a fixed size, each with random numbers of its own. So the rows are the same however many
tasks make them, and a larger table starts with the rows of a smaller one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.lake.rows import ArrowTasks
from dw_platform.log import Records

BLOCK_ROWS = 10_000
"""Rows with one stream of random numbers; changing it changes every generated table."""

CHUNK_ROWS = 50_000
"""Rows a Spark task makes."""

_COUNTRIES = ("DE", "FR", "US", "GB", "NL", "PL", "ES", "SE", "JP", "BR")
_STATUSES = ("paid", "shipped", "delivered", "returned", "cancelled")
_STATUS_SHARES = (0.15, 0.2, 0.55, 0.06, 0.04)

ORDERS_SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        ("customer_id", pa.int64()),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("status", pa.string()),
        ("quantity", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
    ]
)


@dataclass(frozen=True, slots=True)
class OrdersChunk:
    """The orders with ids [first, last), spread over the `days` that end at the midnight `until`."""

    first: int
    last: int
    seed: int
    days: int
    until: datetime


def orders(rows: int, *, days: int, seed: int, now: datetime) -> ArrowTasks:
    """Return `rows` orders over the `days` before today, as work for Spark tasks."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    chunks = [
        OrdersChunk(first, min(first + CHUNK_ROWS, rows), seed, days, midnight) for first in range(0, rows, CHUNK_ROWS)
    ]
    return ArrowTasks(ORDERS_SCHEMA, chunks, make_orders)


def make_orders(chunk: OrdersChunk) -> Iterator[pa.RecordBatch]:
    """Yield the orders of one chunk, block by block."""
    for block in range(chunk.first // BLOCK_ROWS, -(-chunk.last // BLOCK_ROWS)):
        start = block * BLOCK_ROWS
        first, last = max(chunk.first, start), min(chunk.last, start + BLOCK_ROWS)
        yield _block(block, chunk).slice(first - start, last - first)


def _block(number: int, chunk: OrdersChunk) -> pa.RecordBatch:
    count = BLOCK_ROWS
    random = np.random.default_rng([chunk.seed, number])
    start = int((chunk.until - timedelta(days=chunk.days)).timestamp()) * 1_000_000
    # A share of whole days, so that no day is cut off; evenings are busier than mornings.
    day = random.integers(0, chunk.days, count)
    second = (random.beta(3, 2, count) * 86_399).astype(np.int64)
    moment = start + (day * 86_400 + second) * 1_000_000
    cents = np.maximum(100, random.lognormal(8.3, 0.7, count)).astype(np.int64)
    columns = [
        pa.array(np.arange(number * count, (number + 1) * count)),
        pa.array(random.zipf(1.3, count) % 20_000),
        pa.array(moment).cast(pa.timestamp("us", "UTC")),
        pa.array(random.choice(_COUNTRIES, count), pa.string()),
        pa.array(random.choice(_STATUSES, count, p=_STATUS_SHARES), pa.string()),
        pa.array(random.integers(1, 6, count), pa.int32()),
        decimals(cents),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ORDERS_SCHEMA)


def decimals(cents: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """Return cents as decimal(12,2) by writing the 128-bit words themselves, so that no row becomes a Python object."""
    words = np.zeros((len(cents), 2), dtype="<i8")
    words[:, 0] = cents
    words[:, 1] = cents >> 63
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])


_PAGES = ("/", "/search", "/product", "/cart", "/checkout", "/help")
_PAGE_SHARES = (0.3, 0.25, 0.25, 0.1, 0.06, 0.04)
# Some producer somewhere has a bug; the demo shows what becomes of its messages.
_BROKEN_EVERY = 5_000


def clicks(rows: int, *, seed: int, now: datetime) -> Iterator[Records]:
    """Yield clicks of the hour before `now` as JSON messages, keyed by visitor; one in five thousand is cut off."""
    for block in range(-(-rows // BLOCK_ROWS)):
        yield _clicks(block, min(BLOCK_ROWS, rows - block * BLOCK_ROWS), seed, now)


def _clicks(block: int, count: int, seed: int, now: datetime) -> Records:
    random = np.random.default_rng([seed, block])
    start = int((now - timedelta(hours=1)).timestamp() * 1_000)
    visitors = pa.array(random.zipf(1.2, count) % 50_000).cast(pa.string())
    moments = pa.array(np.sort(start + random.integers(0, 3_600_000, count))).cast(pa.timestamp("ms"))
    fields = {
        "visitor": visitors,
        "page": _quoted(pa.array(random.choice(_PAGES, count, p=_PAGE_SHARES), pa.string())),
        "clicked_at": _quoted(pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")),
        "ms": pa.array(random.gamma(2, 60, count).astype(np.int64)).cast(pa.string()),
    }
    parts = [f'{"{" if not number else ","}"{name}":' for number, name in enumerate(fields)]
    pieces = [piece for part, column in zip(parts, fields.values(), strict=True) for piece in (part, column)]
    lines = pc.binary_join_element_wise(*pieces, "}", "")
    whole = np.arange(block * BLOCK_ROWS, block * BLOCK_ROWS + count) % _BROKEN_EVERY != _BROKEN_EVERY - 1
    return Records(pc.if_else(pa.array(whole), lines, pc.utf8_slice_codeunits(lines, 0, 20)), keys=visitors)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")
