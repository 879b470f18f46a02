"""Listing and showing tables: without a JVM, and a bad table never hides a good one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dw_platform.pipelines import Platform
from dw_platform.store.file_lock import file_lock
from tests.cli.conftest import Dw, MakeFile

Harm = Callable[[Path], None]


def _log(file: Path, table: str = "shop.orders") -> Path:
    folder = file.parent / "home" / "lake" / table.replace(".", "/") / "_delta_log"
    return max(folder.glob("*.json"))


def _set_protocol(log: Path, **protocol: object) -> None:
    first = log.with_name("00000000000000000000.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    actions = [{"protocol": protocol} if "protocol" in action else action for action in actions]
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))


def newer_protocol(log: Path) -> None:
    _set_protocol(log, minReaderVersion=9, minWriterVersion=9)


def unknown_feature(log: Path) -> None:
    _set_protocol(
        log,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=["timeTravelMachine"],
        writerFeatures=["timeTravelMachine"],
    )


def truncated(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-40])


def garbage(log: Path) -> None:
    log.write_bytes(b"\x00\xff" * 200)


def no_commit(log: Path) -> None:
    for entry in log.parent.iterdir():
        entry.unlink()


HARMS = [newer_protocol, unknown_feature, truncated, garbage, no_commit]


def test_a_new_platform_says_how_its_tables_come_to_be(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    code, out, _ = dw("tables", "list")
    assert code == 0
    assert out == (
        "Not built yet: shop.orders, shop.revenue. `dw demo` builds all tables, `dw tables build TABLE` one.\n"
    )
    assert dw("tables", "list", "--json").out == "[]\n"


def test_a_platform_without_tables_says_so(dw: Dw, make_file: MakeFile) -> None:
    make_file("")
    assert dw("tables", "list").out == "There are no tables yet, and platform.yaml describes none.\n"


def test_tables_are_listed_with_numbers_to_the_right(dw: Dw, with_tables: Path) -> None:
    code, out, err = dw("tables", "list", "-c", with_tables)
    assert (code, err) == (0, "")
    header, first, second, hint = out.splitlines()
    assert header.split()[:5] == ["table", "rows", "size", "files", "version"]
    assert first.index("2") == header.index("rows") + len("rows") - 1
    assert (first.split()[0], second.split()[0]) == ("shop.orders", "shop.other")
    assert hint.startswith("Not built yet: shop.revenue.")


def test_the_list_for_programs_is_one_document(dw: Dw, with_tables: Path) -> None:
    entry = json.loads(dw("tables", "list", "--json", "-c", with_tables).out)[0]
    assert (entry["name"], entry["rows"], entry["files"], entry["writer"]) == ("shop.orders", 2, 1, "arrow")


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("command", [["tables", "list"], ["status"]], ids=["tables list", "status"])
def test_a_table_that_cannot_be_read_is_listed_beside_the_others(
    dw: Dw, with_tables: Path, harm: Harm, command: list[str]
) -> None:
    harm(_log(with_tables))
    code, out, err = dw(*command, "-c", with_tables)
    assert code == 1
    (bad,) = (line for line in out.splitlines() if line.startswith("shop.orders "))
    (good,) = (line for line in out.splitlines() if line.startswith("shop.other "))
    assert bad.endswith("cannot be read")
    assert "2" in good.split()
    assert err.startswith("error: shop.orders: ")
    assert "Traceback" not in err
    assert len(err) < 1_000, "a paragraph, not a dump"


@pytest.mark.parametrize("harm", HARMS)
def test_programs_find_the_reason_beside_the_name(dw: Dw, with_tables: Path, harm: Harm) -> None:
    harm(_log(with_tables))
    code, out, _ = dw("tables", "list", "--json", "-c", with_tables)
    bad, good = json.loads(out)
    assert (code, bad["name"], good["rows"]) == (1, "shop.orders", 2)
    assert bad["error"].startswith("shop.orders: ")


@pytest.mark.parametrize(
    ("harm", "advice"),
    [
        (newer_protocol, "Upgrade dw_platform"),
        (unknown_feature, "Upgrade dw_platform"),
        (truncated, "Restore the table from a backup"),
    ],
)
def test_showing_a_bad_table_says_what_to_do(dw: Dw, with_tables: Path, harm: Harm, advice: str) -> None:
    harm(_log(with_tables))
    code, out, err = dw("tables", "show", "shop.orders", "-c", with_tables)
    assert (code, out) == (1, "")
    assert advice in err


def test_verdicts_that_cannot_be_read_do_not_hide_the_tables(dw: Dw, with_tables: Path) -> None:
    with Platform.open(with_tables, environ={}) as platform:
        other = platform.lake.table("shop.other").snapshot().read_arrow()
        platform.lake.table("ops.quality_results").append(other)
    truncated(_log(with_tables, "ops.quality_results"))
    code, out, err = dw("status", "-c", with_tables)
    assert code == 1
    assert "shop.orders " in out
    assert err.startswith("error: ops.quality_results: ")


def test_showing_a_table_tells_its_columns_and_commits(dw: Dw, with_tables: Path) -> None:
    out = dw("tables", "show", "shop.orders", "-c", with_tables).out
    assert "order_id  int64" in out
    assert "CREATE TABLE" in out
    told = json.loads(dw("tables", "show", "shop.orders", "--json", "-c", with_tables).out)
    assert [commit["version"] for commit in told["history"]] == [1, 0]
    assert (told["rows"], told["version"], told["columns"][0]["name"]) == (2, 1, "order_id")


@pytest.mark.parametrize("command", ["show", "build"])
def test_a_name_that_is_none_is_refused(dw: Dw, with_tables: Path, command: str) -> None:
    code, _, err = dw("tables", command, "../../etc", "-c", with_tables)
    assert code == 2
    assert "../../etc" in err


def test_a_table_that_was_never_built_says_how_to(dw: Dw, with_tables: Path) -> None:
    code, _, err = dw("tables", "show", "shop.revenue", "-c", with_tables)
    assert code == 2
    assert "Build it with `dw tables build shop.revenue`" in err


def test_a_folder_without_a_delta_table_is_no_table(dw: Dw, with_tables: Path) -> None:
    (with_tables.parent / "home" / "lake" / "shop" / "revenue").mkdir()
    code, _, err = dw("tables", "show", "shop.revenue", "-c", with_tables)
    assert code == 2
    assert "there is no Delta table at" in err
    assert "shop.revenue " not in dw("tables", "list", "-c", with_tables).out.partition("Not built")[0]


def test_building_an_unknown_table_names_the_known_ones(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    code, _, err = dw("tables", "build", "shop.nothing")
    assert code == 2
    assert "Tables that it builds: shop.orders, shop.revenue." in err


def test_building_before_the_inputs_names_the_input(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    code, _, err = dw("tables", "build", "shop.revenue")
    assert code == 2
    assert "Build it with `dw tables build shop.orders`" in err


def test_without_java_building_says_how_to_get_one(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_file()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, out, err = dw("tables", "build", "shop.orders", "--json")
    assert (code, out) == (2, "")
    assert "pip install 'dw-platform[java]'" in err
    assert not list((tmp_path / "home").rglob("*.parquet"))


@pytest.mark.parametrize("where", ["/proc/nope", "platform.yaml"])
def test_a_home_that_cannot_be_written_is_a_users_mistake(dw: Dw, make_file: MakeFile, where: str) -> None:
    make_file(home=where)
    for command in (["tables", "list"], ["tables", "build", "shop.orders"], ["demo"], ["up"], ["status"]):
        code, out, err = dw(*command)
        assert (code, out) == (2, "")
        assert "Set `home` in platform.yaml to a folder that this user may write" in err


def test_a_lake_that_is_a_file_is_explained(dw: Dw, make_file: MakeFile) -> None:
    make_file("lake: {root: ./platform.yaml}")
    code, _, err = dw("tables", "list")
    assert code == 1
    assert "Check `lake` in platform.yaml" in err


def test_upkeep_goes_on_past_a_bad_table_and_reports_it(dw: Dw, with_tables: Path) -> None:
    truncated(_log(with_tables))
    code, out, err = dw("tables", "maintain", "--json", "-c", with_tables)
    assert code == 1
    assert [entry["table"] for entry in json.loads(out)] == ["shop.other"]
    assert err.startswith("error: shop.orders: the log in")


def test_upkeep_of_nothing_says_so(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    assert dw("tables", "maintain") == (0, "There was no table to keep small.\n", "")


def test_one_demo_a_home_at_a_time(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    make_file()
    (tmp_path / "home").mkdir()
    lock = tmp_path / "home" / "demo.lock"
    lock.write_text("4711\n")
    with file_lock(lock, shared=False, timeout_s=0):
        code, out, err = dw("demo")
    assert (code, out) == (1, "")
    assert "`dw demo` runs already as process 4711 on" in err
