"""What is wrong with a platform file: every problem at once, each with its place and what is allowed there."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dw_platform.foundation import UserError

Place = tuple[str | int, ...]
"""The way to a value inside the document: keys of mappings and positions in lists."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to change. The message never repeats a secret, nor a value that came from the environment."""

    place: Place
    message: str
    allowed: str = ""
    line: int | None = None

    @property
    def path(self) -> str:
        """The place the way people write it: `streams[1].table`."""
        return path_text(self.place)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.place else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        line = f" (line {self.line})" if self.line else ""
        return f"{where}{self.message}{allowed}{line}"


class ConfigError(UserError):
    """The platform file cannot be used; nothing was started."""

    def __init__(self, source: Path, problems: Iterable[Problem]) -> None:
        self.source, self.problems = source, list(problems)
        super().__init__(_text(source, self.problems))


def _text(source: Path, problems: Sequence[Problem]) -> str:
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    listed = "".join(f"\n  {problem}" for problem in problems)
    return f"{source} has {len(problems)} problems:{listed}"


def path_text(place: Place) -> str:
    """Return `streams[1].table` for `("streams", 1, "table")`; keys that are not plain words are quoted."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step[:60], ensure_ascii=False)}]"
    return text
