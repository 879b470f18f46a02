"""YAML's trees and what they become: plain values, the line of each, and the parts that have no plain value.

The words mean what YAML 1.2 says, which is also what editors check: `no` and `on` are texts, not switches, and
`2026-01-31` is a text, not a date. Unlike there, `200_000` is a number and `.nan` is none. A key without a value
counts as not written, so a section may be emptied by commenting out what is in it.

A document can exhaust neither memory nor the stack: its depth and the number of its values, after its aliases were
expanded, are bounded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from dw_platform.config.problems import Place, Problem

MAX_DEPTH = 30
MAX_VALUES = 50_000
"""Far above any platform that people write, and built in a fraction of a second."""

_TAG = "tag:yaml.org,2002:"
# 30 digits: longer numbers are no setting, and Python refuses to convert thousands of them.
_INT = re.compile(r"[-+]?(?:0x[0-9a-fA-F]{1,30}|0o[0-7]{1,30}|[0-9][0-9_]{0,30})$", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?$", re.ASCII)


class TooMuchError(Exception):
    """The document is larger than any platform file."""

    def __init__(self, message: str, line: int) -> None:
        self.line = line
        super().__init__(message)


@dataclass(slots=True)
class Document:
    """The values of a file, where they stand, and what is wrong with its form."""

    values: dict[str, Any]
    lines: dict[Place, int]
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[Place] = field(default_factory=set)
    """Places whose value was refused already; whatever else is wrong there follows from that."""

    def line(self, place: Place) -> int | None:
        """Return the line of `place`, or of the closest part of the document around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with YAML 1.2's words, bounded in depth."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  PyYAML's own attribute, replaced as a whole
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooMuchError(f"is nested more than {MAX_DEPTH} levels deep", self.line + 1)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, _pattern, _first in (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), [*"~nN", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]),
    ("int", _INT, [*"-+0123456789"]),
    ("float", _FLOAT, [*"-+.0123456789"]),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _pattern, _first)


def compose(text: str) -> yaml.Node | None:
    """Return the tree of the one document in `text`; raise PyYAML's errors, or TooMuchError."""
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


class Builder:
    """Turns nodes into plain values, remembering lines and everything that has no plain value."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []
        self.unreadable: set[Place] = set()
        self._values = 0

    def document(self, root: yaml.MappingNode) -> Document:
        """Return what `root` holds."""
        values = self._mapping(root, ())
        return Document(values, self.lines, self.problems, self.unreadable)

    def _value(self, node: yaml.Node, place: Place) -> Any:
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > MAX_VALUES:
            raise TooMuchError(f"holds more than {MAX_VALUES:,} values once its aliases are expanded", line)
        if len(place) > MAX_DEPTH:
            raise TooMuchError(f"is nested more than {MAX_DEPTH} levels deep", line)
        self.lines.setdefault(place, line)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        return self._refuse(place, "has a YAML tag", "plain values without a tag (!)")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key, value_node in self._entries(node, place):
            here = (*place, key)
            line = value_node[0].start_mark.line + 1
            if key in seen:
                problem = f"is written twice, first on line {seen[key]}; keep one of them"
                self.problems.append(Problem(place=here, message=problem, line=line))
                continue
            seen[key] = self.lines[here] = line
            value = self._value(value_node[1], here)
            if value is not None:
                found[key] = value
        return found

    def _entries(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, tuple[yaml.Node, yaml.Node]]]:
        for key_node, value_node in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag == f"{_TAG}str":
                yield key_node.value, (key_node, value_node)
            else:
                problem = "has a key that is not text; put it in quotes"
                line = key_node.start_mark.line + 1
                self.problems.append(Problem(place=place, message=problem, line=line))

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in {"true", "false"}:
                return text.lower() == "true"
            case "int" if _INT.match(text):
                return int(text.replace("_", ""), {"0x": 16, "0o": 8}.get(text.lstrip("+-")[:2], 10))
            case "float" if _FLOAT.match(text):
                return float(text)
        return self._refuse(place, "has a YAML tag that does not fit it", "plain values without a tag (!)")

    def _refuse(self, place: Place, message: str, allowed: str) -> None:
        self.unreadable.add(place)
        self.problems.append(Problem(place=place, message=message, allowed=allowed, line=self.lines.get(place)))
