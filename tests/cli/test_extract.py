"""`dw extract` as people and programs use it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Dw

PLATFORM = """
name: tested
home: home
databases:
  - name: crm
    url: sqlite:///crm.db
    tables:
      - {source: people, table: crm.people, mode: incremental, cursor: seen}
      - {source: pets, table: crm.pets}
"""


@pytest.fixture
def crm(tmp_path: Path) -> Path:
    (tmp_path / "platform.yaml").write_text(PLATFORM)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE people (id integer PRIMARY KEY, name text, seen timestamp)")
        rows = [(number, f"n{number}", f"2026-01-01 00:00:{number:02d}") for number in range(50)]
        database.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
        database.execute("CREATE TABLE pets (id integer PRIMARY KEY)")
        database.execute("INSERT INTO pets VALUES (1)")
        database.commit()
    return tmp_path / "crm.db"


def test_a_table_is_copied_and_then_followed(dw: Dw, crm: Path) -> None:
    code, out, err = dw("extract", "crm.people")
    assert (code, err) == (0, "")
    assert out.startswith("crm.people: 50 rows into crm.people in ")
    with closing(sqlite3.connect(crm)) as database:
        database.execute("DELETE FROM people WHERE id = 1")
        database.execute("UPDATE people SET name = 'new', seen = '2026-01-02' || substr(seen, 11) WHERE id = 2")
        database.commit()
    told = json.loads(dw("extract", "crm.people", "--json").out)
    assert (told["mode"], told["written"], told["position"]) == ("incremental", 1, "2026-01-02 00:00:02")
    code, out, _ = dw("extract", "crm.people", "--reconcile")
    assert code == 0
    assert "1 deleted" in out
    status = json.loads(dw("status", "--json").out)
    assert [(entry["name"], entry["state"]) for entry in status["extracts"]] == [
        ("crm.people", "done"), ("crm.pets", "never")
    ]  # fmt: skip


def test_a_dry_run_shows_the_plan_and_makes_nothing(dw: Dw, crm: Path) -> None:
    code, out, _ = dw("extract", "crm.people", "--dry-run")
    assert code == 0
    assert out.splitlines()[:2] == [
        "crm.people into crm.people: about 50 rows, incremental",
        "by id, newer by seen; pages of 50,000; " + out.splitlines()[1].rpartition("; ")[2],
    ]
    assert any(line.split()[:3] == ["seen", "timestamp", "timestamp[us]"] for line in out.splitlines())
    assert json.loads(dw("extract", "crm.people", "--dry-run", "--json").out)["key"] == ["id"]
    assert not (crm.parent / "home" / "lake").exists()


def test_all_tables_are_copied_and_one_that_fails_does_not_stop_the_others(dw: Dw, crm: Path) -> None:
    with closing(sqlite3.connect(crm)) as database:
        database.execute("DROP TABLE people")
        database.commit()
    code, out, err = dw("extract", "--all")
    assert code == 1
    assert out.startswith("crm.pets: 1 row into crm.pets")
    assert "people" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Name the tables to extract"),
        (["crm.people", "--all"], "Name the tables to extract"),
        (["crm.people", "--full", "--reconcile"], "use one of the two"),
        (["crm.people", "--full", "--resume", "x"], "one run of one table"),
        (["crm.nobody"], "crm.people, crm.pets"),
        (["crm.pets", "--reconcile"], "mode: incremental"),
        (["crm.people", "--resume", "x"], "no run of it is unfinished"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_can(dw: Dw, crm: Path, arguments: list[str], words: str) -> None:
    del crm
    code, out, err = dw("extract", *arguments)
    assert (code, out) == (2, "")
    assert words in err
