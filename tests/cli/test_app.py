"""What becomes of errors, whichever command they come from."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from dw_platform.cli import tables
from dw_platform.cli.app import run
from dw_platform.foundation import PermanentError, TransientError, UserError
from tests.cli.conftest import Dw, MakeFile


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("Mend the file."), 2),
        (PermanentError("It is broken."), 1),
        (TransientError("It is busy."), 1),
        (OSError(28, "No space left on device"), 1),
        (ValueError("first line\nsecond line"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_become_one_paragraph_and_an_exit_code(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    make_file()

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(tables, "tables_overview", fail)
    outcome = dw("tables", "list", "--json")
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("place", [0, 1, 2], ids=["before", "between", "after"])
def test_debug_shows_where_an_error_comes_from_wherever_it_stands(dw: Dw, make_file: MakeFile, place: int) -> None:
    make_file(home="/proc/nope")
    arguments = ["tables", "list"]
    arguments.insert(place, "--debug")
    code, out, err = dw(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("error: The platform's home /proc/nope cannot be written")


def test_the_environment_turns_debugging_on(dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(home="/proc/nope")
    monkeypatch.setenv("DW_DEBUG", "1")
    assert "Traceback" in dw("status").err


def test_debug_logs_are_the_programs_own_only(dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(_: object) -> list[str]:
        logging.getLogger("py4j").setLevel(logging.DEBUG)
        logging.getLogger("py4j").debug("credential in a command")
        logging.getLogger("py4j").warning("heard")
        logging.getLogger("dw_platform.lake").debug("own words")
        return []

    make_file()
    monkeypatch.setattr(tables, "tables_overview", talk)
    err = dw("--debug", "tables", "list").err
    assert "own words" in err
    assert "heard" in err
    assert "credential in a command" not in err
    assert "own words" not in dw("tables", "list").err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["status", "--nonsense"], ["tables", "show"], ["up", "--port", "0"]]
)
def test_wrong_usage_is_a_users_mistake(dw: Dw, arguments: list[str]) -> None:
    code, out, err = dw(*arguments)
    assert (code, out) == (2, "")
    assert "Error: " in err


def test_help_fits_a_terminal_of_80_columns(dw: Dw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ([], ["config"], ["tables"], ["status"], ["up"], ["bench"]):
        code, out, _ = dw(*command, "--help")
        assert code == 0
        assert "..." not in out.replace("[ARGS]...", "")
        assert max(map(len, out.splitlines())) <= 80


def test_the_version_is_told(dw: Dw) -> None:
    code, out, _ = dw("--version")
    assert code == 0
    assert out.startswith("dw_platform ")


def test_a_reader_that_has_gone_is_no_cause_for_noise(make_file: MakeFile) -> None:
    file = make_file()
    program = "from dw_platform.cli import main; main()"
    command = [sys.executable, "-c", program, "config", "check", "--json", "-c", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, b"")


def test_importing_the_package_imports_no_command() -> None:
    program = "import sys, dw_platform.cli; print('typer' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_run_leaves_logging_as_it_was(make_file: MakeFile) -> None:
    before = list(logging.getLogger().handlers)
    run(["--debug", "config", "check", "-c", str(make_file())])
    assert logging.getLogger().handlers == before


def test_names_that_look_like_markup_are_shown_as_they_are(dw: Dw, tmp_path: Path) -> None:
    folder = tmp_path / "[bold]x[nope]"
    assert str(folder) in dw("init", folder).out
