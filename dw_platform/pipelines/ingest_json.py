"""JSON values become typed columns, in bulk where that is safe and one by one where it is not.

The careful way defines what is right: one object a value, every declared field of its type or absent, numbers exact.
The bulk way hands all values to Arrow's reader at once and is taken only if its result must be the same:

* Every value begins with `{`, ends with `}`, and has no `}` that anything but `,`, `}` or `]` follows. So no value is
  blank or holds two objects. None can be continued by its neighbour either, because the newline between them may stand
  neither inside a string nor, within one object, between `}` and `{`. The number of rows is compared nevertheless.
* Values are UTF-8, and have no NaN or Infinity, which Arrow would take although JSON has none; no number overflows.

Whatever the bulk way refuses is halved until the refused values are few, and those are looked at one by one. A bad
record therefore never rejects its neighbours, and costs little in speed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dw_platform.pipelines.ingest_careful import Part, one_by_one
from dw_platform.pipelines.ingest_types import all_finite, from_text

# Below this the careful way is as fast as trying.
_FEW = 256
_SUSPICIOUS = r"\}\s*[^\s,}\]]|NaN|Inf"
_BLOCK_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Parsed:
    """The good records as rows in their order, which they were, and why the others are not among them."""

    rows: pa.RecordBatch
    good: pa.Array
    """A boolean for each value; rows are those that are true."""

    reasons: Mapping[int, str]
    """By the number of the value."""


def parse_values(values: pa.Array, schema: pa.Schema) -> Parsed:
    """Return typed rows of `values`, an array of binary."""
    parts = list(_parse(values, schema, 0))
    reasons = {number: reason for part in parts for number, reason in part[1].items()}
    rows = pa.concat_batches([part[0] for part in parts]) if parts else _no_rows(schema)
    good = pa.array([True] * len(values))
    if reasons:
        good = pa.array([number not in reasons for number in range(len(values))])
    assert len(rows) + len(reasons) == len(values), "every value is a row or has a reason"
    return Parsed(rows, good, reasons)


def _parse(values: pa.Array, schema: pa.Schema, first: int) -> Iterator[Part]:
    if len(values) and (rows := in_bulk(values, schema)) is not None:
        yield rows, {}
    elif len(values) <= _FEW:
        yield one_by_one(values, schema, first)
    else:
        half = len(values) // 2
        yield from _parse(values.slice(0, half), schema, first)
        yield from _parse(values.slice(half), schema, first + half)


def in_bulk(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch | None:
    """Return the rows of all values, or None where one of them needs a closer look."""
    if not schema.names or not _plain(values):
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = pc.binary_join(lines, b"\n")[0].as_buffer()
    if text.size > _BLOCK_LIMIT:
        return None
    try:
        # A block of its own for all of it: what is cut between blocks is cut at newlines, wherever they are.
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(values):
            return None
        columns = [_converted(table.column(field.name).combine_chunks(), field.type) for field in schema]
    except ValueError:  # ArrowInvalid is one, and so is what base64 raises
        return None
    if any(pa.types.is_floating(column.type) and not all_finite(column) for column in columns):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(values: pa.Array) -> bool:
    if values.null_count:
        return False
    try:
        texts = values.cast(pa.string())  # checks that it is UTF-8
    except pa.ArrowInvalid:
        return False
    framed = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return bool(pc.all(framed).as_py() and not pc.any(pc.match_substring_regex(texts, _SUSPICIOUS)).as_py())


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return what Arrow's reader is asked for: types whose text form is this module's own business come as text."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_binary(kind) else kind


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else from_text(column, kind)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
