"""What Dagster's log says about the steps of a run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from dw_platform.config import PlatformConfig

_EVENT = re.compile(r" - (?P<step>\S+) - STEP_(?P<event>[A-Z_]+) - ")
_CAUSE = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception|Interrupt): (.+)$", re.MULTILINE)


class StepState(StrEnum):
    """How far a step is, in the words of Dagster's events."""

    START = "running"
    RESTARTED = "running"
    UP_FOR_RETRY = "failed, trying again"
    SUCCESS = "done"
    SKIPPED = "skipped"
    FAILURE = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of the step."""
        return self in {StepState.SUCCESS, StepState.SKIPPED, StepState.FAILURE}


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step, by the name people know, and its new state."""

    name: str
    state: StepState


@dataclass(slots=True)
class RunLog:
    """Follows a run's log while it is written; half a line is kept until its rest arrives."""

    path: Path
    names: dict[str, str]
    """What people call a step, by Dagster's name of it."""

    failed: list[str] = field(default_factory=list)
    _file: BinaryIO | None = None
    _rest: bytes = b""

    def new_events(self) -> Iterator[StepEvent]:
        """Yield what was written since the last call."""
        self._file = self._file or self.path.open("rb")
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            if event := step_event(line.decode(errors="replace"), self.names):
                self.failed += [event.name] if event.state is StepState.FAILURE else []
                yield event

    def close(self) -> None:
        if self._file:
            self._file.close()

    def cause(self) -> str:
        """Return the innermost error that the log tells of, else its last line."""
        text = self.path.read_text(errors="replace")
        if causes := _CAUSE.findall(text):
            return str(causes[-1])
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def step_names(config: PlatformConfig) -> dict[str, str]:
    """Return what each step of the job `refresh` does, by the name that Dagster gives it."""
    built = {table.name.replace(".", "__"): f"build {table.name}" for table in config.lake.tables}
    built |= {stream.table.replace(".", "__"): f"ingest {stream.name}" for stream in config.streams}
    for database in config.databases:
        for table in database.tables:
            step = table.table.replace(".", "__")
            built[step] = f"extract {database.name}.{table.source}"
            built[f"{step}_source_reachable"] = f"ask {database.name} for {table.table}"
    return built | {f"{entry.table.replace('.', '_')}_checks": f"check {entry.table}" for entry in config.quality}


def step_event(line: str, names: dict[str, str]) -> StepEvent | None:
    """Return what one line of the log tells about a step, if anything."""
    match = _EVENT.search(line)
    if match is None or match["event"] not in StepState.__members__:
        return None
    return StepEvent(names.get(match["step"], match["step"]), StepState[match["event"]])
