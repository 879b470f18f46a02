from pathlib import Path
from typing import Any

import pytest

from dw_platform.config.document import parse_document
from dw_platform.config.environment import FromEnvironment, Unset, fill_in

ENVIRON = {"HOST": "db", "EMPTY": "", "TRICKY": "${HOST}$${x}"}


def filled(text: str) -> tuple[Any, list[str]]:
    document = parse_document(f"a: {text}\n", Path("platform.yaml"))
    values, problems = fill_in(document, ENVIRON)
    return values["a"], [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${HOST}", "db"),
        ("x-${HOST}-${HOST}", "x-db-db"),
        ("${NOPE:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("'${NOPE:-}'", ""),
        ("${HOST:-fallback}", "db"),
        ("$${HOST}", "${HOST}"),
        ("$HOST", "$HOST"),
        ("$$", "$$"),
        ("${TRICKY}", "${HOST}$${x}"),
        ("5", 5),
    ],
)
def test_variables_are_filled_in_once(written: str, value: Any) -> None:
    assert filled(written) == (value, [])


def test_variables_are_filled_in_inside_lists_and_mappings_but_not_in_keys() -> None:
    value, problems = filled('["${HOST}", {"${HOST}": "${HOST}"}]')
    assert value == ["db", {"${HOST}": "db"}]
    assert problems == []


def test_an_unset_variable_is_named_with_the_cure() -> None:
    value, problems = filled("postgresql://${ROLE}:${PASSWORD}@db")
    assert isinstance(value, Unset)
    assert problems == [
        "a: needs the environment variable ROLE, which is not set; set it, or write ${ROLE:-default} (line 1)",
        "a: needs the environment variable PASSWORD, which is not set; set it, or write ${PASSWORD:-default} (line 1)",
    ]


@pytest.mark.parametrize("written", ["'${'", "'${}'", "'${1A}'", "'${A-b}'", "'${A'", "'${A:-x'"])
def test_a_reference_that_is_not_one_is_refused(written: str) -> None:
    _, [problem] = filled(written)
    assert "has a ${ that is not followed by a name and }" in problem
    assert "${NAME}, ${NAME:-default} or $${" in problem


def test_a_filled_text_remembers_how_it_was_written() -> None:
    value, _ = filled("${HOST}")
    assert isinstance(value, FromEnvironment)
    assert value.written == "${HOST}"
