"""What a person gets to read who points the platform at the wrong place: one paragraph that says what to do."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError, PermanentError, PlatformError, UserError
from dw_platform.lake.commit import CommitRefusedError
from dw_platform.lake.lake import Lake
from dw_platform.lake.location import LakeNotWritableError
from dw_platform.lake.opening import (
    DamagedLogError,
    NewerProtocolError,
    TableMissingError,
    VersionMissingError,
)
from dw_platform.lake.settings import LakeSettings, MaintenancePolicy
from dw_platform.lake.table import LakeTable
from dw_platform.store import MemoryStore

ROWS = pa.table({"id": [1]})


def lake_at(root: Path | str, like: Lake) -> Lake:
    return Lake(LakeSettings(root=str(root)), store=MemoryStore(), spark=like.spark)


def paragraph(error: pytest.ExceptionInfo[PlatformError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def rewrite_protocol(table: LakeTable, **protocol: Any) -> None:
    table.create(ROWS.schema)
    log = table.location.local / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    changed = [action | {"protocol": protocol} if "protocol" in action else action for action in actions]
    log.write_text("\n".join(map(json.dumps, changed)))


@pytest.mark.parametrize("place", ["file/lake", "/proc/no/such/place"])
def test_a_root_that_cannot_be_made_is_named_with_the_setting_to_change(tmp_path: Path, lake: Lake, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LakeNotWritableError) as caught:
        lake_at(tmp_path / place, lake).table("t").append(ROWS)
    assert "`lake.root`" in paragraph(caught)


def test_a_file_in_the_place_of_a_table_is_named(lake: Lake) -> None:
    lake.location("t").local.parent.mkdir(parents=True)
    lake.location("t").local.write_text("not a folder")
    with pytest.raises(LakeNotWritableError, match="there is a file of that name"):
        lake.table("t").append(ROWS)
    with pytest.raises(TableMissingError):
        lake.table("t").snapshot()


@pytest.mark.parametrize("prepare", ["nothing", "empty folder", "strangers", "empty log"])
def test_a_path_without_a_delta_table_is_named_before_any_jvm_starts(lake: Lake, prepare: str) -> None:
    folder = lake.location("t").local
    if prepare != "nothing":
        folder.mkdir(parents=True)
    if prepare == "strangers":
        (folder / "data.parquet").write_bytes(b"PAR1")
    if prepare == "empty log":
        (folder / "_delta_log").mkdir()
    table = lake.table("t")
    for action in (table.snapshot, table.read, table.maintain, table.history, lambda: table.delete("true")):
        with pytest.raises(TableMissingError) as caught:
            action()
        assert str(folder) in paragraph(caught)
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize(
    "protocol",
    [
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["futureLayout"],
            "writerFeatures": ["futureLayout"],
        },
        {"minReaderVersion": 9, "minWriterVersion": 9},
    ],
)
def test_a_newer_protocol_is_named_with_what_it_demands(lake: Lake, protocol: dict[str, Any]) -> None:
    table = lake.table("t")
    rewrite_protocol(table, **protocol)
    for action in (table.snapshot, table.read, lambda: table.append(ROWS)):
        with pytest.raises(NewerProtocolError) as caught:
            action()
    assert caught.value.demand in paragraph(caught)
    assert "Upgrade" in str(caught.value)


@pytest.mark.spark
def test_a_feature_that_only_writers_must_know_is_named_by_spark(lake: Lake) -> None:
    table = lake.table("t")
    rewrite_protocol(table, minReaderVersion=1, minWriterVersion=7, writerFeatures=["futureRule"])
    with pytest.raises(NewerProtocolError, match="futureRule"):
        table.append(ROWS)
    assert table.snapshot().version == 0


def test_a_damaged_log_is_permanent_and_says_restore(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    (table.location.local / "_delta_log" / f"{1:020d}.json").write_text("garbage{")
    with pytest.raises(DamagedLogError) as caught:
        table.snapshot()
    assert isinstance(caught.value, PermanentError)
    assert "backup" in paragraph(caught)


@pytest.mark.parametrize("version", [2, 99])
def test_a_version_that_never_was_is_named(lake: Lake, version: int) -> None:
    table = lake.table("t")
    table.append(ROWS)
    with pytest.raises(VersionMissingError, match=f"no version {version}"):
        table.snapshot(version)


@pytest.mark.parametrize(
    "root", ["", "s3://", "s3:///", "gs://bucket/x", "file:///tmp/x", "s3a://bucket", "/a/50%20/b", "/a[1]"]
)
def test_a_root_that_an_engine_would_misread_is_refused_when_it_is_set(root: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        LakeSettings(root=root)
    assert caught.value.field == "root"


def test_an_upkeep_that_would_hurt_readers_is_refused_when_it_is_set() -> None:
    from datetime import timedelta

    with pytest.raises(InvalidValueError, match="running readers"):
        MaintenancePolicy(retention=timedelta(minutes=5))
    with pytest.raises(InvalidValueError, match="1 MiB"):
        MaintenancePolicy(target_file_bytes=10)


def test_properties_that_deltalake_cannot_combine_are_refused_instead_of_a_panic(lake: Lake) -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    with pytest.raises(CommitRefusedError, match="deltalake gave up"):
        lake.table("t").create(schema, properties={"delta.checkpointPolicy": "v2"})
