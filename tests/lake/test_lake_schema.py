from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.lake.schema import (
    InvalidColumnsError,
    SchemaMismatchError,
    UnsupportedTypeError,
    ValueDoesNotFitError,
    check_names,
    conform,
    fits,
    needed_features,
    normal_schema,
    plan_schema,
    same_columns,
    without_rules,
)

SCALARS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(),
    pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 0),
]  # fmt: skip
SOURCES = [
    *SCALARS, pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.large_string(), pa.string_view(),
    pa.large_binary(), pa.binary_view(), pa.binary(4), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "Asia/Tokyo"),
    pa.dictionary(pa.int8(), pa.string()), pa.decimal32(5, 1), pa.decimal64(12, 3), pa.decimal256(38, 5),
]  # fmt: skip


def nested(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        children.map(pa.list_),
        children.map(pa.large_list),
        children.map(lambda kind: pa.map_(pa.string(), kind)),
        children.map(lambda kind: pa.struct([("x", kind), ("y", pa.int64())])),
    )


arrow_types = st.recursive(st.sampled_from(SOURCES), nested, max_leaves=4)
schemas = st.dictionaries(st.sampled_from("abcdef"), arrow_types, min_size=1).map(
    lambda columns: pa.schema(list(columns.items()))
)


@given(schemas)
def test_a_normal_schema_is_its_own_normal_schema(schema: pa.Schema) -> None:
    normal = normal_schema(schema)
    assert normal_schema(normal).equals(normal)


@given(schemas)
def test_rows_always_fit_the_table_that_was_made_for_them(schema: pa.Schema) -> None:
    normal = normal_schema(schema)
    assert plan_schema("t", normal, normal).added == ()


@given(schemas)
def test_an_empty_batch_of_any_type_takes_the_normal_form(schema: pa.Schema) -> None:
    normal = normal_schema(schema)
    assert conform(pa.RecordBatch.from_pylist([], schema), normal).schema.types == normal.types


@given(st.sampled_from(SCALARS), st.sampled_from(SCALARS), st.sampled_from(SCALARS))
def test_fitting_is_transitive_and_never_goes_both_ways(one: pa.DataType, two: pa.DataType, three: pa.DataType) -> None:
    if fits(one, two) and fits(two, three):
        assert fits(one, three)
    if fits(one, two) and fits(two, one):
        assert one == two


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_widened_values_come_out_as_they_went_in(values: list[int]) -> None:
    batch = pa.record_batch({"c": pa.array(values, pa.int32())})
    assert conform(batch, pa.schema([("c", pa.int64())])).column("c").to_pylist() == values


@given(schemas, schemas)
def test_a_plan_keeps_every_old_column_and_takes_in_every_new_one(old: pa.Schema, new: pa.Schema) -> None:
    existing, incoming = normal_schema(old), normal_schema(new)
    shared = set(existing.names) & set(incoming.names)
    if not all(fits(incoming.field(name).type, existing.field(name).type) for name in shared):
        with pytest.raises(SchemaMismatchError):
            plan_schema("t", existing, incoming, missing="null")
        return
    plan = plan_schema("t", existing, incoming, missing="null")
    assert plan.target.names[: len(existing)] == existing.names
    assert set(plan.target.names) == {*existing.names, *incoming.names}
    assert all(field.nullable for field in plan.added)


def table(*fields: tuple[str, pa.DataType] | pa.Field) -> pa.Schema:
    return pa.schema(list(fields))


@pytest.mark.parametrize(
    ("arriving", "stored"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(12, 2), pa.decimal128(10, 2)),
        (pa.decimal128(10, 4), pa.decimal128(10, 2)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
    ],
)
def test_a_type_that_would_lose_something_is_refused_with_both_schemas(
    arriving: pa.DataType, stored: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        plan_schema("shop.orders", table(("c", stored)), table(("c", arriving)))
    text = str(caught.value)
    assert caught.value.problems == (f"column c is {arriving}, the table has {stored}",)
    assert f"table: c {stored}" in text
    assert f"data:  c {arriving}" in text


def test_a_removed_column_is_refused_unless_nulls_were_asked_for() -> None:
    existing, incoming = table(("a", pa.int64()), ("b", pa.int64())), table(("a", pa.int64()))
    with pytest.raises(SchemaMismatchError, match="column b is missing"):
        plan_schema("t", existing, incoming)
    assert plan_schema("t", existing, incoming, missing="null").added == ()


def test_nulls_never_fill_a_required_column() -> None:
    existing = table(("a", pa.int64()), pa.field("b", pa.int64(), nullable=False))
    with pytest.raises(SchemaMismatchError, match="column b is missing"):
        plan_schema("t", existing, table(("a", pa.int64())), missing="null")


def test_a_column_that_the_engine_computes_may_be_absent() -> None:
    existing = table(("a", pa.int64()), pa.field("b", pa.int64(), nullable=False))
    assert plan_schema("t", existing, table(("a", pa.int64())), filled=frozenset({"b"})).target == existing


def test_a_new_column_that_differs_only_in_case_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="column ID differs from id only in case"):
        plan_schema("t", table(("id", pa.int64())), table(("id", pa.int64()), ("ID", pa.int64())))


def test_a_column_that_arrives_twice_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="column a appears twice"):
        plan_schema("t", table(("a", pa.int64())), table(("a", pa.int64()), ("a", pa.int64())))


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a(b)", "a=b", "a\tb", "a\nb", ""])
def test_a_name_that_spark_refuses_later_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidColumnsError, match="Rename the columns"):
        check_names("t", table((name, pa.int64())))
    with pytest.raises(InvalidColumnsError):
        check_names("t", table(("outer", pa.struct([(name, pa.int64())]))))


def test_names_that_differ_only_in_case_and_a_table_without_columns_are_refused() -> None:
    with pytest.raises(InvalidColumnsError, match="only in case"):
        check_names("t", table(("a", pa.int64()), ("A", pa.int64())))
    with pytest.raises(InvalidColumnsError, match="at least one column"):
        check_names("t", pa.schema([]))


def test_dots_and_letters_of_any_language_are_fine_in_names() -> None:
    check_names("t", table(("a.b", pa.int64()), ("größe", pa.int64()), ("名前", pa.int64())))


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.duration("us"), pa.null(), pa.month_day_nano_interval(), pa.decimal256(76, 0)]
)
def test_a_type_without_counterpart_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        normal_schema(table(("outer", pa.struct([("inner", kind)]))))
    assert caught.value.column == "outer.inner"


def test_the_largest_unsigned_number_survives() -> None:
    batch = pa.record_batch({"c": pa.array([2**64 - 1], pa.uint64())})
    assert conform(batch, normal_schema(batch.schema)).column("c").to_pylist() == [Decimal(2**64 - 1)]


def test_nanoseconds_that_would_be_cut_off_are_refused_by_column() -> None:
    batch = pa.record_batch({"at": pa.array([1_000, 1_001], pa.timestamp("ns"))})
    with pytest.raises(ValueDoesNotFitError) as caught:
        conform(batch, normal_schema(batch.schema))
    assert caught.value.column == "at"


def test_struct_fields_are_matched_by_name_also_inside_lists_and_slices() -> None:
    swapped = pa.struct([("b", pa.int32()), ("a", pa.string())])
    target = pa.schema([("s", pa.struct([("a", pa.string()), ("b", pa.int64())]))])
    rows = [{"b": 1, "a": "x"}, None, {"b": 3, "a": "z"}]
    batch = pa.record_batch({"s": pa.array(rows, swapped)}).slice(1)
    assert conform(batch, target).column("s").to_pylist() == [None, {"a": "z", "b": 3}]
    listed = pa.record_batch({"s": pa.array([rows], pa.list_(swapped))})
    in_list = pa.schema([("s", pa.list_(target.field("s").type))])
    assert conform(listed, in_list).column("s").to_pylist() == [[{"a": "x", "b": 1}, None, {"a": "z", "b": 3}]]


def test_a_time_without_zone_needs_its_feature_and_with_a_required_column_another() -> None:
    local = ("at", pa.list_(pa.timestamp("us")))
    assert needed_features(table(("a", pa.int64()))) == []
    assert needed_features(table(local)) == ["timestampNtz"]
    assert needed_features(table(local, pa.field("k", pa.int64(), nullable=False))) == ["timestampNtz", "invariants"]


def test_order_and_nullability_do_not_make_other_columns() -> None:
    one = table(pa.field("a", pa.int64(), nullable=False), ("b", pa.string()))
    assert same_columns(one, table(("b", pa.string()), ("a", pa.int64())))
    assert not same_columns(one, table(("b", pa.string()), ("a", pa.int32())))
    assert not same_columns(one, table(("a", pa.int64())))


def test_rules_can_be_taken_off_at_any_depth() -> None:
    strict = pa.field("x", pa.int64(), nullable=False)
    schema = pa.schema([("s", pa.struct([strict])), ("l", pa.list_(pa.struct([strict]))), strict])
    loose = without_rules(normal_schema(schema))
    assert loose.field("x").nullable
    assert loose.field("s").type.field("x").nullable
    assert loose.field("l").type.value_type.field("x").nullable
