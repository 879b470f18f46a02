"""From a request's body to records: JSON and NDJSON here, Arrow in `arrow_body.py`.

A record is a JSON object and its value the text of that object, byte for byte as it was sent: numbers keep their
digits, fields their order. A record that is wrong is left out and told by its index; the others go on.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from dw_platform.gateway.errors import MalformedBodyError, NothingAcceptedError
from dw_platform.gateway.settings import TopicRules
from dw_platform.log import Records

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

# Strings and objects without others inside are one token each, because nothing in them counts; then what opens,
# closes and separates.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_FLAT_OBJECT = rb'\{[^{}\[\]"]*(?:' + _STRING + rb'[^{}\[\]"]*)*\}'
_TOKENS = re.compile(_FLAT_OBJECT + b"|" + _STRING + rb"|[\[\]{},]", re.DOTALL)
# JSON numbers beyond this lose digits when they are read, and two keys would become one.
_EXACT = 2**53

Rejected = list[tuple[int, str]]


@dataclass(slots=True)
class Batch:
    """What a body held: the good records, and the wrong ones by index."""

    records: Records
    bytes: int
    """Of the good records' values and keys."""

    rejected: Rejected


class Collector:
    """Takes records one by one and keeps the good ones."""

    def __init__(self, rules: TopicRules) -> None:
        self._rules = rules
        self._values: list[bytes] = []
        self._keys: list[bytes | None] | None = None if rules.key_field is None else []
        self.rejected: Rejected = []
        self._too_large = 0

    def parse(self, texts: Iterable[bytes]) -> None:
        """Take each text as a record; parses it once.

        What most records are is dealt with here, without a call; `take` knows all the rest.
        """
        loads, limit, field = orjson.loads, self._rules.max_record_bytes, self._rules.key_field
        add, add_key = self._values.append, (self._keys if self._keys is not None else []).append
        for index, text in enumerate(texts):
            try:
                found = loads(text)
            except orjson.JSONDecodeError as error:
                self.rejected.append((index, f"it is not JSON: {error}"))
                continue
            if type(found) is not dict or len(text) > limit:
                self.take(index, found, text)
            elif field is None:
                add(text)
            elif (key := _usual_key(found.get(field))) is not None and len(text) + len(key) <= limit:
                add(text)
                add_key(key)
            else:
                self.take(index, found, text)

    def take(self, index: int, found: Any, text: bytes) -> None:
        """Take one record that was parsed, with the text it was parsed from."""
        if type(found) is not dict:
            self.rejected.append((index, f"it is {_kind(found)}, not an object"))
            return
        key: bytes | None = None
        if self._rules.key_field is not None:
            try:
                key = key_of(found, self._rules.key_field)
            except ValueError as error:
                self.rejected.append((index, str(error)))
                return
        size = len(text) + len(key or b"")
        if size > self._rules.max_record_bytes:
            self._too_large += 1
            self.rejected.append((index, f"it has {size:,} bytes, the topic takes {self._rules.max_record_bytes:,}"))
            return
        self._values.append(text)
        if self._keys is not None:
            self._keys.append(key)

    def batch(self) -> Batch:
        """Return what was taken; raise NothingAcceptedError if that is nothing."""
        if not self._values:
            if not self.rejected:
                raise MalformedBodyError("it holds no record")
            raise NothingAcceptedError(self.rejected, too_large=self._too_large == len(self.rejected))
        size = sum(map(len, self._values)) + sum(len(key) for key in self._keys or () if key)
        return Batch(Records(self._values, keys=self._keys), size, self.rejected)


def parse_ndjson(body: bytes, rules: TopicRules) -> Batch:
    """Read one object a line; empty lines are skipped and not counted."""
    lines: list[bytes] = body.split(b"\n")
    if b"\r" in body:
        lines = [line.removesuffix(b"\r") for line in lines]
    if not all(lines):
        lines = [line for line in lines if line]
    collector = Collector(rules)
    collector.parse(lines)
    return collector.batch()


def parse_json(body: bytes, rules: TopicRules) -> Batch:
    """Read one object, or an array of objects."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(f"it is not JSON: {error}") from error
    collector = Collector(rules)
    if isinstance(found, list):
        for index, (each, text) in enumerate(zip(found, element_texts(body), strict=False)):
            collector.take(index, each, text)
    else:
        collector.take(0, found, body.strip())
    return collector.batch()


def element_texts(body: bytes) -> Iterator[bytes]:
    """Yield the text of each element of an array that is known to be valid JSON."""
    depth, start = 0, 0
    for token in _TOKENS.finditer(body):
        first, end = token.span()
        if end - first > 1:
            continue
        mark = body[first:end]
        if mark == b",":
            if depth == 1:
                yield body[start:first].strip()
                start = end
        elif mark in (b"[", b"{"):
            depth += 1
            if depth == 1:
                start = end
        else:
            depth -= 1
            if depth == 0:
                yield body[start:first].strip()


def _usual_key(value: Any) -> bytes | None:
    kind = type(value)
    return value.encode() if kind is str else b"%d" % value if kind is int else None


def key_of(record: dict[str, Any], field: str) -> bytes:
    """Return the key: text as UTF-8, a number as JSON writes it; raise ValueError for anything else."""
    try:
        value = record[field]
    except KeyError:
        raise ValueError(f"it has no field {field}, which is its key") from None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"its key {field} is {_kind(value)}, not text or a number")  # noqa: TRY004  one kind of refusal
    if isinstance(value, float) and abs(value) > _EXACT:
        raise ValueError(f"its key {field} is a number of too many digits; send it as text")
    return orjson.dumps(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false"}
    return names.get(type(value), "a number")


Parser = Callable[[bytes, TopicRules], Batch]
