import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dw_platform.lake import parquet
from dw_platform.lake.location import TableLocation
from dw_platform.lake.parquet import (
    MAX_OPEN_FILES,
    NullInRequiredColumnError,
    WriteJob,
    new_job_id,
    remove_job_files,
    write_batches,
)
from dw_platform.lake.schema import ValueDoesNotFitError
from dw_platform.lake.settings import S3Settings


def job(folder: Path, schema: pa.Schema, **options: Any) -> WriteJob:
    location = TableLocation(str(folder), S3Settings())
    return WriteJob(location=location, job_id=new_job_id(), schema=schema, **options)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_rows_come_back_with_their_count_and_size(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "v": ["a", None, "c"]})
    [file] = write_batches(job(tmp_path, rows.schema), rows.to_batches(max_chunksize=1))
    assert (file.rows, file.size) == (3, (tmp_path / file.path).stat().st_size)
    assert pq.read_table(tmp_path / file.path).to_pylist() == rows.to_pylist()


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    empty = pa.record_batch({"id": pa.array([], pa.int64())})
    assert list(write_batches(job(tmp_path, empty.schema), [empty])) == []
    assert files_in(tmp_path) == []


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": pa.array(range(parquet.ROW_GROUP_ROWS), pa.int64())})
    files = list(write_batches(job(tmp_path, batch.schema, target_file_bytes=1), [batch, batch]))
    assert [file.rows for file in files] == [parquet.ROW_GROUP_ROWS] * 2


def test_more_partitions_than_open_files_lose_no_row(tmp_path: Path) -> None:
    partitions = MAX_OPEN_FILES * 3
    keys = [number % partitions for number in range(partitions * 4)]
    rows = pa.table({"p": pa.array(keys, pa.int32()), "v": pa.array(range(len(keys)), pa.int64())})
    files = list(write_batches(job(tmp_path, rows.schema, partition_by=("p",)), rows.to_batches(max_chunksize=50)))
    found = [
        (int(json.loads(file.partition_values)["p"]), v)
        for file in files
        for v in pq.ParquetFile(tmp_path / file.path).read()["v"].to_pylist()
    ]
    assert sorted(found) == sorted((row["p"], row["v"]) for row in rows.to_pylist())


def test_rows_waiting_for_their_partition_are_written_out_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GATHERED_BYTES", 10_000)
    rows = pa.table({"p": pa.array([n % 4 for n in range(8_000)], pa.int32()), "v": pa.array(range(8_000), pa.int64())})
    files = list(write_batches(job(tmp_path, rows.schema, partition_by=("p",)), rows.to_batches(max_chunksize=1_000)))
    assert [file.rows for file in files] == [2_000] * 4
    groups = [pq.read_metadata(tmp_path / file.path).num_row_groups for file in files]
    assert max(groups) > 1


@pytest.mark.parametrize("second", [[3, None], None])
def test_a_null_in_a_required_column_is_refused_and_the_files_are_removed(
    tmp_path: Path, second: list[int | None] | None
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    good = pa.record_batch({"id": [1, 2], "v": [1, 2]})
    bad = pa.record_batch({"v": [1, 2], **({"id": pa.array(second, pa.int64())} if second else {})})
    with pytest.raises(NullInRequiredColumnError) as caught:
        list(write_batches(job(tmp_path, schema), [good, bad]))
    assert (caught.value.column, caught.value.count) == ("id", 1 if second else 2)
    assert files_in(tmp_path) == []


def test_an_empty_text_counts_as_null_in_a_required_partition_column(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), ("v", pa.int64())])
    rows = pa.record_batch({"p": ["a", ""], "v": [1, 2]})
    with pytest.raises(NullInRequiredColumnError, match="column p"):
        list(write_batches(job(tmp_path, schema, partition_by=("p",)), [rows]))


def test_a_source_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": pa.array(range(parquet.ROW_GROUP_ROWS), pa.int64())})

    def source() -> Iterator[pa.RecordBatch]:
        yield batch
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        list(write_batches(job(tmp_path, batch.schema, target_file_bytes=1), source()))
    assert files_in(tmp_path) == []


def test_a_value_that_does_not_fit_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueDoesNotFitError):
        list(write_batches(job(tmp_path, pa.schema([("n", pa.int8())])), [pa.record_batch({"n": [1, 1_000]})]))
    assert files_in(tmp_path) == []


def test_a_sweep_takes_the_files_of_its_own_job_and_no_others(tmp_path: Path) -> None:
    rows = pa.table({"p": ["a", "b"], "v": [1, 2]})
    mine, other = (job(tmp_path, rows.schema, partition_by=("p",)) for _ in range(2))
    list(write_batches(mine, rows.to_batches()))
    kept = {file.path for file in write_batches(other, rows.to_batches())}
    assert remove_job_files(mine.location, mine.job_id) == 2
    assert {str(path.relative_to(tmp_path)) for path in files_in(tmp_path)} == kept
    assert remove_job_files(mine.location, mine.job_id) == 0
