"""Lines of standard input or a file as batches of records, each line known by its number.

A batch ends when it is full or when nothing more comes for a moment, so a slow producer's lines do not wait for
others. A line that is not a record is told by its number, and the others go on.
"""

import re
import select
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dw_platform.gateway.errors import MalformedBodyError, NothingAcceptedError
from dw_platform.gateway.parsing import Collector
from dw_platform.gateway.rejections import ranges
from dw_platform.gateway.settings import TopicRules
from dw_platform.log import Records

# How long a batch that is not full waits for more: unnoticed by people, and long beside an fsync.
LINGER_S = 0.05
# How long Ctrl-C may go unnoticed while nothing comes.
_LOOK_EVERY_S = 0.2
_CHUNK = 1 << 20
# Where the parser found it: in line 1 of what it was given, which is some other line of the file.
_PLACE = re.compile(r": line 1 column (\d+) \(char \d+\)$")


class ByteSource(Protocol):
    """A pipe, a terminal, a file, or something in memory."""

    def read1(self, size: int, /) -> bytes:
        """Return what is there, up to `size`, without waiting for more; nothing at the end."""


@dataclass(slots=True)
class Lines:
    """Some lines and their numbers, empty ones left out."""

    numbers: list[int] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    too_long: list[int] = field(default_factory=list)
    """Lines beyond what a record may have; they were not kept."""

    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.numbers or self.too_long)


class LineReader:
    """Reads `source` to its end, or until `stop` is set; then what was read but not handed out is left."""

    def __init__(self, source: ByteSource, *, stop: threading.Event, max_line: int) -> None:
        self._source, self._stop, self._max_line = source, stop, max_line
        self._descriptor = _descriptor(source)
        self._rest, self._number, self._skipping = b"", 0, False

    def batches(self, max_lines: int, max_bytes: int) -> Iterator[Lines]:
        """Yield lines in order; half a line at the end counts as one, unless reading was stopped."""
        batch = Lines()
        while (chunk := self._next_chunk(waiting=not batch)) is not None:
            if chunk == b"":  # nothing comes for now
                yield batch
                batch = Lines()
                continue
            *texts, self._rest = (self._rest + chunk).split(b"\n")
            for text in texts:
                self._take(batch, text)
                if len(batch.numbers) >= max_lines or batch.bytes >= max_bytes:
                    yield batch
                    batch = Lines()
            self._shorten()
        if self._stop.is_set():
            return
        if self._rest or self._skipping:
            self._take(batch, self._rest)
        if batch:
            yield batch

    def _next_chunk(self, *, waiting: bool) -> bytes | None:
        """Return what comes next; empty if nothing does for a moment and somebody waits, None at the end."""
        while not self._stop.is_set():
            if self._ready(_LOOK_EVERY_S if waiting else LINGER_S):
                return self._source.read1(_CHUNK) or None
            if not waiting:
                return b""
        return None

    def _ready(self, wait_s: float) -> bool:
        return self._descriptor is None or bool(select.select([self._descriptor], [], [], wait_s)[0])

    def _take(self, batch: Lines, text: bytes) -> None:
        self._number += 1
        text = text.removesuffix(b"\r")
        if self._skipping or len(text) > self._max_line:
            batch.too_long.append(self._number)
            self._skipping = False
        elif text:
            batch.numbers.append(self._number)
            batch.texts.append(text)
            batch.bytes += len(text)

    def _shorten(self) -> None:
        """Let go of a line that is too long before it is whole, or a file without line ends would fill the memory."""
        if self._skipping or len(self._rest) > self._max_line + 1:
            self._rest, self._skipping = b"", True


def _descriptor(source: ByteSource) -> int | None:
    """Return what can be waited for; None for something in memory, which is always ready."""
    try:
        return int(getattr(source, "fileno")())  # noqa: B009  only some sources have one
    except (AttributeError, OSError):
        return None


@dataclass(slots=True)
class Parsed:
    """The good records of some lines, and the bad lines by number."""

    records: Records | None
    count: int
    bad: list[tuple[int, str]]


def parse_lines(lines: Lines, rules: TopicRules, *, raw: bool) -> Parsed:
    """Return what the lines hold: with `raw` each is a record as it is, otherwise a JSON object."""
    limit = rules.max_record_bytes
    bad = [(number, f"it has more than {limit:,} bytes, which is what the topic takes") for number in lines.too_long]
    if raw:
        return Parsed(Records(lines.texts) if lines.texts else None, len(lines.texts), bad)
    collector = Collector(rules)
    collector.parse(lines.texts)
    bad += [(lines.numbers[index], _PLACE.sub(r" at character \1", reason)) for index, reason in collector.rejected]
    try:
        records = collector.batch().records
    except (MalformedBodyError, NothingAcceptedError):
        return Parsed(None, 0, sorted(bad))
    return Parsed(records, len(records), sorted(bad))


def line_ranges(numbers: Iterable[int]) -> str:
    """Return rising line numbers as people write them: 3, 5-9."""
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges(numbers))
