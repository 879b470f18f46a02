"""From what a driver hands over to the type a column has here: exactly, or not at all.

All work is done by Arrow, column by column. Its cast from text to decimal needs one check before it, because it takes
more digits than it can hold without a word; timestamps and dates need one after it, because the databases have
infinities and years that nobody else can read.
"""

import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.extract.description import SourceTable
from dw_platform.extract.errors import SourceChangedError, ValueNotKeptError
from dw_platform.extract.type_reading import LOCAL, MOST_DIGITS, UTC
from dw_platform.extract.types import ColumnMapping

# Years 1 to 9999, as far as Spark, Parquet's readers and Python agree.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000
_MOST_DIGITS_256 = 76


def conformed(
    column: pa.ChunkedArray, mapping: ColumnMapping, table: SourceTable, *, check_text: bool = False
) -> pa.ChunkedArray:
    """Return `column` with the type of its mapping; `check_text` where the driver does not vouch for UTF-8."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), mapping.arrow)], mapping.arrow)
    if column.type != mapping.wire and not (table.kind == "sqlite" and _is_whole_float(column.type, mapping.wire)):
        raise _unexpected(column.type, mapping, table)
    try:
        if check_text and pa.types.is_string(column.type):
            column.validate(full=True)
        if column.type != mapping.arrow:
            column = _cast(column, mapping.arrow)
    except pa.ArrowInvalid as error:
        raise _not_kept(mapping, table) from error
    if not _is_in_range(column):
        raise _not_kept(mapping, table)
    return column


def _is_whole_float(found: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(found == pa.int64() and wanted == pa.float64())


def _unexpected(found: pa.DataType, mapping: ColumnMapping, table: SourceTable) -> Exception:
    if table.kind == "sqlite":
        what = f"cells of another storage class than {mapping.arrow} needs: together they come as {found}"
        return ValueNotKeptError(table.source, str(table), mapping.name, what)
    what = f"column {mapping.name} came as {mapping.wire} and now comes as {found}"
    return SourceChangedError(table.source, str(table), what)


def _not_kept(mapping: ColumnMapping, table: SourceTable) -> ValueNotKeptError:
    # Arrow's own text would quote the value.
    what = f"a value that {mapping.arrow} cannot keep{_why(mapping.arrow)}"
    return ValueNotKeptError(table.source, str(table), mapping.name, what)


def _why(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        kind = kind.value_type
    if pa.types.is_temporal(kind):
        return ", such as infinity, a zero date or a year outside 1 to 9999"
    if pa.types.is_decimal(kind):
        return ", such as NaN, infinity or more digits than it has"
    return ", such as bytes that are no UTF-8" if pa.types.is_string(kind) else ""


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_list(target):
        return _cast_elements(column, target)
    source = column.type
    if pa.types.is_string(source) and pa.types.is_decimal(target):
        return _text_to_decimal(column, target)
    if pa.types.is_decimal(target) and (pa.types.is_floating(source) or pa.types.is_integer(source)):
        return _float_to_decimal(pc.cast(column, pa.float64()), target)
    if pa.types.is_string(source) and target == UTC:
        return _text_to_moment(column)
    if pa.types.is_integer(source) and pa.types.is_boolean(target):
        limits = pc.min_max(column).as_py()
        if limits["min"] < 0 or limits["max"] > 1:
            raise pa.ArrowInvalid("not 0 or 1")
    return pc.cast(column, target)


def _cast_elements(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        # `values` with the offsets, not `flatten`, which would leave out what stands behind a NULL.
        values = _cast(pa.chunked_array([chunk.values]), target.value_type).combine_chunks()
        offsets = pa.Array.from_buffers(pa.int32(), len(chunk) + 1, [None, chunk.buffers()[1]], offset=chunk.offset)
        chunks.append(pa.ListArray.from_arrays(offsets, values, type=target, mask=pc.is_null(chunk)))
    return pa.chunked_array(chunks, target)


def _text_to_decimal(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest <= MOST_DIGITS:
        return pc.cast(column, target)
    if longest > _MOST_DIGITS_256 + 1:
        raise pa.ArrowInvalid("more digits than any decimal has")
    return pc.cast(pc.cast(column, pa.decimal256(_MOST_DIGITS_256, target.scale)), target)


def _float_to_decimal(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    decimals = pc.cast(column, target)
    # By way of text, because Arrow's own cast from decimal to float is off in the last digit for one in ten.
    back = pc.cast(pc.cast(decimals, pa.string()), pa.float64())
    if not pc.all(pc.equal(back, column)).as_py():
        raise pa.ArrowInvalid("more digits than declared")
    return decimals


def _text_to_moment(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, UTC)
    except pa.ArrowInvalid:
        # Without a zone it is UTC, in which sessions run.
        return pc.cast(pc.cast(column, LOCAL), UTC)


def _is_in_range(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if pa.types.is_list(kind):
        inner = kind.value_type
        return not pa.types.is_temporal(inner) or all(
            _is_in_range(pa.chunked_array([chunk.flatten()], inner)) for chunk in column.chunks
        )
    if not pa.types.is_temporal(kind):
        return True
    days = pa.types.is_date32(kind)
    limits = pc.min_max(pc.cast(column, pa.int32() if days else pa.int64()))
    first, last = limits["min"].as_py(), limits["max"].as_py()
    unit = 1 if days else _DAY_US
    return first is None or bool(first // unit >= _FIRST_DAY and last // unit <= _LAST_DAY)
