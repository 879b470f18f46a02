import json
import math
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.lake.location import TableLocation
from dw_platform.lake.parquet import WriteJob, write_batches
from dw_platform.lake.settings import S3Settings
from dw_platform.lake.statistics import dictionary_columns, footer_columns, indexed_columns, without_distinct

LAST = "\U0010ffff"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999


def texts() -> st.SearchStrategy[str]:
    """Texts around the cut at 32 characters, with the highest character on either side of it."""
    alphabet = st.sampled_from(["a", "b", "é", "\uffff", LAST])
    return st.text(alphabet, max_size=40) | st.text(alphabet, min_size=2, max_size=3).map(lambda end: "a" * 31 + end)


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tiny": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "exact": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "price": (pa.decimal128(12, 2), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "text": (pa.string(), texts()),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", "UTC"), MICROS),
    "local": (pa.timestamp("us"), MICROS),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=4)),
    "a.b": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
}
rows_of_all_types = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}))


def statistics_of(table: pa.Table, *, batches: int = 1, configuration: dict[str, str] | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job = WriteJob(
            location=TableLocation(folder, S3Settings()),
            job_id="job",
            schema=table.schema,
            indexed=indexed_columns(table.schema, configuration or {}),
        )
        size = max(1, math.ceil(len(table) / batches))
        files = list(write_batches(job, table.to_batches(max_chunksize=size)))
    [file] = files
    document: dict[str, Any] = json.loads(file.statistics, parse_float=Decimal, parse_int=Decimal)
    return document


def as_read(name: str, bound: Any) -> Any:
    """A bound as a reader takes it: floats as floats, the rest exactly, so that no rounding hides a mistake."""
    if name in {"real", "double"}:
        return float(bound)
    if name in {"moment", "local"}:
        zone = "Z" if name == "moment" else ""
        assert bound.endswith(zone)
        moment = datetime.strptime(bound.removesuffix("Z"), "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=1)
    return date.fromisoformat(bound) if name == "day" else bound


def comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    return value


@settings(max_examples=60)
@given(rows_of_all_types.filter(bool))
def test_every_value_of_every_type_lies_between_the_bounds(rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
    table = pa.Table.from_pylist(rows, schema)
    found = statistics_of(table, batches=3)
    assert found["numRecords"] == len(rows)
    for name in COLUMNS:
        values = table[name].to_pylist()
        assert found["nullCount"][name] == values.count(None)
        low, high = (found[side].get(name) for side in ("minValues", "maxValues"))
        for value in (comparable(value) for value in values if value is not None):
            above_all = isinstance(value, float) and (math.isnan(value) or value == math.inf)
            below_all = isinstance(value, float) and value == -math.inf
            assert low is None or above_all or (not below_all and as_read(name, low) <= value)
            assert high is None or below_all or (not above_all and value <= as_read(name, high))


@pytest.mark.parametrize("name", ["tiny", "long", "exact", "price", "text", "day", "moment", "local", "double", "a.b"])
def test_types_that_engines_skip_by_do_have_bounds(name: str) -> None:
    kind, _ = COLUMNS[name]
    value = {"text": "x", "day": date(1969, 7, 20), "moment": -1, "local": -1, "double": -0.5}.get(name, Decimal(7))
    found = statistics_of(pa.table({name: pa.array([None, value]).cast(kind)}))
    assert name in found["minValues"]
    assert name in found["maxValues"]


def test_a_38_digit_decimal_keeps_all_its_digits() -> None:
    value = Decimal("12345678901234567890123456789.012345678")
    table = pa.table({"d": pa.array([value], pa.decimal128(38, 9))})
    with tempfile.TemporaryDirectory() as folder:
        job = WriteJob(
            location=TableLocation(folder, S3Settings()), job_id="j", schema=table.schema, indexed=frozenset({("d",)})
        )
        [file] = write_batches(job, table.to_batches())
    assert '"minValues":{"d":12345678901234567890123456789.012345678}' in file.statistics


def test_instants_before_1970_are_rounded_outwards_to_milliseconds() -> None:
    found = statistics_of(pa.table({"at": pa.array([-1, -1500], pa.timestamp("us", "UTC"))}))
    assert found["minValues"]["at"] == "1969-12-31T23:59:59.998Z"
    assert found["maxValues"]["at"] == "1970-01-01T00:00:00.000Z"


def test_years_beyond_four_digits_have_no_bound_rather_than_a_wrong_one() -> None:
    far = 300_000_000_000_000_000
    found = statistics_of(pa.table({"at": pa.array([0, far], pa.timestamp("us", "UTC")), "n": [1, 2]}))
    assert found["minValues"]["at"] == "1970-01-01T00:00:00.000Z"
    assert "at" not in found["maxValues"]


def test_a_nan_leaves_no_upper_bound_and_nothing_in_the_footer() -> None:
    table = pa.table({"f": [1.0, math.nan], "s": pa.array([{"g": math.nan}, {"g": 1.0}])})
    found = statistics_of(table)
    assert found["minValues"] == {"f": Decimal(1)}
    assert found["maxValues"] == {}
    with tempfile.TemporaryDirectory() as folder:
        job = WriteJob(location=TableLocation(folder, S3Settings()), job_id="j", schema=table.schema)
        [file] = write_batches(job, table.to_batches())
        footer = pq.read_metadata(f"{folder}/{file.path}")
    assert [footer.row_group(0).column(index).statistics for index in range(2)] == [None, None]


def test_a_bound_of_zero_holds_for_minus_zero_too() -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = WriteJob(
            location=TableLocation(folder, S3Settings()),
            job_id="j",
            schema=pa.schema([("f", pa.float64())]),
            indexed=frozenset({("f",)}),
        )
        [file] = write_batches(job, pa.table({"f": [0.0, -0.0]}).to_batches())
    assert '"minValues":{"f":-0.0},"maxValues":{"f":0.0}' in file.statistics


def test_a_float_named_like_a_struct_field_keeps_both_out_of_the_footer() -> None:
    clash = pa.schema([("a.b", pa.float64()), ("a", pa.struct([("b", pa.int64()), ("c", pa.int64())]))])
    assert footer_columns(clash) == ["a.c"]


def test_fields_of_structs_have_bounds_and_elements_of_lists_and_maps_have_none() -> None:
    table = pa.table(
        {
            "list": pa.array([[1, 2]], pa.list_(pa.int64())),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"x": 5, "y": {"z": "deep"}}]),
        }
    )
    found = statistics_of(table)
    assert found["minValues"] == {"struct": {"x": Decimal(5), "y": {"z": "deep"}}}
    assert found["nullCount"] == {"struct": {"x": 0, "y": {"z": 0}}}


def test_only_the_first_columns_are_indexed_unless_the_table_says_otherwise() -> None:
    wide = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])
    assert len(indexed_columns(wide, {})) == 32
    assert len(indexed_columns(wide, {"delta.dataSkippingNumIndexedCols": "-1"})) == 40
    assert indexed_columns(wide, {"delta.dataSkippingNumIndexedCols": "0"}) == frozenset()


def test_named_statistics_columns_may_be_quoted_and_may_name_a_whole_struct() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))])
    schema = pa.schema([("a.b", pa.int64()), ("s", inner), ("c,d", pa.int64()), ("other", pa.int64())])
    named = indexed_columns(schema, {"delta.dataSkippingStatsColumns": "`a.b`, s.y,`c,d`"})
    assert named == {("a.b",), ("s", "y", "z"), ("c,d",)}
    assert indexed_columns(schema, {"delta.dataSkippingStatsColumns": "s"}) == {("s", "x"), ("s", "y", "z")}


def test_floats_get_no_dictionary_at_any_depth() -> None:
    deep = pa.list_(pa.struct([("f", pa.float32()), ("n", pa.int8())]))
    columns = dictionary_columns(pa.schema([("f", pa.float64()), ("s", pa.string()), ("deep", deep)]))
    assert columns == ["s", "deep.list.element.n"]


def test_columns_whose_values_do_not_repeat_get_no_dictionary() -> None:
    rows = pa.table(
        {
            "id": range(10_000),
            "country": ["DE", "FR", "IT", None] * 2_500,
            "empty": pa.nulls(10_000, pa.string()),
            "tags": [[number] for number in range(10_000)],
        }
    )
    names = dictionary_columns(rows.schema)
    assert without_distinct(names, rows) == ["country", "empty", "tags.list.element"]
