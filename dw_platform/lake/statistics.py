"""File statistics for data skipping, taken from a Parquet footer that the writer has just made.

Every bound must hold for every engine that skips by it, so a bound that cannot be given safely is left out:
* timestamps are bounded outwards to whole milliseconds;
* decimals are exact JSON numbers, because a detour through float moves a 38-digit bound past its own rows;
* long strings are cut to 32 characters, a cut maximum gets a character after it that sorts above all others;
* minus zero equals zero, but is another value in a Parquet dictionary, and Spark skips row groups by those as well.
  So floats get no dictionary;
* NaN sorts above every number, but Parquet leaves it out of its bounds, and Spark skips row groups by those. So the
  footer gets no bounds for floats at all; they are computed here, and a column with NaN gets no maximum.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STRING_PREFIX = 32
# Enough to see whether values repeat, and a millisecond's work.
_SAMPLED_ROWS = 4_096
_DISTINCT_SHARE = 0.5
DEFAULT_INDEXED_COLUMNS = 32  # Delta's own default of delta.dataSkippingNumIndexedCols
_LAST_CHARACTER = "\U0010ffff"
# A list of column paths as SQL writes it: names may stand in backticks, and then contain dots and commas.
_LISTED = re.compile(r"(?:`(?:[^`]|``)+`|[^`,])+")
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Path = tuple[str, ...]
Bound = Any
Leaf = tuple[int, Path, pa.DataType]


def indexed_columns(schema: pa.Schema, configuration: Mapping[str, str]) -> frozenset[Path]:
    """Return the leaf columns whose bounds the table wants."""
    leaves = [path for _, path, _ in scalar_leaves(schema)]
    if named := configuration.get("delta.dataSkippingStatsColumns"):
        wanted = [_named_path(name) for name in _LISTED.findall(named)]
        return frozenset(path for path in leaves if any(path[: len(name)] == name for name in wanted))
    count = int(configuration.get("delta.dataSkippingNumIndexedCols", DEFAULT_INDEXED_COLUMNS))
    return frozenset(leaves if count < 0 else leaves[:count])


def _named_path(name: str) -> Path:
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(name.strip()))


def scalar_leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """Yield (Parquet column index, path, type) of every column outside lists and maps.

    Counted in the footer's own order rather than looked up by its dotted name, which a column `a.b` and a
    field `b` of a struct `a` would share.
    """
    index = 0
    for field in schema:
        index = yield from _leaves_below(field.type, (field.name,), index)


def _leaves_below(kind: pa.DataType, path: Path, index: int) -> Any:
    if pa.types.is_struct(kind):
        for child in kind:
            index = yield from _leaves_below(child.type, (*path, child.name), index)
        return index
    if pa.types.is_nested(kind):
        return index + _leaf_count(kind)
    yield index, path, kind
    return index + 1


def _leaf_count(kind: pa.DataType) -> int:
    return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


class FloatBounds:
    """Bounds and NULLs of the top-level float columns, gathered while their rows are written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._lows: dict[str, float] = {}
        self._highs: dict[str, float] = {}
        self._nulls = dict.fromkeys(self._names, 0)
        self._with_nan: set[str] = set()

    def update(self, rows: pa.Table) -> None:
        """Take in the rows of one row group."""
        for name in self._names:
            column = rows[name]
            self._nulls[name] += column.null_count
            if pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(name)
                column = column.filter(pc.invert(pc.is_nan(column)))
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self._lows[name] = min(bounds["min"], self._lows.get(name, math.inf))
                self._highs[name] = max(bounds["max"], self._highs.get(name, -math.inf))

    def place(self, name: str, lows: dict[str, Any], highs: dict[str, Any], nulls: dict[str, Any]) -> None:
        """Write what is known about column `name` into the three trees."""
        nulls[name] = self._nulls[name]
        # JSON has no infinity. Minus zero is below zero for some engines and equal to it for others, so a bound of
        # zero gets the sign that holds for both.
        if math.isfinite(low := self._lows.get(name, math.nan)):
            lows[name] = low or -0.0
        if name not in self._with_nan and math.isfinite(high := self._highs.get(name, math.nan)):
            highs[name] = high or 0.0


def footer_columns(schema: pa.Schema) -> list[str]:
    """Return the Parquet columns that may have statistics in the footer: all but floats."""
    floats = {".".join(path) for _, path, kind in scalar_leaves(schema) if pa.types.is_floating(kind)}
    # A column `a.b` and a field b of a struct a have one name here; if either is a float, both go without.
    return [name for _, path, _ in scalar_leaves(schema) if (name := ".".join(path)) not in floats]


@functools.lru_cache(maxsize=64)
def dictionary_columns(schema: pa.Schema) -> list[str]:
    """Return the Parquet columns that may have a dictionary: all but floats, at any depth."""
    sample = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sample)
    columns = pq.read_metadata(pa.BufferReader(sample.getvalue())).schema
    leaves = [columns.column(index) for index in range(len(columns))]
    return [leaf.path for leaf in leaves if leaf.physical_type not in {"FLOAT", "DOUBLE"}]


def without_distinct(names: Sequence[str], rows: pa.Table) -> list[str]:
    """Return the columns among `names` in which values repeat, as far as the first rows tell.

    Where they do not, a dictionary is built for nothing: a fifth of the time that a file of mixed columns takes.
    """
    sample = rows.slice(0, _SAMPLED_ROWS)

    def repeats(name: str) -> bool:
        if name not in sample.schema.names or pa.types.is_nested(sample.schema.field(name).type):
            return True
        return int(pc.count_distinct(sample[name]).as_py()) <= len(sample) * _DISTINCT_SHARE

    return [name for name in names if repeats(name)]


def file_statistics(
    footer: pq.FileMetaData, schema: pa.Schema, *, indexed: frozenset[Path], floats: FloatBounds
) -> str:
    """Return the `stats` document of an add action."""
    nulls: dict[str, Any] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for index, path, kind in scalar_leaves(schema):
        if path not in indexed:
            continue
        if pa.types.is_floating(kind):
            # Floats inside structs get no bounds: leaving one out is always right.
            if len(path) == 1:
                floats.place(path[0], lows, highs, nulls)
            continue
        chunks = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
        statistics = [(chunk.statistics, chunk.num_values) for chunk in chunks]
        if all(entry is not None and entry.has_null_count for entry, _ in statistics):
            _place(nulls, path, sum(entry.null_count for entry, _ in statistics))
        render = _renderer(kind)
        bounded = [entry for entry, values in statistics if entry is None or entry.null_count < values]
        if render is None or not bounded or any(entry is None or not entry.has_min_max for entry in bounded):
            continue
        low = render(min(_value(entry, kind, lowest=True) for entry in bounded), upper=False)
        high = render(max(_value(entry, kind, lowest=False) for entry in bounded), upper=True)
        if low is not None:
            _place(lows, path, low)
        if high is not None:
            _place(highs, path, high)
    return dump_exact({"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls})


def dump_exact(value: Any) -> str:
    """Return JSON in which a Decimal is a number with all its digits."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump_exact(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)


def _place(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _value(statistics: pq.Statistics, kind: pa.DataType, *, lowest: bool) -> Any:
    if pa.types.is_temporal(kind):  # raw, because Python's own dates end at the year 9999
        return statistics.min_raw if lowest else statistics.max_raw
    return statistics.min if lowest else statistics.max


def _timestamp(micros: int, *, upper: bool, zone: str) -> str | None:
    millis = -(-micros // 1000) if upper else micros // 1000
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0") + f"{millis % 1000:03d}{zone}"


def _instant(micros: int, *, upper: bool) -> str | None:
    return _timestamp(micros, upper=upper, zone="Z")


def _local_time(micros: int, *, upper: bool) -> str | None:
    return _timestamp(micros, upper=upper, zone="")


def _date(days: int, *, upper: bool) -> str | None:  # noqa: ARG001  both bounds of a date are exact
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _text(text: str, *, upper: bool) -> str:
    if len(text) <= STRING_PREFIX:
        return text
    if not upper:
        return text[:STRING_PREFIX]
    # The cut must be followed by something smaller than the tie-breaker, or the bound would not be one.
    end = STRING_PREFIX
    while end < len(text) and text[end] == _LAST_CHARACTER:
        end += 1
    return text if end == len(text) else text[:end] + _LAST_CHARACTER


def _number(number: int | Decimal, *, upper: bool) -> int | Decimal:  # noqa: ARG001  both bounds are exact
    return number


def _renderer(kind: pa.DataType) -> Callable[..., Bound] | None:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _number
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local_time
    return None
