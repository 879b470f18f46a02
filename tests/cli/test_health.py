"""`dw health`: what it shows, what it counts, and that it tells no secret."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Dw, MakeFile

DATABASES = """
databases:
  - {{name: shop, url: "sqlite:///{file}"}}
  - {{name: away, url: "postgresql://user:sekret-word@127.0.0.1:1/x"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER)")
    return tmp_path / "shop.db"


def test_every_database_is_shown_and_one_that_fails_makes_the_exit_code_one(
    dw: Dw, make_file: MakeFile, file: Path
) -> None:
    make_file(DATABASES.format(file=file))
    code, out, err = dw("health")
    assert (code, err) == (1, "error: Not answering: away.\n")
    header, shop, away = out.splitlines()
    assert header.split() == ["database", "state", "failures", "tried", "again", "(UTC)", "finding"]
    assert shop.split()[:5] == ["shop", "ok", "0", "-", "answers"]
    assert away.split()[:4] == ["away", "failed", "1", "-"]
    assert "refused" in away
    assert "sekret-word" not in out + err


def test_failures_are_counted_between_calls_and_the_next_try_is_told(dw: Dw, make_file: MakeFile, file: Path) -> None:
    make_file(DATABASES.format(file=file))
    dw("health")
    dw("health")
    code, out, _ = dw("health", "--json")
    shop, away = json.loads(out)
    assert code == 1
    assert (shop["database"], shop["state"], shop["failures"], shop["error"]) == ("shop", "ok", 0, None)
    assert shop["latency_ms"] > 0
    assert (away["state"], away["failures"]) == ("left alone", 3)
    assert away["try_again_at"] > away["failing_since"]


def test_databases_that_all_answer_are_a_success(dw: Dw, make_file: MakeFile, file: Path) -> None:
    make_file(f"databases: [{{name: shop, url: 'sqlite:///{file}'}}]")
    assert dw("health")[::2] == (0, "")


def test_a_platform_without_databases_says_so(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    assert dw("health") == (0, "platform.yaml names no databases.\n", "")
    assert json.loads(dw("health", "--json").out) == []
