"""Manifests: whole by themselves, readable by their first line, and different from any edited one."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.backup import (
    BackupIdentity,
    BackupNotFoundError,
    BackupRef,
    FileKind,
    Manifest,
    ManifestDamagedError,
    SourceFile,
    StoredFile,
    TableState,
    new_backup_id,
    new_manifest,
    time_of,
)
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import escaped, object_name, twin_of, unescaped
from dw_platform.backup.manifest import decode_header, decode_manifest, encode_manifest
from dw_platform.backup.sealed import DocumentDamagedError
from dw_platform.foundation import InvalidValueError
from tests.backup.repository_kit import SECRET, back_up, new_repository, restored, write_table

KEYS = RepositoryKeys.derive(SECRET, b"s" * 16)
NOW = datetime(2026, 11, 18, 20, 15, tzinfo=UTC)
BOTH = pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abü/%"), inner, max_size=3),
    max_leaves=8,
)
paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


@st.composite
def stored_files(draw: st.DrawFn) -> StoredFile:
    source = SourceFile(
        path=draw(paths),
        kind=draw(st.sampled_from(FileKind)),
        size=draw(st.integers(0, 2**40)),
        mtime_ns=draw(st.integers(0, 2**62)),
        add=draw(st.none() | st.dictionaries(st.text("xyz"), json_values, max_size=3)),
    )
    digest = draw(digests)
    return StoredFile(
        source=source,
        sha256=digest,
        object_name=object_name(digest, draw(st.sampled_from(["", ".zst", ".enc"]))),
        object_size=source.size,
        offset=draw(st.none() | st.integers(0, 2**24)),
    )


def identity(table: str = "shop.orders") -> BackupIdentity:
    return BackupIdentity(repository_id="r", platform="shop", table=table, policy="daily", job_id="j")


def manifest_of(files: list[StoredFile], table: str = "shop.orders") -> Manifest:
    state = TableState(
        version=3,
        committed_at_ms=5,
        protocol={"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]},
        metadata={"id": "m", "configuration": {"a": "b\n"}},
        transactions={"stream/1": 12},
        domains={"delta.rowTracking": {"configuration": "{}"}},
        rows=9,
        files=1,
        bytes=2,
    )
    return new_manifest(
        identity(table), state, files, copied=files[:1], parent=None, latest_id=None, fence="f", now=NOW
    )


def one_file() -> list[StoredFile]:
    source = SourceFile(path="p=a%20b/part.parquet", kind=FileKind.DATA, size=5, mtime_ns=1, add={"path": "p"})
    return [StoredFile(source=source, sha256="ab" * 32, object_name=object_name("ab" * 32), object_size=5)]


@BOTH
@settings(max_examples=60, deadline=None)
@given(files=st.lists(stored_files(), max_size=12), table=paths)
def test_what_a_manifest_says_is_read_back(keys: RepositoryKeys | None, files: list[StoredFile], table: str) -> None:
    manifest = manifest_of(files, table)
    data = encode_manifest(manifest, keys)
    assert decode_manifest(data, keys) == manifest
    assert decode_header(data, keys) == manifest.header


@BOTH
def test_every_changed_byte_of_a_manifest_is_found(keys: RepositoryKeys | None) -> None:
    data = encode_manifest(manifest_of(one_file()), keys)
    for at in range(len(data)):
        for bit in (1, 32):
            with pytest.raises(DocumentDamagedError):
                decode_manifest(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], keys)


@BOTH
def test_a_truncated_or_lengthened_manifest_is_found(keys: RepositoryKeys | None) -> None:
    data = encode_manifest(manifest_of(one_file()), keys)
    for bad in (*(data[:size] for size in range(len(data))), data + b"x", data + data):
        with pytest.raises(DocumentDamagedError):
            decode_manifest(bad, keys)


def test_a_header_edited_by_hand_is_found_even_if_it_means_the_same() -> None:
    line, _, body = encode_manifest(manifest_of(one_file()), None).partition(b"\n")
    edited = json.loads(line)
    edited["document"]["table"] = "shop.customers"
    respelled = json.dumps(json.loads(line), indent=0).replace("\n", "").encode()
    for bad in (json.dumps(edited).encode(), respelled, line + b" "):
        with pytest.raises(DocumentDamagedError):
            decode_header(bad + b"\n" + body, None)


def test_the_header_needs_nothing_of_the_body() -> None:
    manifest = manifest_of(one_file())
    line = encode_manifest(manifest, None).partition(b"\n")[0]
    assert decode_header(line + b"\ndamaged", None) == manifest.header


def test_nobody_without_the_key_makes_or_reads_a_manifest() -> None:
    data = encode_manifest(manifest_of(one_file()), KEYS)
    assert b"part.parquet" not in data
    with pytest.raises(DocumentDamagedError):
        decode_manifest(data, RepositoryKeys.derive(SECRET, b"t" * 16))
    with pytest.raises(DocumentDamagedError):
        decode_manifest(encode_manifest(manifest_of(one_file()), None), KEYS)


def test_totals_count_shared_objects_once() -> None:
    stored = one_file()[0]
    other = replace(stored, source=replace(stored.source, path="other"))
    totals = manifest_of([stored, other]).header.totals
    assert (totals.files, totals.bytes, totals.objects, totals.stored_bytes) == (2, 10, 1, 5)
    assert (totals.copied_files, totals.copied_bytes) == (1, 5)


def test_an_increment_stands_on_a_backup_of_the_same_table_and_policy() -> None:
    parent = manifest_of([]).header
    with pytest.raises(InvalidValueError):
        new_manifest(
            identity("other"), manifest_of([]).state, [], copied=[], parent=parent, latest_id=None, fence="", now=NOW
        )


@given(ticks=st.lists(st.integers(-5000, 5000), min_size=1, max_size=30))
def test_ids_sort_in_the_order_in_which_they_were_made_whatever_the_clock_does(ticks: list[int]) -> None:
    now, ids = NOW, list[str]()
    for tick in ticks:
        now += timedelta(milliseconds=tick)
        ids.append(new_backup_id(now, ids[-1] if ids else None))
    assert ids == sorted(set(ids))
    assert time_of(ids[0]) == NOW + timedelta(milliseconds=ticks[0])


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16))
def test_any_name_of_a_table_is_one_folder(name: str) -> None:
    folder = escaped(name)
    assert unescaped(folder) == name
    assert "/" not in folder
    assert not folder.startswith(".")


@pytest.mark.parametrize("text", ["", "../x", "20269999T999999.000Z-00000000", "20261118T201500.000Z-zz"])
def test_text_that_is_no_id_is_refused_before_it_becomes_a_path(text: str) -> None:
    with pytest.raises(InvalidValueError):
        time_of(text)


def test_the_twin_serves_where_a_manifest_is_lost_or_damaged(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repo")
    contents = {"a.parquet": b"a" * 10}
    ref = back_up(repository, tmp_path / "t", write_table(tmp_path / "t", contents))
    file, twin = repository.place.local / ref.path, repository.place.local / twin_of(ref.path)
    good = file.read_bytes()
    for damage in (good[:50], good[:-1] + b"x", b""):
        file.write_bytes(damage)
        assert restored(repository, ref) == contents
        assert [header.backup_id for header in repository.manifests.headers().headers] == [ref.backup_id]
    file.unlink()
    assert restored(repository, ref) == contents
    assert repository.manifests.refs() == [ref]
    twin.write_bytes(good[:50])
    with pytest.raises(ManifestDamagedError) as damaged:
        repository.manifests.read(ref)
    assert damaged.value.backup_id == ref.backup_id
    assert repository.manifests.headers().damaged[0].backup_id == ref.backup_id
    twin.unlink()
    with pytest.raises(BackupNotFoundError):
        repository.manifests.read(ref)


def test_a_manifest_moved_to_another_name_or_repository_is_refused(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repo")
    ref = back_up(repository, tmp_path / "t", write_table(tmp_path / "t", {"a": b"a"}))
    data = (repository.place.local / ref.path).read_bytes()
    moved = BackupRef(ref.table, new_backup_id(NOW))
    repository.storage.write(moved.path, data)
    with pytest.raises(ManifestDamagedError, match="moved here"):
        repository.manifests.read(moved)
    other = new_repository(tmp_path / "other")
    other.storage.write(ref.path, data)
    with pytest.raises(ManifestDamagedError):
        other.manifests.read(ref)


def test_headers_of_hundreds_of_backups_are_listed_in_order_of_time(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repo")
    ids: list[str] = []
    for number in range(200):
        manifest = manifest_of(one_file(), table=f"t{number % 3}")
        backup_id = new_backup_id(NOW, ids[-1] if ids else None)
        header = replace(manifest.header, backup_id=backup_id, chain_id=backup_id, repository_id=repository.id)
        repository.manifests.write(replace(manifest, header=header))
        ids.append(backup_id)
    listing = repository.manifests.headers()
    assert [header.backup_id for header in listing.headers] == ids
    assert [header.backup_id for header in repository.manifests.headers("t1").headers] == ids[1::3]
    assert repository.manifests.latest_id("t2") == ids[197]
    assert listing.damaged == ()
