"""Tables with every feature that Spark makes here: captured, put into another folder, and still the same table."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import FileKind, TableCapture
from dw_platform.backup.delta_errors import AbsolutePathError, FilesMissingError
from dw_platform.backup.place import Place
from tests.backup.delta_tables import copy_table, log_names, paths

pytestmark = pytest.mark.spark

PLACES = "'a b', 'a/b', '100%', 'ü 日本', '12:30', NULL"


@dataclass(frozen=True)
class Case:
    """A table: how it is made, what happens to it, and how rows are added after it was restored."""

    name: str
    statements: tuple[str, ...]
    insert: str
    conf: dict[str, str] = field(default_factory=dict)
    deltalake_reads: bool = True
    kinds: frozenset[FileKind] = frozenset({FileKind.DATA, FileKind.LOG})
    log_has: str = ".json"
    features: frozenset[str] = frozenset()


def properties(**values: str) -> str:
    written = ", ".join(f"'delta.{key.replace('__', '.')}' = '{value}'" for key, value in values.items())
    return f"TBLPROPERTIES ({written})"


CASES = [
    Case(
        "partitions_vectors_and_feed",
        (
            "CREATE TABLE {0} (id BIGINT NOT NULL, p STRING, v STRING) USING delta "
            "PARTITIONED BY (p) " + properties(enableDeletionVectors="true", enableChangeDataFeed="true"),
            f"INSERT INTO {{0}} SELECT id, p, '' FROM range(0, 7, 1, 1) LATERAL VIEW explode(array({PLACES})) AS p",
            "ALTER TABLE {0} ADD CONSTRAINT positive CHECK (id >= 0)",
            "DELETE FROM {0} WHERE id = 3",
            "UPDATE {0} SET v = 'changed' WHERE id = 5",
        ),
        "INSERT INTO {0} VALUES (99, 'a b', 'new')",
        kinds=frozenset(FileKind) - {FileKind.VALUE},
        features=frozenset({"deletionVectors", "changeDataFeed", "checkConstraints"}),
    ),
    Case(
        "mapped_by_name_widened_and_tracked",
        (
            "CREATE TABLE {0} (id INT, `odd, name` STRING, d STRING DEFAULT 'none') USING delta "
            + properties(
                columnMapping__mode="name", enableTypeWidening="true", enableRowTracking="true",
                enableInCommitTimestamps="true", enableDeletionVectors="true", feature__allowColumnDefaults="supported",
            ),
            "INSERT INTO {0} SELECT CAST(id AS INT), 'x', 'y' FROM range(0, 10, 1, 1)",
            "ALTER TABLE {0} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {0} RENAME COLUMN `odd, name` TO even",
            "INSERT INTO {0} (id, even) VALUES (1099511627776, 'big')",
            "DELETE FROM {0} WHERE id = 3",
        ),
        "INSERT INTO {0} (id, even) VALUES (7, 'later')",
        deltalake_reads=False,
        kinds=frozenset({FileKind.DATA, FileKind.LOG, FileKind.DELETION_VECTOR}),
        features=frozenset({"columnMapping", "typeWidening", "rowTracking", "inCommitTimestamp"}),
    ),
    Case(
        "mapped_by_id_and_compacted",
        (
            "CREATE TABLE {0} (id BIGINT, `p q` STRING) USING delta PARTITIONED BY (`p q`) "
            + properties(columnMapping__mode="id"),
            "INSERT INTO {0} VALUES (1, 'a'), (2, 'b c')",
            "INSERT INTO {0} VALUES (3, 'a'), (4, NULL)",
            "OPTIMIZE {0}",
        ),
        "INSERT INTO {0} VALUES (5, 'a')",
        features=frozenset({"columnMapping"}),
    ),
    Case(
        "v2_checkpoint_with_sidecars",
        (
            "CREATE TABLE {0} (id BIGINT) USING delta "
            + properties(checkpointPolicy="v2", checkpointInterval="3", enableDeletionVectors="true"),
            *(f"INSERT INTO {{0}} SELECT id + {number * 10} FROM range(0, 10, 1, 2)" for number in range(2)),
            "DELETE FROM {0} WHERE id = 4",
            "INSERT INTO {0} VALUES (1000)",
        ),
        "INSERT INTO {0} VALUES (2000)",
        conf={"spark.databricks.delta.checkpoint.partSize": "2"},
        kinds=frozenset({FileKind.DATA, FileKind.LOG, FileKind.DELETION_VECTOR}),
        log_has="_sidecars/",
        features=frozenset({"v2Checkpoint"}),
    ),
    Case(
        "checkpoint_in_parts",
        (
            "CREATE TABLE {0} (id BIGINT) USING delta "
            + properties(
                checkpointInterval="2", checkpoint__writeStatsAsJson="false", checkpoint__writeStatsAsStruct="true",
            ),
            "INSERT INTO {0} SELECT id FROM range(0, 10, 1, 4)",
            "INSERT INTO {0} SELECT id FROM range(10, 20, 1, 4)",
        ),
        "INSERT INTO {0} VALUES (2000)",
        conf={"spark.databricks.delta.checkpoint.partSize": "4"},
        log_has=".checkpoint.0000000001.",
    ),
    Case(
        "clustered_identity_and_generated",
        (
            (
                "CREATE TABLE {0} (id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY, "
                "twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta CLUSTER BY (id)"
            ),
            "INSERT INTO {0} (id) SELECT id FROM range(0, 10, 1, 2)",
            (
                "MERGE INTO {0} t USING (SELECT id + 5 AS id FROM range(0, 10, 1, 1)) s ON t.id = s.id "
                "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
            ),
            "OPTIMIZE {0}",
        ),
        "INSERT INTO {0} (id) VALUES (77)",
        features=frozenset({"clustering", "domainMetadata", "identityColumns", "generatedColumns"}),
    ),
    Case(
        "types_restored_and_vacuumed",
        (
            "CREATE TABLE {0} (id BIGINT, t TIMESTAMP_NTZ, v VARIANT) USING delta",
            "INSERT INTO {0} SELECT 1, TIMESTAMP_NTZ'2026-01-01 12:00:00', parse_json('{{\"a\": [1, \"x\"]}}')",
            "INSERT INTO {0} SELECT 2, NULL, parse_json('7')",
            "DELETE FROM {0} WHERE id = 1",
            "RESTORE TABLE {0} TO VERSION AS OF 1",
            "VACUUM {0} LITE RETAIN 0 HOURS",
        ),
        "INSERT INTO {0} SELECT 3, NULL, NULL",
        conf={"spark.databricks.delta.retentionDurationCheck.enabled": "false"},
        features=frozenset({"timestampNtz", "variantType"}),
    ),
]  # fmt: skip


def run(spark: SparkSession, conf: dict[str, str], statements: tuple[str, ...], folder: Path) -> None:
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        for statement in statements:
            spark.sql(statement.format(f"delta.`{folder}`"))
    finally:
        for key in conf:
            spark.conf.unset(key)


def rows(spark: SparkSession, folder: Path, **options: Any) -> list[str]:
    """Return every row as text, in order."""
    frame = spark.read.format("delta").options(**options).load(str(folder))
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make each table once, however many tests look at it."""
    root, done = tmp_path_factory.mktemp("features"), dict[str, Path]()

    def make(name: str) -> Path:
        if name not in done:
            [case] = [case for case in CASES if case.name == name]
            run(spark, case.conf, case.statements, root / name)
            done[name] = root / name
        return done[name]

    return make


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_restored_table_is_the_same_table_and_goes_on(
    case: Case, spark: SparkSession, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source, target = made(case.name), tmp_path / "restored"
    capture = copy_table(Place.at(source), Place.at(target))
    expected = rows(spark, source)
    assert expected
    assert rows(spark, target) == expected
    assert capture.state.rows == len(expected)
    assert {file.kind for file in capture.files} == case.kinds
    assert any(case.log_has in name for name in log_names(capture))
    assert case.features <= frozenset(capture.state.protocol.get("writerFeatures", ()))
    same_state(capture, target)
    if case.deltalake_reads:
        assert deltalake_counts(target) == len(expected)
    run(spark, {}, (case.insert,), target)
    assert len(rows(spark, target)) == len(expected) + 1
    again = capture_table(Place.at(target)).state
    assert (again.version, again.rows) == (capture.state.version + 1, len(expected) + 1)


def same_state(capture: TableCapture, target: Path) -> None:
    again = capture_table(Place.at(target))
    assert again.state == capture.state
    assert paths(again) == paths(capture)
    assert [file.add for file in again.files] == [file.add for file in capture.files]
    listed = {name.rpartition("/")[2] for name in log_names(capture)}
    assert {path.name for path in (target / "_delta_log").rglob("*") if path.is_file()} == listed


def deltalake_counts(target: Path) -> int:
    query = QueryBuilder().register("t", DeltaTable(target)).execute("SELECT count(*) AS n FROM t")
    return int(query.read_all()["n"][0].as_py())


def test_row_ids_and_the_positions_of_streams_are_those_of_the_source(
    spark: SparkSession, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source, target = made("mapped_by_name_widened_and_tracked"), tmp_path / "restored"
    more = spark.createDataFrame([(50, "txn", "z")], "id BIGINT, even STRING, d STRING")
    stream = {"txnAppId": "stream", "txnVersion": 41}
    more.write.format("delta").mode("append").options(**stream).save(str(source))
    capture = copy_table(Place.at(source), Place.at(target))
    assert capture.state.transactions == {"stream": 41}
    assert "delta.rowTracking" in capture.state.domains

    def tracked(folder: Path) -> list[Any]:
        frame = spark.read.format("delta").load(str(folder))
        return sorted(frame.selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version").collect())

    assert tracked(target) == tracked(source)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{target}`").selectExpr("version", "timestamp")
    assert (
        history.collect()
        == spark.sql(f"DESCRIBE HISTORY delta.`{source}`").selectExpr("version", "timestamp").collect()
    )
    newest = history.orderBy("version", ascending=False).first()
    assert newest is not None
    committed = datetime.fromtimestamp(capture.state.committed_at_ms / 1000, UTC)
    assert committed.replace(tzinfo=None) == newest.timestamp.astimezone(UTC).replace(tzinfo=None)


def test_an_identity_goes_on_where_it_was(spark: SparkSession, made: Callable[[str], Path], tmp_path: Path) -> None:
    source, target = made("clustered_identity_and_generated"), tmp_path / "restored"
    copy_table(Place.at(source), Place.at(target))
    used = {json.loads(row)["n"] for row in rows(spark, source)}
    run(spark, {}, ("INSERT INTO {0} (id) VALUES (500), (501)",), target)
    numbers = [json.loads(row)["n"] for row in rows(spark, target)]
    assert len(set(numbers)) == len(numbers) == len(used) + 2


def test_with_history_time_travel_and_the_change_feed_work_as_at_the_source(
    spark: SparkSession, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source, target = made("partitions_vectors_and_feed"), tmp_path / "restored"
    capture = copy_table(Place.at(source), Place.at(target), history=True)
    assert capture.state.version > 3
    for version in (1, 3):
        assert rows(spark, target, versionAsOf=version) == rows(spark, source, versionAsOf=version)
    feed = {"readChangeFeed": "true", "startingVersion": "0"}
    changes = rows(spark, target, **feed)
    assert changes == rows(spark, source, **feed)
    assert any('"update_preimage"' in change for change in changes)


def test_without_history_an_older_version_is_a_table_of_its_own(
    spark: SparkSession, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source, target = made("partitions_vectors_and_feed"), tmp_path / "restored"
    second = capture_table(Place.at(source), version=2).state
    at = datetime.fromtimestamp(second.committed_at_ms / 1000, UTC)
    capture = copy_table(Place.at(source), Place.at(target), at=at)
    assert capture.state == second
    assert rows(spark, target) == rows(spark, source, versionAsOf=2)
    run(spark, {}, ("INSERT INTO {0} VALUES (99, 'a b', 'new')",), target)
    assert capture_table(Place.at(target)).state.version == 3


def test_what_vacuum_took_is_missing_at_its_version_only(made: Callable[[str], Path]) -> None:
    source = Place.at(made("types_restored_and_vacuumed"))
    newest = capture_table(source).state.version
    assert newest >= 4
    with pytest.raises(FilesMissingError):
        capture_table(source, version=2)
    assert capture_table(source, history=True).state.version == newest


def test_a_restored_table_can_be_vacuumed_without_losing_a_row(made: Callable[[str], Path], tmp_path: Path) -> None:
    target = tmp_path / "restored"
    capture = copy_table(Place.at(made("checkpoint_in_parts")), Place.at(target))
    (target / "orphan.parquet").write_bytes(b"of a restore that was taken back")
    removed = DeltaTable(target).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    assert removed == ["orphan.parquet"]
    assert deltalake_counts(target) == capture.state.rows


def test_a_shallow_clone_is_refused(spark: SparkSession, made: Callable[[str], Path], tmp_path: Path) -> None:
    source, clone = made("checkpoint_in_parts"), tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    with pytest.raises(AbsolutePathError, match="shallow clones"):
        capture_table(Place.at(clone))


def test_spark_refuses_a_log_that_is_not_complete_yet(
    spark: SparkSession, made: Callable[[str], Path], tmp_path: Path
) -> None:
    """What a reader of a bucket finds while commits arrive, newest first, before the one that all others stand on."""
    target = tmp_path / "restored"
    copy_table(Place.at(made("mapped_by_id_and_compacted")), Place.at(target))
    (target / "_delta_log/00000000000000000000.json").unlink()
    with pytest.raises(Exception, match=r"DELTA_TRUNCATED_TRANSACTION_LOG|DELTA_VERSIONS_NOT_CONTIGUOUS"):
        rows(spark, target)
