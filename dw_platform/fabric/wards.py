"""What a hub or a watcher knows about the nodes that report to it, and whom it asks before it gives one up.

A ward that is late is pinged; without an answer, three others are asked to ping it. Only what the ward itself has
said or answered counts as heard. Time is watched time, so a hub that was paused does not find everybody silent when
it wakes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dw_platform.fabric.limits import Pace
from dw_platform.fabric.topology import Seat

# A heartbeat and a half: one is missing, its repetitions included.
_LATE_AFTER = 1.5


@dataclass(slots=True)
class Ward:
    """One node that reports here."""

    seat: Seat
    since: float
    heard: float | None = None
    last: tuple[int, int] = (0, 0)
    """Incarnation and number of its newest heartbeat."""

    rounds: int = 0
    """How often it was asked after since it was last heard."""

    ask_at: float = 0.0

    def hear(self, now: float) -> None:
        """Take in a sign of life."""
        self.heard, self.rounds = now, 0

    def silence_s(self, now: float) -> float:
        """Return how long nothing was heard, counted from when it became a ward if nothing ever was."""
        return now - (self.since if self.heard is None else self.heard)


@dataclass(frozen=True, slots=True)
class Question:
    """A ward to ask after: directly, or through others."""

    seat: Seat
    indirect: bool


class Wards:
    """The wards of one node; not shared between threads."""

    def __init__(self) -> None:
        self._wards: dict[str, Ward] = {}

    def replace(self, seats: Iterable[Seat], now: float) -> None:
        """Look after `seats` from now on; what is known about those that stay is kept."""
        known = self._wards
        self._wards = {}
        for seat in seats:
            ward = known.get(seat.name) or Ward(seat, now, ask_at=now)
            ward.seat = seat
            self._wards[seat.name] = ward

    def __contains__(self, name: str) -> bool:
        return name in self._wards

    def beat(self, name: str, incarnation: int, number: int, now: float) -> bool:
        """Take in a heartbeat and return whether `name` is a ward; an old one is no sign of life."""
        ward = self._wards.get(name)
        if ward is None:
            return False
        if (incarnation, number) > ward.last:
            ward.last = (incarnation, number)
            ward.hear(now)
        return True

    def answered(self, name: str, now: float) -> None:
        """Take in the answer of a ward that was asked after."""
        ward = self._wards.get(name)
        if ward is not None:
            ward.hear(now)

    def questions(self, now: float, pace: Pace) -> list[Question]:
        """Return whom to ask after now: the late ones, and new ones that were not heard yet."""
        asked = []
        for ward in self._wards.values():
            if ward.heard is not None and now - ward.heard < _LATE_AFTER * pace.heartbeat_s:
                continue
            if now < ward.ask_at:
                continue
            asked.append(Question(ward.seat, indirect=ward.rounds > 0))
            ward.rounds += 1
            ward.ask_at = now + pace.look_every_s
        return asked

    def ages(self, now: float) -> dict[str, float]:
        """Return for every ward that was ever heard how long ago that was: the summary of a hub."""
        return {name: now - ward.heard for name, ward in self._wards.items() if ward.heard is not None}

    def silent(self, now: float, pace: Pace) -> dict[str, float | None]:
        """Return the silent wards with how long they are: the accusations of a watcher.

        One that was never heard (None) is accused after a heartbeat already, because it was asked after from the start.
        """
        found: dict[str, float | None] = {}
        for name, ward in self._wards.items():
            if ward.heard is None and ward.silence_s(now) >= pace.heartbeat_s and ward.rounds > 1:
                found[name] = None
            elif ward.heard is not None and now - ward.heard >= pace.suspect_after_s:
                found[name] = now - ward.heard
        return found
