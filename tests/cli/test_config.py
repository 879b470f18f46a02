"""Files that cannot be used: one paragraph with everything to change, exit code 2, and nothing made."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dw, MakeFile

COMMANDS = [
    ["config", "check"],
    ["doctor"],
    ["status"],
    ["tables", "list"],
    ["tables", "build", "shop.orders"],
    ["demo"],
    ["up"],
]

FIVE_MISTAKES = """
homee: x
store: {url: "mysql://user:sekret-word@host/x"}
dagster: {port: 99999}
lake: {tables: [{name: shop.orders}, {name: Shop, sql: SELECT 1}]}
"""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_missing_file_is_named_with_the_command_that_makes_one(dw: Dw, command: list[str], tmp_path: Path) -> None:
    code, out, err = dw(*command)
    assert (code, out) == (2, "")
    assert err == "error: platform.yaml: does not exist; `dw init` writes one, `--config` names another\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "is empty; `dw init` writes one"),
        ("name: [", "is not valid YAML"),
        ("- a\n- b\n", "expected keys such as `name:`"),
        ("name: \x00", "control character"),
    ],
    ids=["empty", "broken", "a list", "not text"],
)
def test_a_file_that_is_no_platform_is_explained(dw: Dw, tmp_path: Path, text: str, advice: str) -> None:
    (tmp_path / "platform.yaml").write_text(text)
    code, out, err = dw("status")
    assert (code, out) == (2, "")
    assert advice in err
    assert "Traceback" not in err


def test_all_mistakes_are_listed_at_once(dw: Dw, make_file: MakeFile) -> None:
    code, out, err = dw("config", "check", "--config", make_file(FIVE_MISTAKES))
    assert (code, out) == (2, "")
    for place in ("homee", "store.url", "dagster.port", "lake.tables[0]", "lake.tables[1].name"):
        assert f"  {place}: " in err
    assert "sekret-word" not in err


def test_mistakes_are_one_json_document_for_programs(dw: Dw, make_file: MakeFile) -> None:
    code, out, _ = dw("config", "check", "--json", "--config", make_file(FIVE_MISTAKES))
    told = json.loads(out)
    assert (code, told["valid"]) == (2, False)
    assert {"homee", "dagster.port"} <= {problem["path"] for problem in told["problems"]}
    assert all(problem["line"] for problem in told["problems"])
    assert "sekret-word" not in out


def test_an_unset_variable_is_named(dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_file("store: {url: '${STORE_ADDRESS}'}")
    code, _, err = dw("status", "-c", file)
    assert code == 2
    assert "needs the environment variable STORE_ADDRESS, which is not set" in err
    monkeypatch.setenv("STORE_ADDRESS", "memory://")
    assert dw("status", "-c", file).code == 0


def test_a_valid_file_is_summed_up_without_opening_anything(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    file = make_file()
    code, out, err = dw("config", "check")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{file} is valid: platform tested, 2 tables."
    assert "shop.revenue  lake.tables[1]" in out
    assert not (tmp_path / "home").exists()


def test_the_file_can_be_named_by_the_environment(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DW_CONFIG", str(make_file()))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert json.loads(dw("config", "check", "--json").out)["config"]["name"] == "tested"


def test_the_schema_is_printed_as_it_is_in_the_documentation(dw: Dw) -> None:
    documented = Path(__file__).parents[2] / "docs" / "platform.schema.json"
    assert dw("config", "schema").out == documented.read_text()
