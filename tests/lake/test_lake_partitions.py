from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.lake.partitions import (
    Partition,
    UnsupportedPartitionError,
    check_partitioning,
    partition_text,
    split_by_partition,
)


@given(
    st.lists(
        st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(-3, 3), st.integers(0, 99)), max_size=40
    )
)
def test_splitting_loses_no_row_and_mixes_none(rows: list[tuple[str | None, int | None, int]]) -> None:
    columns: Sequence[Any] = list(zip(*rows, strict=True)) or ([], [], [])
    batch = pa.record_batch(
        {
            "p": pa.array(columns[0], pa.string()),
            "q": pa.array(columns[1], pa.int64()),
            "v": pa.array(columns[2], pa.int64()),
        }
    )
    found = []
    for partition, part in split_by_partition(batch, ["p", "q"]):
        assert part.schema.names == ["v"]
        values = dict(partition.values)
        found += [(values["p"], values["q"], v) for v in part.column("v").to_pylist()]
    expected = [(p or None, None if q is None else str(q), v) for p, q, v in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), None),
        ("", pa.string(), None),
        ("a/b=c%20\U0001f600\n", pa.string(), "a/b=c%20\U0001f600\n"),
        (True, pa.bool_(), "true"),
        (-7, pa.int8(), "-7"),
        (Decimal("1E+2"), pa.decimal128(5, 0), "100"),
        (Decimal("-0.10"), pa.decimal128(5, 2), "-0.10"),
        (date(999, 1, 2), pa.date32(), "0999-01-02"),
        (datetime(999, 1, 2, 3, 4, 5, 6, tzinfo=UTC), pa.timestamp("us", "UTC"), "0999-01-02T03:04:05.000006Z"),
        (datetime(1969, 1, 2, 3, 4, 5), pa.timestamp("us"), "1969-01-02 03:04:05.000000"),  # noqa: DTZ001 - no zone
    ],
)
def test_values_are_written_as_the_protocol_says(value: Any, kind: pa.DataType, text: str | None) -> None:
    assert partition_text("p", value, kind) == text


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.list_(pa.int64())])
def test_a_type_without_text_form_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedPartitionError) as caught:
        check_partitioning(pa.schema([("p", kind), ("v", pa.int64())]), ["p"])
    assert caught.value.column == "p"


def test_unknown_columns_and_all_columns_are_refused() -> None:
    schema = pa.schema([("p", pa.int64())])
    with pytest.raises(InvalidValueError, match="one of p"):
        check_partitioning(schema, ["q"])
    with pytest.raises(InvalidValueError, match="fewer than all columns"):
        check_partitioning(schema, ["p"])


@given(st.text())
def test_a_folder_is_plain_ascii_below_the_table_whatever_the_value(value: str) -> None:
    folder = Partition((("p", value),)).folder
    assert folder.isascii()
    assert folder.count("/") == 1
    assert ".." not in folder.split("=")[1].split("/")
    assert not {"%", "?", "#", " ", "\\", "\0"} & set(folder)


@given(st.text(), st.text())
def test_different_values_have_different_folders(one: str, two: str) -> None:
    assert (Partition((("p", one),)).folder == Partition((("p", two),)).folder) == (one == two)
