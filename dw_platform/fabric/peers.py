"""How nodes talk to each other: one side of the conversation, without sockets, threads or a clock of its own.

A heartbeat goes to everybody this node reports to and is repeated until it is acknowledged. When more than half have
not done so after four attempts it is *unheard*, and the node writes to the store. Nobody is lost to lost datagrams.

The other side acknowledges heartbeats of its wards only. Whoever is told "not mine", or sees another version of the
group, looks into the store, because one of the two has not heard of a change yet.
"""

import math
import random
from dataclasses import dataclass

from dw_platform.fabric.detector import WatchedTime, is_unheard
from dw_platform.fabric.limits import Pace
from dw_platform.fabric.membership import Address
from dw_platform.fabric.messages import Message, MessageKind
from dw_platform.fabric.part import Part
from dw_platform.fabric.topology import NO_ROLE, Seat
from dw_platform.fabric.wards import Question, Wards

_ATTEMPTS = 4
# Four attempts take a quarter of a heartbeat: enough for a slow network, and the store still hears it in time.
_ATTEMPT_SHARE = 1 / 15
_HELPERS = 3
_MOST_RELAYS = 256
_NUMBERS = 1 << 53  # what every JSON reader keeps exactly


@dataclass(frozen=True, slots=True)
class Send:
    """One datagram to be sent."""

    address: Address
    message: Message


@dataclass(frozen=True, slots=True)
class _Relay:
    """A ping that was sent for somebody else."""

    about: str
    asker: str
    address: Address
    number: int
    ends_at: float


@dataclass(frozen=True, slots=True)
class _Ping:
    """A question after a ward of one's own; only an answer with its number counts, and only for a heartbeat."""

    about: str
    ends_at: float


class Peers:
    """The conversation of one node with its group; the caller serialises the calls and passes the time."""

    def __init__(self, name: str, pace: Pace, *, now: float, dice: random.Random | None = None) -> None:
        """`dice` make the numbers that answers must repeat; only a simulation passes its own."""
        self.name, self.pace, self._dice = name, pace, dice or random.SystemRandom()
        self.role, self.version, self.incarnation = NO_ROLE, 0, 0
        self.unheard = 0
        """Heartbeats that too few acknowledged, since the start; grows while this node must use the store."""

        self.unanswered = False
        """Whether the newest heartbeat that is decided was one of them."""

        self.look_wanted = False
        """Whether somebody knows another version of the group."""

        self._watch = WatchedTime(now)
        self._wards = Wards()
        self._number = 0
        self._waiting: dict[str, Seat] = {}
        self._accepted = 0
        self._attempts = 0
        self._pings: dict[int, _Ping] = {}
        self._relays: dict[int, _Relay] = {}
        self._beat_at, self._repeat_at, self._scan_at = now, math.inf, now

    @property
    def news(self) -> tuple[int, bool]:
        """Something that differs when this node should look into the store or write to it."""
        return self.unheard, self.look_wanted

    def take(self, part: Part, *, incarnation: int, now: float) -> None:
        """Work by `part` from now on; new listeners get a heartbeat at once."""
        watched, role = self._advance(now), part.role
        if role.reports_to != self.role.reports_to or incarnation != self.incarnation:
            self._beat_at, self._repeat_at, self._waiting, self.unanswered = now, math.inf, {}, False
        self._beat_at = min(self._beat_at, now + part.pace.heartbeat_s)
        self.role, self.version, self.pace, self.incarnation = role, part.version, part.pace, incarnation
        self._wards.replace(role.wards, watched)
        self._scan_at = min(self._scan_at, now)

    def looked(self) -> None:
        """Note that this node has looked into the store, before what it found is taken."""
        self.look_wanted = False

    @property
    def next_at(self) -> float:
        """When `tick` has something to do."""
        return min(self._beat_at, self._repeat_at, self._scan_at)

    def tick(self, now: float) -> list[Send]:
        """Do what is due and return what to send."""
        watched = self._advance(now)
        sends: list[Send] = []
        if now >= self._repeat_at:
            sends += self._repeat(now)
        if now >= self._beat_at:
            sends += self._beat(now)
        if now >= self._scan_at:
            sends += self._scan(now, watched)
        return sends

    def receive(self, message: Message, source: Address, now: float) -> list[Send]:
        """Take in a message and return the answers."""
        if message.receiver != self.name:
            return []
        watched = self._advance(now)
        match message.kind:
            case MessageKind.BEAT:
                return self._on_beat(message, source, watched)
            case MessageKind.ACK:
                self._on_ack(message)
            case MessageKind.PING:
                return [self._send(source, MessageKind.PONG, message.sender, message.number)]
            case MessageKind.PONG:
                return self._on_pong(message, watched)
            case MessageKind.ASK:
                return self._on_ask(message, source, now)
            case MessageKind.VOUCH:
                self._answered(message.number, message.about, watched)
        return []

    def ages(self, now: float) -> dict[str, float]:
        """Return how long ago each ward was heard."""
        return self._wards.ages(self._advance(now))

    def silent(self, now: float) -> dict[str, float | None]:
        """Return the wards that nobody has heard for too long."""
        return self._wards.silent(self._advance(now), self.pace)

    def _advance(self, now: float) -> float:
        self._watch, _ = self._watch.look(now, longest_gap_s=self.pace.heartbeat_s)
        return self._watch.seconds

    def _beat(self, now: float) -> list[Send]:
        self._number += 1
        self._waiting = {seat.name: seat for seat in self.role.reports_to}
        self._attempts, self._accepted = 0, 0
        # After a pause the rhythm starts anew; what was missed is not made up for.
        self._beat_at = max(self._beat_at + self.pace.heartbeat_s, now)
        self._repeat_at = math.inf
        return self._repeat(now) if self._waiting else []

    def _repeat(self, now: float) -> list[Send]:
        if self._attempts == _ATTEMPTS:
            self._decided()
            return []
        self._attempts += 1
        self._repeat_at = now + self.pace.heartbeat_s * _ATTEMPT_SHARE
        return [self._send(seat.address, MessageKind.BEAT, seat.name, self._number) for seat in self._waiting.values()]

    def _on_beat(self, message: Message, source: Address, watched: float) -> list[Send]:
        accepted = self._wards.beat(message.sender, message.incarnation, message.number, watched)
        if not accepted and message.version != self.version:
            self.look_wanted = True
        return [self._send(source, MessageKind.ACK, message.sender, message.number, accepted=accepted)]

    def _on_ack(self, message: Message) -> None:
        if message.number != self._number or self._waiting.pop(message.sender, None) is None:
            return
        self._accepted += message.accepted
        self.unanswered = self.unanswered and self._is_unheard()
        self.look_wanted = self.look_wanted or not message.accepted or message.version != self.version
        if not self._waiting:
            self._decided()

    def _decided(self) -> None:
        self._repeat_at, self._waiting, self.unanswered = math.inf, {}, self._is_unheard()
        if self.unanswered:
            self.unheard += 1
            self.look_wanted = True

    def _is_unheard(self) -> bool:
        listeners = len(self.role.reports_to)
        return is_unheard(listeners - self._accepted, listeners)

    def _scan(self, now: float, watched: float) -> list[Send]:
        busy = self.role.wards or self._relays
        self._scan_at = now + self.pace.look_every_s if busy else math.inf
        self._relays = {number: relay for number, relay in self._relays.items() if relay.ends_at > now}
        self._pings = {number: ping for number, ping in self._pings.items() if ping.ends_at > now}
        questions = self._wards.questions(watched, self.pace)
        return [send for question in questions for send in self._ask_after(question, now)]

    def _ask_after(self, question: Question, now: float) -> list[Send]:
        seat = question.seat
        sends = [self._send(seat.address, MessageKind.PING, seat.name, self._new_ping(seat.name, now))]
        if question.indirect:
            able = [helper for helper in self.role.helpers if helper.name not in {seat.name, self.name}]
            for helper in self._dice.sample(able, min(_HELPERS, len(able))):
                number = self._new_ping(seat.name, now)
                sends.append(
                    self._send(
                        helper.address, MessageKind.ASK, helper.name, number, about=seat.name, target=seat.address
                    )
                )
        return sends

    def _new_ping(self, about: str, now: float) -> int:
        number = self._dice.randrange(_NUMBERS)
        self._pings[number] = _Ping(about, now + self.pace.heartbeat_s)
        return number

    def _answered(self, number: int, name: str, watched: float) -> None:
        ping = self._pings.pop(number, None)
        if ping is not None and ping.about == name:
            self._wards.answered(name, watched)

    def _on_pong(self, message: Message, watched: float) -> list[Send]:
        relay = self._relays.pop(message.number, None)
        if relay is not None and relay.about == message.sender:
            return [self._send(relay.address, MessageKind.VOUCH, relay.asker, relay.number, about=relay.about)]
        self._answered(message.number, message.sender, watched)
        return []

    def _on_ask(self, message: Message, source: Address, now: float) -> list[Send]:
        if message.address is None or len(self._relays) >= _MOST_RELAYS:
            return []
        self._scan_at = min(self._scan_at, now + self.pace.look_every_s)
        number = self._dice.randrange(_NUMBERS)
        self._relays[number] = _Relay(
            message.about, message.sender, source, message.number, now + self.pace.heartbeat_s
        )
        return [self._send(message.address, MessageKind.PING, message.about, number)]

    def _send(
        self,
        address: Address,
        kind: MessageKind,
        receiver: str,
        number: int,
        *,
        about: str = "",
        target: Address | None = None,
        accepted: bool = False,
    ) -> Send:
        message = Message(
            kind=kind,
            sender=self.name,
            receiver=receiver,
            incarnation=self.incarnation,
            number=number,
            version=self.version,
            about=about,
            address=target,
            accepted=accepted,
        )
        return Send(address, message)
