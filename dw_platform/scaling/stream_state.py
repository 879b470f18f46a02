"""What a stream's decision remembers from one look to the next; a sensor keeps it in its cursor.

Text in, text out. Text of another version, or text that is none of ours, is a new start with a reason: a cursor from
before an upgrade must not stop a sensor, and a guess at what its numbers meant would be worse than five minutes of
learning.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.encoding import as_object, as_time

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as it was at the last look."""

    position: int
    end: int
    rate: float = 0.0
    """Records a second that come in, smoothed."""

    still_s: float = 0.0
    """For how long it has had something to read and was not read."""

    hot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScaleState:
    """Everything that the next decision needs besides its reading."""

    at: datetime | None = None
    """The last look that counted; None before the first."""

    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    running: int = 0
    capacity: float = 0.0
    """Records a second of one consumer, as measured while it had more to read than it could; 0 until then."""

    wanted: int | None = None
    """What was decided last; None before the first decision."""

    changed_at: datetime | None = None
    calm_since: datetime | None = None
    """Since when fewer consumers would have done, all the time."""

    calm_peak: int = 0
    """How many would have been needed in that time, at most."""

    shrunk_at: datetime | None = None
    regrets: int = 0
    """Reductions in a row that had to be taken back."""

    batch: int = 0

    def encode(self) -> str:
        """Return the state as text, in JSON."""
        content = asdict(self) | {"version": VERSION, "partitions": {}}
        for number, partition in self.partitions.items():
            content["partitions"][str(number)] = [
                partition.position,
                partition.end,
                round(partition.rate, 3),
                round(partition.still_s, 3),
                int(partition.hot),
            ]
        for name in _TIMES:
            content[name] = None if content[name] is None else content[name].isoformat()
        return json.dumps(content, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RestoredState:
    """A state as it was read back, and why it is a new start if it is one."""

    state: StreamScaleState
    ignored: str | None = None


_TIMES = ("at", "changed_at", "calm_since", "shrunk_at")


def restore_state(text: str | None) -> RestoredState:
    """Return the state that `text` holds, or a new one and the reason; never raises."""
    if not text:
        return RestoredState(StreamScaleState())
    try:
        content = as_object(json.loads(text))
        version = content.pop("version", None)
        if version != VERSION:
            return _ignored(f"it was written by another version ({version!r}, this is {VERSION})")
        return RestoredState(_built(content))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, InvalidValueError) as error:
        return _ignored(f"it cannot be read ({type(error).__name__}: {error})")


def _ignored(why: str) -> RestoredState:
    return RestoredState(StreamScaleState(), f"the remembered state is ignored: {why}; rates and capacity start anew")


def _built(content: dict[str, Any]) -> StreamScaleState:
    times = {name: None if content[name] is None else as_time(content[name]) for name in _TIMES}
    wanted = content["wanted"]
    return StreamScaleState(
        partitions={int(number): _partition(*values) for number, values in as_object(content["partitions"]).items()},
        running=int(content["running"]),
        capacity=float(content["capacity"]),
        wanted=None if wanted is None else int(wanted),
        calm_peak=int(content["calm_peak"]),
        regrets=int(content["regrets"]),
        batch=int(content["batch"]),
        **times,
    )


def _partition(position: int, end: int, rate: float, still_s: float, hot: int) -> PartitionState:
    return PartitionState(position=int(position), end=int(end), rate=float(rate), still_s=float(still_s), hot=bool(hot))
