"""Whether a file is worth compressing is told from its beginning and its middle."""

import os
from pathlib import Path

import pytest

from dw_platform.backup import FileKind, ObjectStore, Place, SourceFile, SourceFileGoneError
from dw_platform.backup.layout import DESCRIPTION
from dw_platform.backup.writing import source_middle

SAMPLE = 128 * 1024
RANDOM = os.urandom(2_000_000)


def is_compressed(folder: Path, content: bytes) -> bool:
    (folder / "source").mkdir()
    (folder / "kept").mkdir()
    (folder / "kept" / DESCRIPTION).write_text("")
    (folder / "source" / "part.parquet").write_bytes(content)
    file = SourceFile(path="part.parquet", kind=FileKind.DATA, size=len(content), mtime_ns=1)
    store = ObjectStore(Place.at(folder / "kept"))
    entry = store.put_file(Place.at(folder / "source"), file)
    assert b"".join(store.read(entry)) == content
    return ".zst" in entry.object_name


def test_parquet_whose_first_column_would_shrink_again_is_stored_as_it_is(tmp_path: Path) -> None:
    assert not is_compressed(tmp_path, bytes(200_000) + RANDOM)


def test_what_shrinks_in_its_middle_only_is_stored_as_it_is(tmp_path: Path) -> None:
    assert not is_compressed(tmp_path, RANDOM + bytes(2_000_000) + RANDOM)


def test_what_shrinks_in_both_places_is_compressed(tmp_path: Path) -> None:
    assert is_compressed(tmp_path, RANDOM.hex().encode())


@pytest.mark.parametrize(
    ("size", "start"), [(10, 0), (SAMPLE, 0), (SAMPLE + 10, 5), (1_000_000, (1_000_000 - SAMPLE) // 2)]
)
def test_the_middle_is_in_the_middle_and_all_of_a_small_file(tmp_path: Path, size: int, start: int) -> None:
    (tmp_path / "part").write_bytes(RANDOM[:size])
    file = SourceFile(path="part", kind=FileKind.DATA, size=size, mtime_ns=1)
    found = source_middle(Place.at(tmp_path), file, SAMPLE)
    assert found == RANDOM[:size][start : start + SAMPLE]


def test_a_file_that_vanishes_before_its_middle_is_read_is_told_as_gone(tmp_path: Path) -> None:
    file = SourceFile(path="part", kind=FileKind.DATA, size=10, mtime_ns=1)
    with pytest.raises(SourceFileGoneError):
        source_middle(Place.at(tmp_path), file, SAMPLE)
