import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dw_platform.config import config_schema, config_schema_text
from dw_platform.quality import CATALOGUE

jsonschema = pytest.importorskip("jsonschema", reason="comes with dagster's own dependencies")

REPOSITORY = Path(__file__).parents[2]
FULL = yaml.safe_load(Path(__file__).with_name("full.yaml").read_text())


def complaints(document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(config_schema())
    return [error.json_path for error in validator.iter_errors(document)]


def test_the_schema_is_a_valid_schema_of_its_draft() -> None:
    schema = config_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_schema_in_docs_is_the_one_of_this_code() -> None:
    stored = (REPOSITORY / "docs/platform.schema.json").read_text()
    assert stored == config_schema_text(), "run `dw config schema > docs/platform.schema.json`"


def test_the_repositorys_own_file_names_the_schema_and_fits_it() -> None:
    text = (REPOSITORY / "platform.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=docs/platform.schema.json\n")
    assert complaints(yaml.safe_load(text)) == []


def test_a_file_with_every_key_fits() -> None:
    assert complaints(FULL) == []


@pytest.mark.parametrize(
    "document",
    [
        {"name": "x", "gateway": {"port": "${PORT:-8080}", "enabled": "${ON}", "max_request": "${MAX}"}},
        {"name": "x", "scaling": {"mode": "${MODE}"}},
        {"name": "x", "streams": None, "lake": {"tables": None}},
        {"name": "x", "lake": {"tables": [{"name": "a.b", "generate": {"kind": "orders", "rows": "200_000"}}]}},
    ],
)
def test_what_the_file_may_say_in_words_an_editor_reads_differently_fits(document: Any) -> None:
    assert complaints(document) == []


def with_check(**check: Any) -> dict[str, Any]:
    return {"name": "x", "quality": [{"table": "a.b", "checks": [check]}]}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "X"},
        {"name": "x", "nope": 1},
        {"name": "x", "gateway": {"port": 0}},
        {"name": "x", "gateway": {"max_request": 8}},
        {"name": "x", "fabric": {"heartbeat": "15"}},
        {"name": "x", "broker": {"kind": "zeromq"}},
        {"name": "x", "lake": {"tables": [{"name": "a.b", "schedule": "hourly"}]}},
        with_check(expect="nope"),
        with_check(column="a"),
        with_check(expect="column_to_exist"),
        with_check(expect="column_to_exist", column="a", min_value=1),
        with_check(expect="column_values_to_be_in_set", column="a"),
        with_check(expect="column_values_to_be_between", column="a"),
        with_check(expect="column_values_to_be_between", column="a", min_value=[1]),
    ],
)
def test_an_editor_marks_what_the_platform_refuses(document: Any) -> None:
    assert complaints(document) != []


def test_an_editor_can_explain_every_key() -> None:
    schema = config_schema()
    models = [schema, *(entry for entry in schema["$defs"].values() if "properties" in entry)]
    undocumented = [
        name
        for model in models
        for name, entry in model["properties"].items()
        if "description" not in entry and "$ref" not in entry["anyOf"][0]  # a section describes itself
    ]
    assert undocumented == []
    assert all("description" in model for model in models)


def test_an_editor_offers_every_check_with_its_parameters() -> None:
    check = config_schema()["$defs"]["CheckSection"]
    rules = {rule["if"]["properties"]["expect"]["const"]: rule["then"] for rule in check["allOf"]}
    assert set(rules) == set(CATALOGUE)
    for name, kind in CATALOGUE.items():
        assert set(rules[name]["properties"]) == {parameter.name for parameter in kind.parameters}


def test_defaults_are_written_the_way_people_write_them() -> None:
    definitions = json.loads(config_schema_text())["$defs"]
    assert definitions["KeepSection"]["properties"]["for"]["default"] == "90d"
    assert definitions["KeepSection"]["properties"]["max_size"]["default"] == "100GB"
