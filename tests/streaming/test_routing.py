import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import fnv1a_64
from dw_platform.log import Records
from dw_platform.log.columns import Columns
from dw_platform.streaming.routing import partition_of, split, tail


def rows(records: Records) -> list[tuple[object, ...]]:
    count = len(records)
    columns = Columns.of(records)
    return list(
        zip(
            columns.values.to_pylist(),
            columns.keys.to_pylist() if columns.keys is not None else [None] * count,
            [dict(found or ()) for found in columns.headers.to_pylist()]
            if columns.headers is not None
            else [{}] * count,
            columns.times.to_pylist() if columns.times is not None else [None] * count,
            strict=True,
        )
    )


@settings(deadline=None)
@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1, max_size=300),
    partitions=st.integers(1, 9),
    keyless=st.integers(0, 8),
    with_headers=st.booleans(),
    with_times=st.booleans(),
)
def test_every_record_goes_once_to_the_partition_of_its_key_and_keeps_its_order(
    keys: list[bytes | None], partitions: int, keyless: int, *, with_headers: bool, with_times: bool
) -> None:
    numbers = range(len(keys))
    records = Records(
        [b"%d" % number for number in numbers],
        keys=keys,
        headers=[{"n": b"%d" % number} if number % 3 else None for number in numbers] if with_headers else None,
        timestamps_ms=[1_000 + number for number in numbers] if with_times else None,
    )
    expected: dict[int, list[tuple[object, ...]]] = {}
    for row in rows(records):
        key = row[1]
        assert key is None or isinstance(key, bytes)
        chosen = keyless % partitions if key is None else fnv1a_64(key) % partitions
        expected.setdefault(chosen, []).append(row)
    parts = split(records, partitions, keyless % partitions)
    assert [number for number, _ in parts] == sorted(expected)
    assert {number: rows(part) for number, part in parts} == expected


def test_a_batch_without_keys_goes_to_one_partition_as_it_is() -> None:
    records = Records([b"a", b"b"])
    assert split(records, 4, 2) == [(2, records)]


def test_a_batch_of_one_key_is_not_copied() -> None:
    records = Records([b"x"] * 500, keys=[b"same"] * 500)
    assert split(records, 8, 0) == [(partition_of(b"same", 8), records)]


def test_slices_of_arrow_arrays_and_times_in_numpy_are_split_like_lists() -> None:
    values = pa.array([b"%d" % number for number in range(1_000)])
    records = Records(values[100:400], keys=values[200:500], timestamps_ms=np.arange(300))  # type: ignore[arg-type]
    parts = split(records, 3, 0)
    assert sorted(row for _, part in parts for row in rows(part)) == sorted(rows(records))  # type: ignore[type-var]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_tail_of_a_batch_begins_where_it_is_asked_to(first: int) -> None:
    records = Records([b"a", b"b", b"c"], keys=[b"k", None, b"l"], headers=[None, {"h": b"1"}, None])
    assert rows(tail(records, first)) == rows(records)[first:]
