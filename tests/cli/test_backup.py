"""`dw backup`: what it says and prints as JSON, its exit codes, and that a wrong wish names what is allowed."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import back_up_table
from tests.cli.conftest import Dw

PLATFORM = """
name: tested
home: home
lake:
  tables:
    - {name: shop.orders, generate: {kind: orders, rows: 10, days: 1}}
    - {name: shop.items, generate: {kind: orders, rows: 10, days: 1}}
backups:
  policies:
    - {name: nightly, tables: ["shop.*"], keep: {last: 2}}
    - {name: idle, tables: [shop.items]}
"""
ID = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A platform whose orders have two rows, in the folder in which commands run."""
    file = tmp_path / "platform.yaml"
    file.write_text(PLATFORM)
    add(file, 1)
    add(file, 2)
    return file


def add(file: Path, number: int) -> None:
    with Platform.open(file, environ={}) as platform:
        platform.lake.table("shop.orders").append(pa.table({"id": [number]}), positions={"orders": number})


def told(dw: Dw, *arguments: str) -> Any:
    code, out, err = dw("backup", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def backed_up(dw: Dw, *arguments: str) -> str:
    (backup,) = told(dw, "run", "nightly", *arguments)["backups"]
    return str(backup["backup_id"])


@pytest.mark.usefixtures("shop")
def test_a_policy_is_run_and_says_what_it_copied_and_why(dw: Dw, shop: Path) -> None:
    code, out, err = dw("backup", "run", "nightly")
    assert (code, err) == (0, "")
    assert re.match(
        rf"shop.orders version 2: full backup {ID.pattern}, 5 files with [\d.]+ \wi?B copied of [\d.]+ \wi?B, "
        r"[\d.]+ s \(there is no backup to stand on\)\.\n",
        out,
    )
    assert "nothing has changed since" in dw("backup", "run", "nightly").out
    add(shop, 3)
    report = told(dw, "run", "nightly", "--table", "shop.orders", "--full")
    (backup,) = report["backups"]
    assert (report["policy"], report["failed"]) == ("nightly", [])
    assert (backup["kind"], backup["version"], backup["copied_files"], backup["unchanged"]) == ("full", 3, 7, False)
    out = dw("backup", "run", "idle").out
    assert out == "None of the tables of idle exists yet; nothing was backed up.\n"


def test_a_table_that_fails_is_told_after_the_others_with_exit_code_1(dw: Dw, shop: Path) -> None:
    with Platform.open(shop, environ={}) as platform:
        platform.lake.table("shop.items").append(pa.table({"id": [1]}))
        (file,) = platform.lake.table("shop.items").location.local.glob("*.parquet")
    file.unlink()
    code, out, err = dw("backup", "run", "nightly")
    assert code == 1
    assert out.startswith("shop.orders version 2: full backup")
    assert file.name in err
    code, out, _ = dw("backup", "run", "nightly", "--json")
    assert code == 1
    assert [failed["table"] for failed in json.loads(out)["failed"]] == ["shop.items"]
    out = dw("backup", "list").out
    assert "unfinished backup of shop.items since" in out
    assert "`dw backup recover` goes on" in out


@pytest.mark.usefixtures("shop")
def test_backups_are_listed_by_chain_and_shown_one_by_one(dw: Dw, shop: Path) -> None:
    out = dw("backup", "list").out
    assert out.startswith("There are no backups in ")
    first = backed_up(dw)
    add(shop, 3)
    second = backed_up(dw)
    code, out, err = dw("backup", "list")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:5] == ["backup", "table", "policy", "kind", "version"]
    assert [line[:5] for line in lines[1:3]] == [
        [first, "shop.orders", "nightly", "full", "2"], [second, "shop.orders", "nightly", "incremental", "3"]
    ]  # fmt: skip
    assert "2 backups in 1 chain, " in out
    (chain,) = told(dw, "list", "shop.orders")["chains"]
    assert [backup["backup_id"] for backup in chain["backups"]] == [first, second]
    assert told(dw, "list", "shop.items")["chains"] == []
    out = dw("backup", "show", second).out
    assert f"{second}: incremental backup of shop.orders by nightly" in out
    assert "orders  3" in re.sub(r" +", "  ", out)
    details = told(dw, "show", second, "--files")
    assert (details["rows"], details["positions"], details["columns"]) == (3, {"orders": 3}, {"id": "long"})
    assert details["parent_id"] == first
    assert sum(kind["files"] for kind in details["contents"].values()) == len(details["files"]) == 7
    assert dw("backup", "show", second, "--files").out.count(".parquet") == 3


@pytest.mark.usefixtures("shop")
def test_a_table_is_put_back_to_a_folder_as_of_a_version_or_a_time(dw: Dw, shop: Path, tmp_path: Path) -> None:
    first = backed_up(dw)
    add(shop, 3)
    backed_up(dw)
    code, out, err = dw("backup", "restore", "shop.orders", "--to", tmp_path / "a")
    assert (code, err) == (0, "")
    assert re.match(rf"shop.orders version 3, 3 rows: restored from {ID.pattern} to {tmp_path / 'a'}, 7 files", out)
    assert told(dw, "restore", "shop.orders", "--to", "b", "--version", "2")["backup_id"] == first
    assert told(dw, "restore", "shop.orders", "--to", "c", "--id", first)["version"] == 2
    assert told(dw, "restore", "shop.orders", "--to", "d", "--at", "2999-01-01")["version"] == 3
    (report,) = told(dw, "restore", "--policy", "nightly", "--to", "all")
    assert (report["table"], report["rows"]) == ("shop.orders", 3)
    for folder, rows in (("a", 3), ("b", 2), ("c", 2), ("d", 3), ("all/shop/orders", 3)):
        table = DeltaTable(str(tmp_path / folder))
        assert (table.to_pyarrow_table().num_rows, table.transaction_version("orders")) == (rows, rows)
    code, out, _ = dw("backup", "restore", "shop.orders", "--to", "shop.orders", "--id", first, "--overwrite")
    assert code == 0
    assert "2 files were there already" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "weekly"], "There is no backup policy weekly. Policies: nightly, idle."),
        (
            ["run", "idle", "--table", "shop.orders"],
            "idle does not name shop.orders. Its tables: shop.items;",
        ),
        (["restore", "--to", "x"], "Name one table to restore, or say --policy"),
        (["restore", "shop.orders", "--policy", "nightly", "--to", "x"], "Name one table to restore, or say --policy"),
        (["restore", "shop.orders"], "--to FOLDER"),
        (["restore", "shop.orders", "--to", "x", "--at", "2026-01-01", "--version", "1"], "--at, --id and --version"),
        (["restore", "--policy", "nightly", "--to", "x", "--version", "1"], "a policy is restored by --at"),
        (["restore", "shop.orders", "--to", "x", "--at", "yesterday"], "'yesterday' is no time"),
        (["restore", "shop.orders", "--to", "x", "--at", "2001-01-01"], "no backup as of 2001-01-01 00:00:00 UTC"),
        (["restore", "shop.orders", "--to", "x", "--version", "77"], "no backup of version 77"),
        (["restore", "shop.items", "--to", "x"], "it has no backup here"),
        (["restore", "shop.orders", "--to", "shop.orders"], "(--overwrite)"),
        (["show", "20010101T000000.000Z-00000000"], "There is no backup 20010101T000000.000Z-00000000"),
        (["pin", "nonsense"], "There is no backup nonsense"),
        (["unpin", "nonsense"], "There is no backup nonsense"),
        (["verify", "--share", "2"], "--share"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_what_can(
    dw: Dw, shop: Path, arguments: list[str], words: str
) -> None:
    with Platform.open(shop, environ={}) as platform:
        back_up_table(platform, "nightly", "shop.orders")
    code, out, err = dw("backup", *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_verification_names_what_is_damaged_with_exit_code_1_until_it_is_healed(dw: Dw, shop: Path) -> None:
    backup = backed_up(dw)
    code, out, _ = dw("backup", "verify")
    assert (code, out.splitlines()[0].partition(" read ")[0]) == (0, "1 of 1 object")
    assert "all is well" in out
    (pack,) = (path for path in (shop.parent / "home/backups/objects").rglob("*") if path.is_file())
    content = pack.read_bytes()
    pack.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    code, out, _ = dw("backup", "verify")
    assert code == 1
    assert f"{backup} of shop.orders does not restore as a whole: 5 files affected." in out
    assert any(line.split()[:1] == ["damaged"] for line in out.splitlines())
    code, out, _ = dw("backup", "verify", "--new", "--json")
    assert code == 1
    assert (json.loads(out)["healthy"], json.loads(out)["broken"]) == (False, [backup])
    assert "broken" in dw("backup", "list").out
    assert "It does not restore as a whole" in dw("backup", "show", backup).out
    code, _, err = dw("backup", "restore", "shop.orders", "--to", "x")
    assert code == 2
    assert "no backup that is whole" in err
    backed_up(dw)
    code, out, _ = dw("backup", "verify", "--share", "0.5")
    assert code == 0
    assert f"{backup} is whole again." in out


def test_a_removal_shows_its_plan_first_and_spares_what_is_pinned(dw: Dw, shop: Path) -> None:
    backups = [backed_up(dw)]
    for number in (3, 4, 5):
        add(shop, number)
        backups.append(backed_up(dw))
    code, out, _ = dw("backup", "pin", backups[0], "--reason", "audit")
    assert (code, out) == (0, f"{backups[0]} stays until `dw backup unpin {backups[0]}`.\n")
    assert "pinned" in dw("backup", "list").out
    code, out, _ = dw("backup", "prune", "--dry-run")
    assert code == 0
    assert out.startswith("Would be removed")
    assert "1 backup would go, 3 stay" in out
    assert "2 newer backups restore, 2 are kept" in out
    planned = told(dw, "prune", "--dry-run")
    assert (planned["dry_run"], list(planned["remove"])) == (True, [backups[1]])
    assert len(told(dw, "list")["chains"][0]["backups"]) == 4
    assert "1 backup went, 3 stay" in dw("backup", "prune").out
    assert [each["backup_id"] for each in told(dw, "list")["chains"][0]["backups"]] == [backups[0], *backups[2:]]
    assert dw("backup", "unpin", backups[0]).out == f"{backups[0]} expires like others.\n"
    assert list(told(dw, "prune")["remove"]) == [backups[0]]


class Crash(BaseException):
    """The process dies here."""


def test_what_a_crash_has_left_is_gone_on_with_or_given_up(dw: Dw, shop: Path) -> None:
    def crash(_: object) -> None:
        raise Crash

    def interrupted() -> None:
        with Platform.open(shop, environ={}) as platform, pytest.raises(Crash):
            back_up_table(platform, "nightly", "shop.orders", on_progress=crash)

    assert dw("backup", "recover").out == "Nothing was left unfinished.\n"
    interrupted()
    code, out, _ = dw("backup", "recover")
    assert code == 0
    assert re.fullmatch(rf"finished: shop.orders is backed up as {ID.pattern}\n", out)
    add(shop, 3)
    interrupted()
    (job,) = told(dw, "recover", "--discard")["jobs"]
    assert (job["kind"], job["of"], job["outcome"]) == ("backup", "shop.orders", "discarded")
    assert told(dw, "recover", "--catalogue") == {"jobs": [], "catalogued": 1}
    assert dw("backup", "recover", "--catalogue").out.endswith("ops.backups names 1 backup.\n")
    interrupted()
    for path in (shop.parent / "home/lake/shop/orders").glob("*.parquet"):
        path.unlink()
    code, out, err = dw("backup", "recover")
    assert (code, out) == (1, "")
    assert ".parquet" in err


def test_a_new_key_is_printed_or_written_for_its_owner_alone_and_never_over_another(dw: Dw, tmp_path: Path) -> None:
    code, out, _ = dw("backup", "key")
    assert code == 0
    assert len(out.strip()) >= 40
    code, out, _ = dw("backup", "key", "backup.key")
    file = tmp_path / "backup.key"
    assert (code, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    key = file.read_text().strip()
    assert key not in out
    code, _, err = dw("backup", "key", "backup.key")
    assert code == 2
    assert "is there already" in err
    assert file.read_text().strip() == key
    code, _, err = dw("backup", "key", "no/such/folder/key")
    assert code == 2
    assert "cannot be written: No such file or directory" in err


def test_a_key_never_appears_in_what_is_said(dw: Dw, shop: Path) -> None:
    secret = "a secret that nobody must see"
    shop.write_text(PLATFORM.replace("backups:\n", f"backups:\n  encryption: {{key: {secret}}}\n"))
    dw("backup", "run", "nightly")
    shop.write_text(PLATFORM.replace("backups:\n", "backups:\n  encryption: {key: another secret of mine}\n"))
    for arguments in (["list"], ["verify"], ["restore", "shop.orders", "--to", "x"], ["prune"]):
        code, out, err = dw("backup", *arguments)
        assert code == 2
        assert "The key does not fit the repository" in err
        assert "secret" not in out + err
