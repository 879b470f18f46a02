"""Objects: stored once, found again bit by bit, and never believed when they are not what was stored."""

import contextlib
import errno
import hashlib
import os
import pickle
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.backup import (
    FileKind,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStore,
    Place,
    RepositoryFullError,
    RepositoryUnavailableError,
    SourceFile,
    SourceFileChangedError,
    SourceFileGoneError,
    SourceUnreadableError,
    StoredFile,
    pack_groups,
)
from dw_platform.backup.codec import UndecodableError, decoded
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import DESCRIPTION
from dw_platform.backup.packs import PACK_BYTES
from tests.backup.repository_kit import SECRET, files_of

KEYS = RepositoryKeys.derive(SECRET, b"s" * 16)
MIB = 1024 * 1024
CHANGING = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENCODINGS = pytest.mark.parametrize(
    ("keys", "content", "suffix"),
    [
        (None, os.urandom(100_000), ""),
        (None, os.urandom(60_000).hex().encode(), ".zst"),
        (KEYS, os.urandom(100_000), ".enc"),
        (KEYS, os.urandom(60_000).hex().encode(), ".zst.enc"),
    ],
    ids=["plain", "compressed", "encrypted", "both"],
)


class Bench:
    """A source and the objects of a repository beside it."""

    def __init__(self, folder: Path, keys: RepositoryKeys | None = None) -> None:
        self.source, self.repository = folder / "source", folder / "repository"
        self.source.mkdir(parents=True, exist_ok=True)
        self.repository.mkdir(exist_ok=True)
        (self.repository / DESCRIPTION).write_text("its presence is looked for before a folder is made")
        self.store = ObjectStore(Place.at(self.repository), keys)
        self.place = Place.at(self.source)

    def file(self, content: bytes, path: str = "part.parquet") -> SourceFile:
        (self.source / path).write_bytes(content)
        return SourceFile(path=path, kind=FileKind.DATA, size=len(content), mtime_ns=1)

    def put(self, content: bytes, path: str = "part.parquet") -> StoredFile:
        return self.store.put_file(self.place, self.file(content, path))

    def read(self, entry: StoredFile) -> bytes:
        return b"".join(self.store.read(entry))

    def object(self, entry: StoredFile) -> Path:
        return self.repository / "objects" / entry.object_name

    def objects(self) -> list[str]:
        return [path.name for path in files_of(self.repository / "objects")]

    def leftovers(self) -> list[Path]:
        return [path for path in files_of(self.repository) if path.name.endswith(".tmp")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_plain_object_is_the_files_own_bytes_under_their_sha256(bench: Bench) -> None:
    content = os.urandom(3 * MIB + 5)
    entry = bench.put(content)
    assert bench.object(entry).read_bytes() == content
    assert bench.object(entry).name == hashlib.sha256(content).hexdigest() == entry.sha256
    assert (entry.object_size, entry.offset) == (len(content), None)
    assert bench.store.index() == {entry.object_name: len(content)}
    assert bench.leftovers() == []


@ENCODINGS
def test_every_encoding_names_itself_and_gives_the_content_back(
    tmp_path: Path, keys: RepositoryKeys | None, content: bytes, suffix: str
) -> None:
    bench = Bench(tmp_path, keys)
    entry = bench.put(content)
    assert entry.object_name.endswith(suffix or entry.sha256)
    assert bench.object(entry).stat().st_size == entry.object_size
    assert bench.read(entry) == content
    bench.store.check(entry.object_name, entry.object_size)


def test_an_encrypted_repository_shows_neither_content_nor_hash(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    content = b"card number 4111 1111 1111 1111 " * 10
    entry = bench.put(content)
    shown = entry.object_name.encode() + bench.object(entry).read_bytes()
    assert b"4111" not in shown
    assert hashlib.sha256(content).hexdigest().encode() not in shown
    assert SECRET not in repr(bench.store)
    assert KEYS.contents.hex() not in repr(bench.store)
    assert repr(KEYS.contents) not in repr(bench.store)


def test_the_same_content_is_stored_once_whatever_its_path(bench: Bench) -> None:
    content = os.urandom(MIB)
    first, second = bench.put(content), bench.put(content, "other.parquet")
    assert first.object_name == second.object_name
    assert len(bench.objects()) == 1
    assert bench.leftovers() == []


def test_content_that_hardly_shrinks_is_not_compressed(bench: Bench) -> None:
    assert bench.put(os.urandom(90_000) + bytes(20_000)).object_name.endswith(".zst") is False
    assert (
        ObjectStore(bench.store.place, compress=False)
        .put_file(bench.place, bench.file(bytes(MIB)))
        .object_name.endswith(".zst")
        is False
    )


def test_an_empty_file_is_a_file(bench: Bench) -> None:
    entry = bench.put(b"")
    assert (bench.read(entry), entry.object_size) == (b"", 0)


@CHANGING
@given(content=st.binary(max_size=3000), repeat=st.integers(1, 2000), encrypted=st.booleans())
def test_whatever_is_put_is_read_back(tmp_path: Path, *, content: bytes, repeat: int, encrypted: bool) -> None:
    bench = Bench(tmp_path / str(encrypted), KEYS if encrypted else None)
    assert bench.read(bench.put(content * repeat)) == content * repeat


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 1])
def test_chunks_of_any_number_and_fill_are_read_back(tmp_path: Path, size: int) -> None:
    bench, content = Bench(tmp_path, KEYS), os.urandom(size)
    entry = bench.put(content)
    assert bench.read(entry) == content
    assert entry.object_size == 48 + size + 16 * max(1, -(-size // MIB))


@ENCODINGS
def test_no_changed_cut_or_lengthened_object_gives_wrong_bytes(
    tmp_path: Path, keys: RepositoryKeys | None, content: bytes, suffix: str
) -> None:
    bench = Bench(tmp_path, keys)
    entry = bench.put(content)
    assert entry.object_name.endswith(suffix)
    good = bench.object(entry).read_bytes()
    last = len(good) - 1
    changed = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in (0, 20, 46, last // 2, last - 1, last)]
    for bad in [*changed, good[:-1], good[: last // 2], b"", good + b"x", good + good]:
        bench.object(entry).write_bytes(bad)
        with pytest.raises(ObjectDamagedError) as damaged:
            bench.read(entry)
        assert damaged.value.name == entry.object_name
        with pytest.raises(ObjectDamagedError):
            bench.store.check(entry.object_name, len(bad))


@ENCODINGS
def test_a_flipped_bit_is_found_unless_the_content_is_right_all_the_same(
    tmp_path: Path, keys: RepositoryKeys | None, content: bytes, suffix: str
) -> None:
    bench = Bench(tmp_path, keys)
    entry = bench.put(content)
    good = bench.object(entry).read_bytes()
    for bit in range(0, 8 * len(good), 9973):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        bench.object(entry).write_bytes(bad)
        if suffix == ".zst":  # a few bits of zstd's header say nothing about the content
            with contextlib.suppress(ObjectDamagedError):
                assert bench.read(entry) == content
        else:
            with pytest.raises(ObjectDamagedError):
                bench.read(entry)


def test_chunks_that_change_places_or_objects_do_not_decrypt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    one, two = bench.put(os.urandom(3 * MIB)), bench.put(os.urandom(3 * MIB), "two")
    first, second = bench.object(one).read_bytes(), bench.object(two).read_bytes()
    step = MIB + 16
    head, chunks = first[:48], [first[48 + at : 48 + at + step] for at in range(0, 3 * step, step)]
    alien = second[48 : 48 + step]
    for bad in ([chunks[1], chunks[0], chunks[2]], chunks[:2], [chunks[0], alien, chunks[2]], chunks[1:], []):
        bench.object(one).write_bytes(head + b"".join(bad))
        with pytest.raises(ObjectDamagedError):
            bench.store.check(one.object_name, 48 + step * len(bad))
        with pytest.raises(UndecodableError):  # by the encryption alone, before any hash is compared
            list(decoded([head, *bad], ".enc", KEYS))


def test_an_object_of_another_key_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    entry = bench.put(b"x" * 1000)
    other = ObjectStore(bench.store.place, RepositoryKeys.derive(SECRET, b"t" * 16))
    with pytest.raises(ObjectDamagedError, match="this repository's key"):
        other.check(entry.object_name, entry.object_size)


def test_a_missing_object_is_named(bench: Bench) -> None:
    entry = bench.put(b"x" * 1000)
    bench.object(entry).unlink()
    with pytest.raises(ObjectMissingError) as missing:
        bench.read(entry)
    assert missing.value.name == entry.object_name


@pytest.mark.parametrize("content", [os.urandom(200_000), b"ab" * 100_000], ids=["plain", "compressed"])
def test_a_truncated_object_under_a_valid_name_is_replaced_not_trusted(bench: Bench, content: bytes) -> None:
    entry = bench.put(content)
    bench.object(entry).write_bytes(bench.object(entry).read_bytes()[:-7])
    assert bench.put(content) == entry
    assert bench.read(entry) == content


def test_an_object_that_another_zstd_made_smaller_is_used_as_it_is(bench: Bench) -> None:
    import pyarrow as pa

    content = os.urandom(1000) * 400
    entry = bench.put(content)
    other = pa.Codec("zstd", compression_level=19).compress(content, asbytes=True)
    assert len(other) != entry.object_size
    bench.object(entry).write_bytes(other)
    again = bench.put(content)
    assert again.object_size == len(other)
    assert bench.read(again) == bench.read(entry) == content


def test_a_file_that_is_known_and_unchanged_is_read_but_not_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = bench.put(os.urandom(MIB))
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda *_: pytest.fail("something was written"))
        assert bench.store.put_file(bench.place, entry.source, known=entry) == entry
    (bench.source / "part.parquet").write_bytes(os.urandom(MIB))
    assert bench.store.put_file(bench.place, entry.source, known=entry).sha256 != entry.sha256


def test_sources_that_are_gone_changed_or_unreadable_leave_nothing(bench: Bench) -> None:
    file = bench.file(b"x" * 1000)
    for size in (999, 1001):
        with pytest.raises(SourceFileChangedError) as changed:
            bench.store.put_file(bench.place, replace(file, size=size))
        assert changed.value.expected == size
    (bench.source / file.path).unlink()
    with pytest.raises(SourceFileGoneError) as gone:
        bench.store.put_pack(bench.place, [file])
    assert gone.value.path == file.path
    (bench.source / file.path).mkdir()
    with pytest.raises(SourceUnreadableError):
        bench.store.put_file(bench.place, file)
    assert bench.objects() == bench.leftovers() == []


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("content", [os.urandom(3 * MIB), b"abcd" * MIB], ids=["random", "shrinking"])
def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: RepositoryKeys | None, content: bytes
) -> None:
    bench = Bench(tmp_path, keys)
    file = bench.file(content)
    real, room = os.write, [100]

    def write(descriptor: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(room[0], len(data))
        room[0] -= taken
        return real(descriptor, data[:taken])

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(RepositoryFullError) as told:
            bench.store.put_file(bench.place, file)
    assert told.value.place == str(bench.repository)
    assert bench.objects() == bench.leftovers() == []
    assert bench.read(bench.store.put_file(bench.place, file)) == content


def test_an_object_whose_fsync_fails_does_not_appear(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bench.file(os.urandom(1000))

    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fsync)
        with pytest.raises(RepositoryUnavailableError):
            bench.store.put_file(bench.place, file)
    assert bench.objects() == bench.leftovers() == []


def test_a_name_is_given_after_the_content_is_on_disk_and_lasts_when_the_call_returns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(b"so that no folder has to be made below")
    steps: list[str] = []
    sync, replace_path = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync content" if stat.S_ISREG(os.fstat(descriptor).st_mode) else "sync folder")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        steps.append("name")
        return replace_path(path, target)

    file = bench.file(b"so that no folder has to be made below, either")
    digest = hashlib.sha256((bench.source / file.path).read_bytes()).hexdigest()
    (bench.repository / "objects" / digest[:2]).mkdir(exist_ok=True)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    bench.store.put_file(bench.place, file)
    assert steps == ["sync content", "name", "sync folder"]


def test_nothing_is_written_where_the_disk_is_not_mounted(bench: Bench) -> None:
    file = bench.file(b"x")
    (bench.repository / DESCRIPTION).unlink()
    with pytest.raises(RepositoryUnavailableError, match="mounted"):
        bench.store.put_file(bench.place, file)
    assert files_of(bench.repository) == []


def test_every_byte_read_and_written_passes_the_callers_gate(bench: Bench) -> None:
    admitted = []

    @contextlib.contextmanager
    def gate(size: int) -> Iterator[None]:
        admitted.append(size)
        yield

    content = os.urandom(5 * MIB + 3)
    entry = bench.store.put_file(bench.place, bench.file(content), io=gate)
    assert sum(admitted) >= 2 * len(content)
    assert max(admitted) <= 4 * MIB
    admitted.clear()
    list(bench.store.read(entry, io=gate))
    assert sum(admitted) == len(content)


def test_a_store_travels_to_tasks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    entry = bench.put(b"content")
    assert b"".join(pickle.loads(pickle.dumps(bench.store)).read(entry)) == b"content"


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("text", [True, False])
def test_small_files_share_an_object_and_are_read_one_by_one_or_together(
    tmp_path: Path, keys: RepositoryKeys | None, *, text: bool
) -> None:
    bench = Bench(tmp_path, keys)
    contents = {f"{n:05}.json": (b"%d" % n) * 500 if text else os.urandom(n * 10) for n in range(50)}
    entries = bench.store.put_pack(bench.place, [bench.file(content, path) for path, content in contents.items()])
    assert len(bench.objects()) == 1
    assert {entry.source.path: bench.read(entry) for entry in entries} == contents
    assert {entry.source.path: content for entry, content in bench.store.read_pack(entries)} == contents
    bench.store.check(entries[0].object_name, entries[0].object_size)


def test_a_member_that_points_elsewhere_in_its_pack_is_damage(bench: Bench) -> None:
    one, two = bench.store.put_pack(bench.place, [bench.file(os.urandom(500), "a"), bench.file(os.urandom(500), "b")])
    for wrong in (replace(one, offset=two.offset), replace(one, offset=900), replace(two, sha256=one.sha256)):
        with pytest.raises(ObjectDamagedError):
            bench.read(wrong)
        with pytest.raises(ObjectDamagedError):
            list(bench.store.read_pack([wrong]))


def test_only_what_changed_goes_into_a_new_pack(bench: Bench) -> None:
    files = [bench.file(os.urandom(500), path) for path in "abc"]
    known = {entry.source.path: entry for entry in bench.store.put_pack(bench.place, files)}
    changed = bench.file(os.urandom(500), "b")
    again = bench.store.put_pack(bench.place, [files[0], changed, files[2]], known=known)
    assert [entry.object_name == known[entry.source.path].object_name for entry in again] == [True, False, True]
    assert again[1].offset is None


def test_a_lost_pack_comes_back_under_its_name(bench: Bench) -> None:
    files = [bench.file(os.urandom(500), path) for path in "abcdef"]
    former = {entry.source.path: entry for entry in bench.store.put_pack(bench.place, files)}
    bench.object(former["a"]).unlink()
    added = bench.file(os.urandom(500), "aa")
    for group in pack_groups([*files, added], former):
        bench.store.put_pack(bench.place, group, known=former)
    assert all(bench.read(entry) for entry in former.values())


@given(sizes=st.lists(st.integers(0, 300_000), max_size=200))
def test_groups_hold_every_file_once_and_fit_into_memory(sizes: list[int]) -> None:
    files = [SourceFile(path=f"{n:04}", kind=FileKind.LOG, size=size, mtime_ns=0) for n, size in enumerate(sizes)]
    groups = list(pack_groups(reversed(files)))
    assert [file for group in groups for file in group] == files
    assert all(sum(file.size for file in group) <= PACK_BYTES for group in groups)
