"""`${NAME}` and `${NAME:-default}` in the texts of a platform file; `$${` stands for a plain `${`.

Keys are left alone, and what a variable holds is not looked at again, so a password may contain `${`.
"""

import re
from collections.abc import Mapping
from typing import Any, Self

from dw_platform.config.nodes import Document
from dw_platform.config.problems import Place, Problem

_REFERENCE = re.compile(r"(\$\$\{)|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?", re.ASCII)


class FromEnvironment(str):
    """A text in which variables were filled in; errors show `written`, never what a variable held."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, text: str, written: str) -> Self:
        value = super().__new__(cls, text)
        value.written = written
        return value


class Unset(FromEnvironment):
    """A text that names a variable which is not set; already reported, so nothing else is said about it."""


def fill_in(document: Document, environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document's values with variables filled in, and a problem for each that is not set."""
    filler = _Filler(document, environ)
    return filler.fill(document.values, ()), filler.problems


class _Filler:
    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self._document = document
        self._environ = environ
        self.problems: list[Problem] = []

    def fill(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {key: self.fill(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*place, index)) for index, item in enumerate(value)]
        return self._text(value, place) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, place: Place) -> str:
        reported = len(self.problems)
        filled = _REFERENCE.sub(lambda match: self._variable(match, place), text)
        return Unset(text, text) if len(self.problems) > reported else FromEnvironment(filled, text)

    def _variable(self, match: re.Match[str], place: Place) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if not name:
            self._report(place, "has a ${ that is not followed by a name and }", "${NAME}, ${NAME:-default} or $${")
            return ""
        value = self._environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            advice = f"set it, or write ${{{name}:-default}}"
            self._report(place, f"needs the environment variable {name}, which is not set; {advice}")
        return value or ""

    def _report(self, place: Place, message: str, allowed: str = "") -> None:
        line = self._document.line(place)
        self.problems.append(Problem(place=place, message=message, allowed=allowed, line=line))
