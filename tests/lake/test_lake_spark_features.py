"""Every table feature that the writers know: the right one is chosen, rules hold, and both engines read the rows."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dw_platform.foundation import PermanentError
from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.schema import SchemaMismatchError
from dw_platform.lake.snapshot import NeedsSparkError
from dw_platform.lake.table import LakeTable

pytestmark = pytest.mark.spark

PLAIN = "no feature or constraint of the table needs Spark's writer"


@dataclass(frozen=True)
class Case:
    """A table as SQL makes it, and what happens to rows."""

    name: str
    columns: str
    reason: str = PLAIN
    clauses: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    then: str | None = None
    """Another statement on the table, before any row."""

    rows: dict[str, list[Any]] = field(default_factory=lambda: {"id": [1, 2], "v": ["a", None]})
    expected: list[tuple[Any, ...]] = field(default_factory=lambda: [(1, "a"), (2, None)])
    refused: dict[str, list[Any]] | None = None
    """Rows that break a rule of the table."""

    deltalake_reads: bool = True

    @property
    def engine(self) -> Engine:
        return Engine.ARROW if self.reason == PLAIN else Engine.SPARK


COLUMNS = "id BIGINT, v STRING"
NULL_ID = {"id": [None, 2], "v": ["a", "b"]}
MAPPED = {"delta.columnMapping.mode": "name"}
NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a local time

CASES = [
    Case("plain", COLUMNS),
    Case("partitioned", COLUMNS, clauses="PARTITIONED BY (v)"),
    Case("change_data_feed", COLUMNS, properties={"delta.enableChangeDataFeed": "true"}),
    Case("append_only", COLUMNS, properties={"delta.appendOnly": "true"}),
    Case("deletion_vectors", COLUMNS, properties={"delta.enableDeletionVectors": "true"}),
    Case("v2_checkpoint", COLUMNS, properties={"delta.checkpointPolicy": "v2"}),
    Case(
        "timestamp_ntz",
        "id BIGINT, v TIMESTAMP_NTZ",
        rows={"id": [1], "v": [NOON]},
        expected=[(1, NOON)],
    ),
    Case("not_null", "id BIGINT NOT NULL, v STRING", refused=NULL_ID),
    Case(
        "check",
        COLUMNS,
        "CHECK constraint positive",
        then="ALTER TABLE {0} ADD CONSTRAINT positive CHECK (id > 0)",
        refused={"id": [-1], "v": ["a"]},
    ),
    Case(
        "generated",
        "id BIGINT, v BIGINT GENERATED ALWAYS AS (id * 2)",
        "column v is generated",
        rows={"id": [4]},
        expected=[(4, 8)],
        refused={"id": [1], "v": [3]},
    ),
    Case(
        "generated_and_given",
        "id BIGINT, v BIGINT GENERATED ALWAYS AS (id * 2)",
        "column v is generated",
        rows={"id": [4], "v": [8]},
        expected=[(4, 8)],
    ),
    Case(
        "identity",
        "id BIGINT, v BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10)",
        "table feature identityColumns",
        rows={"id": [4]},
        expected=[(4, 10)],
        refused={"id": [4], "v": [1]},
    ),
    Case(
        "default",
        "id BIGINT, v STRING DEFAULT 'none'",
        "table feature allowColumnDefaults",
        properties={"delta.feature.allowColumnDefaults": "supported"},
        rows={"id": [1]},
        expected=[(1, "none")],
    ),
    Case("varchar", "id BIGINT, v VARCHAR(3)", "column v has a declared length", refused={"id": [1], "v": ["long"]}),
    Case(
        "char",
        "id BIGINT, v CHAR(2)",
        "column v has a declared length",
        rows={"id": [1], "v": ["ab"]},
        expected=[(1, "ab")],
        refused={"id": [1], "v": ["abc"]},
    ),
    Case("mapped_by_name", COLUMNS, "table feature columnMapping", properties=MAPPED),
    Case("mapped_by_id", COLUMNS, "table feature columnMapping", properties={"delta.columnMapping.mode": "id"}),
    Case(
        "mapped_and_not_null",
        "id BIGINT NOT NULL, v STRING",
        "table feature columnMapping",
        properties=MAPPED,
        refused=NULL_ID,
    ),
    Case("row_tracking", COLUMNS, "table feature domainMetadata", properties={"delta.enableRowTracking": "true"}),
    Case(
        "in_commit_timestamps",
        COLUMNS,
        "table feature inCommitTimestamp",
        properties={"delta.enableInCommitTimestamps": "true"},
    ),
    Case("liquid_clustering", COLUMNS, "table feature clustering", clauses="CLUSTER BY (id)"),
    Case(
        "type_widening",
        "id INT, v STRING",
        "table feature typeWidening",
        properties={"delta.enableTypeWidening": "true"},
        then="ALTER TABLE {0} ALTER COLUMN id TYPE BIGINT",
        rows={"id": [2**40], "v": ["a"]},
        expected=[(2**40, "a")],
        deltalake_reads=False,
    ),
    Case(
        "vacuum_protocol_check",
        COLUMNS,
        "table feature vacuumProtocolCheck",
        properties={"delta.feature.vacuumProtocolCheck": "supported"},
        deltalake_reads=False,
    ),
    Case(
        "checkpoint_protection",
        COLUMNS,
        "table feature checkpointProtection",
        properties={"delta.feature.checkpointProtection": "supported"},
    ),
    *(
        Case(
            f"iceberg_{version}",
            COLUMNS,
            "table feature columnMapping",
            properties={**MAPPED, f"delta.enableIcebergCompatV{version}": "true"},
        )
        for version in (1, 2)
    ),
    Case("required_in_struct", "id BIGINT, v STRUCT<x: BIGINT NOT NULL>", "field v.x inside a struct is NOT NULL",
         rows={"id": [1], "v": [{"x": 2}]}, expected=[(1, {"x": 2})], refused={"id": [1], "v": [{"x": None}]}),
]  # fmt: skip


def make(spark: SparkSession, lake: Lake, case: Case) -> LakeTable:
    table = lake.table(case.name)
    name = f"delta.`{table.location.uri}`"
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in case.properties.items())
    spark.sql(
        f"CREATE TABLE {name} ({case.columns}) USING delta {case.clauses}"
        + (f" TBLPROPERTIES ({properties})" if properties else "")
    )
    if case.then:
        spark.sql(case.then.format(name))
    return table


def rows_of(table: LakeTable, columns: dict[str, list[Any]]) -> pa.Table:
    schema = table.snapshot().schema
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_reach_the_table_by_the_right_writer_and_its_rules_hold(
    spark: SparkSession, lake: Lake, case: Case
) -> None:
    table = make(spark, lake, case)
    report = table.append(rows_of(table, case.rows), positions={"source": 1})
    newest = table.history(1)[0]
    assert (report.engine, report.reason, report.rows) == (case.engine, case.reason, len(case.expected))
    assert (newest.version, newest.engine, newest.reason) == (report.version, case.engine, case.reason)
    assert table.snapshot().position("source") == 1

    if case.refused:
        before = table.snapshot().version
        with pytest.raises(PermanentError):
            table.append(rows_of(table, case.refused))
        assert table.snapshot().version == before

    by_spark = [tuple(row.asDict(recursive=True).values()) for row in table.read().select("id", "v").collect()]
    assert sorted(by_spark, key=repr) == sorted(case.expected, key=repr)
    if not case.deltalake_reads:
        with pytest.raises(NeedsSparkError, match="Read it as a DataFrame"):
            table.snapshot().read_arrow()
        return
    by_deltalake = [tuple(row.values()) for row in table.snapshot().read_arrow(["id", "v"]).to_pylist()]
    assert sorted(by_deltalake, key=repr) == sorted(case.expected, key=repr)


def test_a_variant_keeps_its_value_on_the_arrow_path(spark: SparkSession, lake: Lake) -> None:
    table = make(spark, lake, Case("variant", "id BIGINT, v VARIANT"))
    report = table.append(spark.sql("""SELECT 1L AS id, parse_json('{"a": [1, "x"]}') AS v"""))
    assert report.engine is Engine.ARROW
    row = table.read().selectExpr("id", "variant_get(v, '$.a[1]', 'string') AS x", "v IS NULL AS missing").first()
    assert row is not None
    assert row.asDict() == {"id": 1, "x": "x", "missing": False}
    overwritten = table.overwrite(spark.sql("SELECT 2L AS id, parse_json('7') AS v"))
    assert (overwritten.engine, overwritten.reason) == (Engine.SPARK, "the table has variant columns")
    assert table.read().selectExpr("id", "CAST(v AS INT) AS v").collect() == [(2, 7)]
    assert '"variant"' in table.snapshot().delta.schema().to_json()


def test_numbers_go_on_where_the_table_left_off_and_cannot_be_given(spark: SparkSession, lake: Lake) -> None:
    table = make(spark, lake, Case("identity", "id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY"))
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    numbers = [row.n for row in table.read().collect()]
    assert len(set(numbers)) == 3
    with pytest.raises(SchemaMismatchError, match="the table itself numbers n"):
        table.append(pa.table({"id": [9], "n": [1]}))


def test_narrower_rows_are_widened_before_sparks_writer_gets_them(spark: SparkSession, lake: Lake) -> None:
    columns = "id BIGINT, d DECIMAL(20, 4), s STRUCT<a: BIGINT, b: STRING>"
    then = "ALTER TABLE {0} ADD CONSTRAINT positive CHECK (id > 0)"
    table = make(spark, lake, Case("check", columns, then=then))
    swapped = pa.struct([("b", pa.string()), ("a", pa.int8())])
    table.append(
        pa.table({
            "s": pa.array([{"b": "x", "a": 1}], swapped),
            "id": pa.array([1], pa.int16()),
            "d": pa.array([1.5], pa.float64()).cast(pa.decimal128(5, 1)),
        })
    )  # fmt: skip
    assert table.snapshot().read_arrow(["s"]).to_pylist() == [{"s": {"a": 1, "b": "x"}}]
    [file] = table.location.local.glob("*.parquet")
    assert pq.read_schema(file).field("id").type == pa.int64()
    assert pq.read_schema(file).field("d").type == pa.decimal128(20, 4)


def test_columns_are_added_to_a_table_that_only_spark_may_change(spark: SparkSession, lake: Lake) -> None:
    table = make(spark, lake, Case("mapped", "id BIGINT, `a b` STRING", properties=MAPPED))
    table.append(pa.table({"id": [1], "a b": ["x"], "new": [0.5]}))
    table.append(pa.table({"id": [2], "a b": ["y"]}), missing="null")
    expected = [{"id": 1, "a b": "x", "new": 0.5}, {"id": 2, "a b": "y", "new": None}]
    assert sorted(table.snapshot().read_arrow().to_pylist(), key=repr) == expected
    assert sorted((row.asDict() for row in table.read().collect()), key=repr) == expected


def test_an_overwrite_by_spark_keeps_the_rules_when_the_columns_stay(spark: SparkSession, lake: Lake) -> None:
    case = Case("kept", "id BIGINT NOT NULL, v BIGINT GENERATED ALWAYS AS (id * 2)")
    table = make(spark, lake, case)
    report = table.overwrite(pa.table({"id": [3], "v": [6]}))
    assert (report.engine, report.rows) == (Engine.SPARK, 1)
    assert table.snapshot().writer.reason == "column v is generated"
    assert not table.snapshot().schema.field("id").nullable
    with pytest.raises(PermanentError):
        table.overwrite(pa.table({"id": [3], "v": [7]}))
    assert table.snapshot().read_arrow().to_pylist() == [{"id": 3, "v": 6}]


def test_deletes_are_refused_on_an_append_only_table(spark: SparkSession, lake: Lake) -> None:
    table = make(spark, lake, Case("log", COLUMNS, properties={"delta.appendOnly": "true"}))
    table.append(pa.table({"id": [1], "v": ["a"]}))
    with pytest.raises(PermanentError, match="APPEND"):
        table.delete("id = 1")
    assert table.snapshot().row_count == 1


def test_inserts_appear_in_the_change_data_feed(spark: SparkSession, lake: Lake) -> None:
    table = make(spark, lake, Case("feed", COLUMNS, properties={"delta.enableChangeDataFeed": "true"}))
    version = table.append(pa.table({"id": [1], "v": ["a"]})).version
    table.delete("id = 1")
    changes = (
        spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        .load(table.location.spark_uri).orderBy("_commit_version")
    )  # fmt: skip
    assert [(row.id, row._change_type) for row in changes.collect()] == [(1, "insert"), (1, "delete")]
