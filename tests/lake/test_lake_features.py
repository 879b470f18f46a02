import pytest

from dw_platform.lake.features import (
    Engine,
    TableFacts,
    choose_writer,
    filled_columns,
    opaque_columns,
    reserved_columns,
)

HARMLESS = [
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
]
DEMANDING = [
    "allowColumnDefaults",
    "checkpointProtection",
    "clustering",
    "columnMapping",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "vacuumProtocolCheck",
    "a feature of next year",
]


def column(name: str = "c", kind: object = "long", **metadata: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def test_a_plain_table_is_written_by_arrow() -> None:
    assert choose_writer(TableFacts(columns=[column()])).engine is Engine.ARROW


@pytest.mark.parametrize("feature", HARMLESS)
def test_a_feature_that_asks_nothing_of_an_append_leaves_the_table_to_arrow(feature: str) -> None:
    assert choose_writer(TableFacts(writer_version=7, writer_features=frozenset({feature}))).engine is Engine.ARROW


@pytest.mark.parametrize("feature", DEMANDING)
def test_any_other_feature_hands_the_table_to_spark_and_is_named(feature: str) -> None:
    choice = choose_writer(TableFacts(writer_version=7, writer_features=frozenset({feature, "appendOnly"})))
    assert (choice.engine, choice.reason) == (Engine.SPARK, f"table feature {feature}")


def test_a_writer_version_beyond_named_features_hands_the_table_to_spark() -> None:
    assert choose_writer(TableFacts(writer_version=8)).reason == "writer version 8"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("delta.constraints.positive", "id > 0", "CHECK constraint positive"),
        ("delta.columnMapping.mode", "name", "column mapping is on"),
        ("delta.columnMapping.mode", "id", "column mapping is on"),
        ("delta.enableRowTracking", "TRUE", "row tracking is on"),
        ("delta.enableInCommitTimestamps", "true", "in-commit timestamps are on"),
        ("delta.enableIcebergCompatV1", "true", "Iceberg compatibility is on"),
        ("delta.enableTypeWidening", "true", "type widening is on"),
    ],
)
def test_a_property_that_constrains_rows_hands_the_table_to_spark(key: str, value: str, reason: str) -> None:
    choice = choose_writer(TableFacts(configuration={key: value}))
    assert (choice.engine, choice.reason) == (Engine.SPARK, reason)


@pytest.mark.parametrize(("key", "value"), [("delta.enableRowTracking", "false"), ("delta.columnMapping.mode", "none")])
def test_a_property_that_is_switched_off_changes_nothing(key: str, value: str) -> None:
    assert choose_writer(TableFacts(configuration={key: value})).engine is Engine.ARROW


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"delta.generationExpression": "id * 2"}, "column c is generated"),
        ({"delta.identity.start": 1}, "column c is an identity column"),
        ({"delta.invariants": "{}"}, "column c has an invariant"),
        ({"CURRENT_DEFAULT": "1"}, "column c has a default"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}, "column c has a declared length"),
    ],
)
def test_a_column_with_rules_hands_the_table_to_spark(metadata: dict[str, object], reason: str) -> None:
    choice = choose_writer(TableFacts(columns=[column("a"), column("c", **metadata)]))
    assert (choice.engine, choice.reason) == (Engine.SPARK, reason)


def test_rules_are_found_at_any_depth() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}]}
    nested = {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": inner}}
    choice = choose_writer(TableFacts(columns=[column("deep", nested)]))
    assert choice.reason == "field deep.x inside a struct is NOT NULL"


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "elementType": "long", "containsNull": False},
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
    ],
)
def test_elements_that_must_not_be_null_hand_the_table_to_spark(kind: dict[str, object]) -> None:
    assert choose_writer(TableFacts(columns=[column("c", kind)])).reason == "the elements of column c are NOT NULL"


def test_columns_that_spark_computes_are_told_from_those_that_rows_must_bring() -> None:
    facts = TableFacts(
        columns=[
            column("plain"),
            column("generated", **{"delta.generationExpression": "plain * 2"}),
            column("defaulted", CURRENT_DEFAULT="1"),
            column("numbered", **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": False}),
            column("may_be_given", **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True}),
        ]
    )
    assert filled_columns(facts) == {"generated", "defaulted", "numbered", "may_be_given"}
    assert reserved_columns(facts) == {"numbered"}


def test_a_variant_is_found_inside_other_types() -> None:
    inside = {"type": "array", "elementType": "variant", "containsNull": True}
    facts = TableFacts(columns=[column("a"), column("v", "variant"), column("list", inside)])
    assert opaque_columns(facts) == {"v", "list"}
