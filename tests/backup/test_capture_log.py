"""Captures of tables whose logs are written by hand: what belongs to a version, and what is refused."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import FileKind
from dw_platform.backup.delta_errors import (
    AbsolutePathError,
    CatalogOwnedError,
    ChecksumMismatchError,
    DamagedLogError,
    FileSizeDiffersError,
    FilesMissingError,
    NotADeltaTableError,
    UnknownFeatureError,
    VersionNotKeptError,
)
from dw_platform.backup.place import Place
from dw_platform.foundation import InvalidValueError
from tests.backup.delta_tables import (
    PROTOCOL,
    VECTOR,
    VECTOR_FILE,
    HandTable,
    log_names,
    metadata,
    paths,
    removed,
)


@pytest.fixture
def table(tmp_path: Path) -> HandTable:
    return HandTable(tmp_path / "table")


def moment(second: int) -> datetime:
    """Return when the hand-made commit of that number was made."""
    return datetime.fromtimestamp(1_700_000_000 + second, UTC)


def protocol(*readers: str, writers: tuple[str, ...] = ()) -> dict[str, Any]:
    features = {"readerFeatures": list(readers), "writerFeatures": [*readers, *writers]}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}


def checkpoint(table: HandTable, *actions: dict[str, Any], version: int, name: str = "checkpoint.parquet") -> Path:
    """Write a checkpoint of the kind that has everything in one file."""
    kinds = ("protocol", "metaData", "txn", "domainMetadata", "add", "sidecar")
    rows = [{kind: action.get(kind) for kind in kinds} for action in (PROTOCOL, metadata(a="b"), *actions)]
    strings = pa.map_(pa.string(), pa.string())
    add = pa.struct([("path", pa.string()), ("size", pa.int64()), ("partitionValues", strings), ("stats", pa.string())])
    fields = {
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        "metaData": pa.struct([("id", pa.string()), ("configuration", strings)]),
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
        "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        "add": add,
        "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())]),
    }
    file = table.log / f"{version:020d}.{name}"
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(fields.items()))), file)
    return file


def test_the_whole_log_and_only_live_files_belong_to_a_young_table(table: HandTable) -> None:
    first = table.begin().add("first.parquet")
    table.commit(first).commit(removed(first), table.add("second.parquet", rows=3))
    (table.root / "orphan.parquet").write_bytes(b"left by a killed writer")
    capture = capture_table(table.place)
    assert paths(capture, FileKind.DATA) == ["second.parquet"]
    assert log_names(capture) == table.names()
    assert (capture.state.version, capture.state.rows, capture.state.files) == (2, 3, 1)
    assert capture.state.committed_at_ms == 1_700_000_002_000
    assert paths(capture) == sorted(set(paths(capture)))


def test_a_data_file_carries_its_add_action_as_the_log_has_it(table: HandTable) -> None:
    add = table.begin().add("x.parquet", tags={"a": "b"}, baseRowId=7, partitionValues={"p": None})
    table.commit(add)
    [file] = [file for file in capture_table(table.place).files if file.kind is FileKind.DATA]
    assert file.add == add["add"]
    assert file.mtime_ns == (table.root / "x.parquet").stat().st_mtime_ns


def test_state_follows_transactions_and_domains(table: HandTable) -> None:
    def domain(name: str, *, removed: bool = False) -> dict[str, Any]:
        return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}

    table.begin().commit(domain("a"), domain("b"), {"txn": {"appId": "x", "version": 4}})
    table.commit(domain("a", removed=True), {"txn": {"appId": "x", "version": 9}}, {"novelty": {"ignored": True}})
    state = capture_table(table.place).state
    assert (set(state.domains), state.transactions) == ({"b"}, {"x": 9})
    assert state.protocol == PROTOCOL["protocol"]


def test_rows_are_counted_less_those_that_vectors_mask_and_unknown_without_statistics(table: HandTable) -> None:
    (table.root / "ab").mkdir()
    (table.root / VECTOR_FILE).write_bytes(bytes(60))
    vector = {**VECTOR, "cardinality": 2}
    table.begin().commit(table.add("x.parquet", rows=5, deletionVector=vector))
    capture = capture_table(table.place)
    assert (capture.state.rows, paths(capture, FileKind.DELETION_VECTOR)) == (3, [VECTOR_FILE])
    table.commit(table.add("y.parquet", stats=None))
    assert capture_table(table.place).state.rows is None


def test_a_file_whose_vector_changed_is_one_file_with_the_newer_vector(table: HandTable) -> None:
    (table.root / "ab").mkdir()
    (table.root / VECTOR_FILE).write_bytes(bytes(200))
    plain = table.begin().add("x.parquet", rows=9)
    masked = {"add": {**plain["add"], "deletionVector": {**VECTOR, "cardinality": 1}}}
    more = {"add": {**plain["add"], "deletionVector": {**VECTOR, "offset": 60, "cardinality": 4}}}
    table.commit(plain).commit(removed(plain), masked).commit(more, removed(masked))
    assert capture_table(table.place).state.rows == 5
    assert capture_table(table.place, version=2).state.rows == 8
    assert capture_table(table.place, version=1).state.rows == 9


@pytest.mark.parametrize(
    "path",
    ["p=a b/x.parquet", "p=100%/x.parquet", "p=a%2Fb/x.parquet", "p=%20/x.parquet", "p=ü 日本/x.parquet",
     "p=a+b/x.parquet", "p=12:30/x.parquet", "p=it's #1?/x.parquet"],
)  # fmt: skip
def test_paths_are_those_of_the_file_system_however_the_log_escapes_them(table: HandTable, path: str) -> None:
    add = table.begin().add(path, written=quote(path, safe="/=+"))
    assert paths(capture_table(table.commit(add).place), FileKind.DATA) == [path]
    # Another writer may escape other characters, and still means the same file.
    table.commit({"remove": {"path": quote(path, safe="/=+'").replace("=", "%3D"), "dataChange": True}})
    assert capture_table(table.place).state.files == 0


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20))
def test_any_name_that_a_file_system_takes_comes_back(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    table = HandTable(tmp_path_factory.mktemp("any") / "table").begin()
    path = f"p={name}/x.parquet"
    table.commit(table.add(path, written=quote(path)))
    assert paths(capture_table(table.place), FileKind.DATA) == [path]


def test_change_data_of_captured_commits_comes_along_as_far_as_it_exists(table: HandTable) -> None:
    (table.root / "_change_data").mkdir()
    (table.root / "_change_data/a b.parquet").write_bytes(b"changes")
    changes = [{"cdc": {"path": f"_change_data/{name}", "size": 7}} for name in ("a%20b.parquet", "gone.parquet")]
    table.begin().commit(*changes)
    assert paths(capture_table(table.place), FileKind.CHANGE) == ["_change_data/a b.parquet"]


def test_a_checkpoint_stands_for_the_commits_before_it(table: HandTable) -> None:
    table.begin().append(4)
    DeltaTable(str(table.root)).create_checkpoint()
    table.append(2)
    capture = capture_table(table.place)
    assert log_names(capture) == [
        f"{4:020d}.checkpoint.parquet", f"{4:020d}.json", f"{5:020d}.json", f"{6:020d}.json"
    ]  # fmt: skip
    assert len(paths(capture, FileKind.DATA)) == 6
    assert capture.state.metadata["schemaString"] == metadata()["metaData"]["schemaString"]
    older = capture_table(table.place, version=3)
    assert log_names(older) == [f"{version:020d}.json" for version in range(4)]
    assert capture_table(table.place, version=4).state.committed_at_ms == 1_700_000_004_000


def test_the_adds_of_a_checkpoint_are_as_those_of_its_commits(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "p": ["a", None, "ü/%"]})
    write_deltalake(tmp_path / "t", rows, partition_by=["p"])
    place = Place.at(tmp_path / "t")
    before = {file.path: file.add for file in capture_table(place).files if file.add}
    DeltaTable(tmp_path / "t").create_checkpoint()
    capture = capture_table(place)
    after = {file.path: file.add for file in capture.files if file.add}
    assert f"{0:020d}.checkpoint.parquet" in log_names(capture)
    assert before.keys() == after.keys()
    for path, add in before.items():
        written = {key: value for key, value in add.items() if value is not None}
        assert {**after[path], "dataChange": True, "stats": ""} == {**written, "dataChange": True, "stats": ""}
        assert json.loads(after[path]["stats"])["numRecords"] == json.loads(add["stats"])["numRecords"] == 1


@pytest.mark.parametrize("damage", [b"", b"PAR1 and then nothing", b"x" * 5000])
def test_an_unreadable_checkpoint_is_passed_over_while_the_commits_are_there(table: HandTable, damage: bytes) -> None:
    table.begin().append(2)
    DeltaTable(str(table.root)).create_checkpoint()
    (table.log / f"{2:020d}.checkpoint.parquet").write_bytes(damage)
    for history in (False, True):
        capture = capture_table(table.place, history=history)
        assert log_names(capture) == [f"{version:020d}.json" for version in range(3)]
    (table.log / f"{0:020d}.json").unlink()
    with pytest.raises(DamagedLogError, match="commit 0 is missing" if damage else "no complete checkpoint"):
        capture_table(table.place)


def test_a_checkpoint_with_damaged_pages_is_passed_over(table: HandTable) -> None:
    table.begin().append(200)
    DeltaTable(str(table.root)).create_checkpoint()
    file = table.log / f"{200:020d}.checkpoint.parquet"
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    assert log_names(capture_table(table.place)) == [f"{version:020d}.json" for version in range(201)]


def test_a_checkpoint_whose_sidecar_is_gone_is_passed_over(table: HandTable) -> None:
    add = table.begin().add("x.parquet")
    table.commit(add)
    checkpoint(table, {"sidecar": {"path": "side.parquet", "sizeInBytes": 1}}, version=1)
    assert len(log_names(capture_table(table.place))) == 2
    (table.log / "_sidecars").mkdir()
    side = pa.table({"add": pa.array([{"path": "x.parquet", "size": add["add"]["size"]}])})
    pq.write_table(side, table.log / "_sidecars/side.parquet")
    capture = capture_table(table.place)
    assert log_names(capture) == [f"{1:020d}.checkpoint.parquet", f"{1:020d}.json", "_sidecars/side.parquet"]
    assert (capture.state.files, capture.state.rows) == (1, None)


def test_a_checkpoint_in_json_is_read_like_one_in_parquet(table: HandTable) -> None:
    add = table.begin().append(1).add("x.parquet")
    lines = [PROTOCOL, metadata(), {"checkpointMetadata": {"version": 1}}, add, {"txn": {"appId": "a", "version": 3}}]
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (table.log / name).write_text("\n".join(map(json.dumps, lines)))
    capture = capture_table(table.place)
    assert (capture.state.files, capture.state.transactions) == (1, {"a": 3})
    assert name in log_names(capture)


def test_a_checkpoint_without_protocol_is_no_checkpoint(table: HandTable) -> None:
    table.begin().append(1)
    (table.log / f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text("{}")
    assert len(log_names(capture_table(table.place))) == 2


def test_history_adds_older_commits_checkpoints_and_removed_files_that_still_exist(table: HandTable) -> None:
    adds = [table.add(f"{name}.parquet") for name in "abc"]
    table.begin().commit(adds[0]).commit(removed(adds[0]), adds[1])
    DeltaTable(str(table.root)).create_checkpoint()
    table.commit(removed(adds[1]), adds[2])
    DeltaTable(str(table.root)).create_checkpoint()
    table.append()
    assert paths(capture_table(table.place), FileKind.DATA) == ["c.parquet", "part-00004.parquet"]
    capture = capture_table(table.place, history=True)
    assert paths(capture, FileKind.DATA) == ["a.parquet", "b.parquet", "c.parquet", "part-00004.parquet"]
    assert log_names(capture) == [name for name in table.names() if name != "_last_checkpoint"]
    (table.root / "a.parquet").unlink()
    assert "a.parquet" not in paths(capture_table(table.place, history=True))
    assert paths(capture_table(table.place, version=2, history=True), FileKind.DATA) == ["b.parquet"]


def test_history_begins_with_what_the_first_checkpoint_left_by_cleanup_holds(table: HandTable) -> None:
    adds = [table.add(f"{name}.parquet") for name in "ab"]
    table.begin().commit(adds[0])
    DeltaTable(str(table.root)).create_checkpoint()
    table.commit(removed(adds[0]), adds[1]).append()
    DeltaTable(str(table.root)).create_checkpoint()
    (table.log / f"{0:020d}.json").unlink()
    (table.log / f"{1:020d}.json").unlink()
    capture = capture_table(table.place, history=True)
    assert paths(capture, FileKind.DATA) == ["a.parquet", "b.parquet", "part-00003.parquet"]
    assert f"{1:020d}.checkpoint.parquet" in log_names(capture)


def test_versions_the_log_no_longer_has_name_the_earliest(table: HandTable) -> None:
    table.begin().append(3)
    DeltaTable(str(table.root)).create_checkpoint()
    table.append(2)
    for version in range(3):
        (table.log / f"{version:020d}.json").unlink()
    for wish in ({"version": 1}, {"version": 9}, {"version": -1}, {"at": moment(2)}):
        with pytest.raises(VersionNotKeptError) as caught:
            capture_table(table.place, **wish)
        assert (caught.value.earliest, caught.value.newest) == (3, 5)
    assert capture_table(table.place, version=3).state.version == 3


def test_a_moment_is_the_version_that_was_newest_then(table: HandTable) -> None:
    table.begin().append(3)
    for second, version in ((0, 0), (1, 1), (1.999, 1), (3, 3), (500, 3)):
        at = moment(0) + timedelta(seconds=second)
        assert capture_table(table.place, at=at).state.version == version
    with pytest.raises(VersionNotKeptError, match="2023-11-14T22:13:20"):
        capture_table(table.place, at=moment(-1))


def test_commits_whose_files_are_out_of_order_count_a_millisecond_later_than_the_one_before(table: HandTable) -> None:
    table.begin()
    for version in (1, 2):
        table.commit(at_ms=1_700_000_000_000 - version)
    assert capture_table(table.place, at=moment(0)).state.version == 0
    assert capture_table(table.place, at=moment(0) + timedelta(milliseconds=1)).state.version == 1
    assert capture_table(table.place, at=moment(0) + timedelta(milliseconds=2)).state.version == 2


def test_in_commit_timestamps_count_from_the_version_that_turned_them_on(table: HandTable) -> None:
    def stamped(ms: int) -> dict[str, Any]:
        return {"commitInfo": {"inCommitTimestamp": ms}}

    on = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "2"}
    table.begin().append(1)
    table.commit(stamped(1_700_000_100_000), metadata(**on), at_ms=5)
    table.commit(stamped(1_700_000_200_000), at_ms=4)
    assert capture_table(table.place).state.committed_at_ms == 1_700_000_200_000
    assert capture_table(table.place, version=1).state.committed_at_ms == 1_700_000_001_000
    for second, version in ((1, 1), (99, 1), (100, 2), (199, 2), (200, 3), (999, 3)):
        assert capture_table(table.place, at=moment(second)).state.version == version
    table.commit()
    with pytest.raises(DamagedLogError, match="commit 4 lacks its in-commit timestamp"):
        capture_table(table.place)


def test_a_wish_that_means_nothing_is_refused(table: HandTable) -> None:
    with pytest.raises(InvalidValueError, match="time zone"):
        capture_table(table.place, at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(InvalidValueError, match="left out"):
        capture_table(table.place, at=moment(0), version=1)


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotADeltaTableError, match="not a Delta table"):
            capture_table(Place.at(place))


def test_a_slash_at_the_end_of_the_folder_changes_nothing(table: HandTable) -> None:
    table.begin().append(1)
    assert capture_table(Place.at(f"{table.root}/")) == capture_table(table.place)


def test_damage_to_the_log_is_named(table: HandTable) -> None:
    table.begin().append(3)
    commit = table.log / f"{2:020d}.json"
    whole = commit.read_bytes()
    for damage, cause in (
        (b"", "commit 2 is empty"), (whole[:-20], "commit 2 is not JSON"), (b'{"add": 1}', "malformed"),
        (b"[1]", "malformed"), (b'{"add": {"path": "%ff"}}', "malformed"),
    ):  # fmt: skip
        commit.write_bytes(damage)
        with pytest.raises(DamagedLogError, match=cause):
            capture_table(table.place)
    commit.unlink()
    with pytest.raises(DamagedLogError, match="commit 2 is missing"):
        capture_table(table.place)
    assert capture_table(table.place, version=1).state.version == 1


def test_commits_that_never_say_how_to_read_them_are_damaged(table: HandTable) -> None:
    table.commit(metadata())
    with pytest.raises(DamagedLogError, match="no protocol"):
        capture_table(table.place)


def test_one_file_with_two_vectors_is_damage(table: HandTable) -> None:
    (table.root / "ab").mkdir()
    (table.root / VECTOR_FILE).write_bytes(bytes(200))
    plain = table.begin().add("x.parquet")
    table.commit(plain).commit({"add": {**plain["add"], "deletionVector": {**VECTOR, "cardinality": 1}}})
    with pytest.raises(DamagedLogError, match="twice"):
        capture_table(table.place)


def test_live_files_must_be_there_in_the_size_that_the_log_gives(table: HandTable) -> None:
    (table.root / "ab").mkdir()
    vector = table.root / VECTOR_FILE
    vector.write_bytes(bytes(52))
    table.begin().commit(table.add("x.parquet", deletionVector={**VECTOR, "cardinality": 1}))
    capture_table(table.place)
    vector.write_bytes(bytes(51))
    with pytest.raises(FileSizeDiffersError, match=r"deletion_vector.* has 51 bytes, the log says 52"):
        capture_table(table.place)
    vector.unlink()
    with pytest.raises(FilesMissingError) as caught:
        capture_table(table.place)
    assert caught.value.missing == (VECTOR_FILE,)
    vector.write_bytes(bytes(52))
    (table.root / "x.parquet").write_bytes(b"cut")
    with pytest.raises(FileSizeDiffersError, match=r"x\.parquet has 3 bytes"):
        capture_table(table.place)


def test_a_checksum_that_counts_other_files_stops_the_capture(table: HandTable) -> None:
    table.begin().append(2)
    size = sum(file.stat().st_size for file in table.root.glob("*.parquet"))
    checksum = table.log / f"{2:020d}.crc"
    checksum.write_text(json.dumps({"numFiles": 2, "tableSizeBytes": size}))
    assert checksum.name in log_names(capture_table(table.place))
    for told in ({"numFiles": 3, "tableSizeBytes": size}, {"numFiles": 2, "tableSizeBytes": size + 1}):
        checksum.write_text(json.dumps(told))
        with pytest.raises(ChecksumMismatchError) as caught:
            capture_table(table.place)
        assert caught.value.found == (2, size)
    checksum.write_bytes(b"")
    assert capture_table(table.place).state.files == 2


@pytest.mark.parametrize(
    "path", ["/abs/x.parquet", "s3://b/x.parquet", "file:/x.parquet", "../x.parquet", "a/..%2F../x.parquet", "%2Fx"]
)
def test_files_outside_of_the_table_are_refused_only_while_they_are_live(table: HandTable, path: str) -> None:
    live = {"add": {"path": path, "size": 1, "partitionValues": {}}}
    table.begin().commit(live)
    with pytest.raises(AbsolutePathError) as caught:
        capture_table(table.place)
    assert caught.value.path == path
    table.commit(removed(live))
    assert capture_table(table.place).state.files == 0
    with pytest.raises(AbsolutePathError):
        capture_table(table.place, history=True)


def test_a_vector_outside_of_the_table_is_refused(table: HandTable) -> None:
    vector = {**VECTOR, "storageType": "p", "pathOrInlineDv": "s3://b/v.bin", "cardinality": 1}
    table.begin().commit(table.add("x.parquet", deletionVector=vector))
    with pytest.raises(AbsolutePathError, match=r"s3://b/v\.bin"):
        capture_table(table.place)


def test_an_unknown_reader_feature_is_refused_and_an_unknown_writer_feature_is_not(table: HandTable) -> None:
    table.commit(protocol("deletionVectors", writers=("noveltyForWriters",)), metadata())
    assert capture_table(table.place).state.version == 0
    table.commit(protocol("deletionVectors", "novelty"))
    with pytest.raises(UnknownFeatureError) as caught:
        capture_table(table.place)
    assert caught.value.unknown == ("table feature novelty",)
    assert "columnMapping" in caught.value.known
    table.commit({"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}})
    with pytest.raises(UnknownFeatureError, match="reader version 4"):
        capture_table(table.place)


def test_a_table_that_a_catalog_owns_is_refused(table: HandTable) -> None:
    table.begin()
    staged = table.log / "_staged_commits"
    staged.mkdir()
    (staged / f"{0:020d}.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text("{}")
    assert capture_table(table.place).state.version == 0
    (staged / f"{1:020d}.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text("{}")
    with pytest.raises(CatalogOwnedError, match="version 1 is staged"):
        capture_table(table.place)
    for feature in ("catalogManaged", "coordinatedCommits-preview"):
        table.commit(protocol(writers=(feature,)))
        with pytest.raises(CatalogOwnedError, match=feature):
            capture_table(table.place)


def test_large_values_beside_the_table_are_captured_and_halves_of_them_are_not(table: HandTable) -> None:
    table.commit(PROTOCOL, metadata(), table.add("a.parquet"))
    name = f"_dw_values/ab/{'ab' * 32}"
    for path in (name, "_dw_values/new-5f", "_dw_parts/job/0.json"):
        (table.root / path).parent.mkdir(parents=True, exist_ok=True)
        (table.root / path).write_bytes(b"a large value")
    assert paths(capture_table(table.place), FileKind.VALUE) == [name]
