"""How many records wait for the slowest of the groups that count.

The broker is asked about ten times a second. In between, what this process publishes is added: everything that was
admitted and that the last look cannot have seen yet. So a burst is felt at once, and nobody's answer has to wait for
the broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dw_platform.streaming.contract import Broker
from dw_platform.streaming.metrics import StripedCounter


@dataclass(frozen=True, slots=True)
class Positions:
    """A topic's offsets by partition at one moment, and where a group reads next, given that it reads at all."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    groups: Mapping[str, Mapping[int, int]]

    def next_of(self, group: str, partition: int) -> int:
        """Return where `group` reads next: nothing that has expired is still waiting for it."""
        start = self.starts.get(partition, 0)
        return max(self.groups[group].get(partition, start), start)

    def lags(self, group: str) -> dict[int, int]:
        """Return the records by partition that `group` has not read; where a broker leaves gaps, an upper bound."""
        return {partition: max(end - self.next_of(group, partition), 0) for partition, end in self.ends.items()}

    def lag(self, group: str) -> int:
        """Return the records that `group` has not read."""
        return sum(self.lags(group).values())

    @property
    def depth(self) -> int:
        """Return what waits for the slowest group; 0 if none counts."""
        return max((self.lag(group) for group in self.groups), default=0)


def read_positions(broker: Broker, topic: str, groups: Sequence[str]) -> Positions:
    """Ask the broker; committed offsets first, so that a lag is never too small."""
    committed = {group: broker.committed(topic, group) for group in groups}
    return Positions(broker.start_offsets(topic), broker.end_offsets(topic), committed)


class DepthMeter:
    """The depth of one topic; `refresh` belongs to one thread at a time, the rest to everybody."""

    def __init__(self, broker: Broker, topic: str, groups: Sequence[str]) -> None:
        self._broker, self._topic, self._groups = broker, topic, tuple(groups)
        self.admitted, self.settled = StripedCounter(), StripedCounter()
        self.positions = Positions({}, {}, {})
        self._seen = 0
        # Replaced as a pair, so that no reader mixes two looks.
        self._base = (0, 0)

    @property
    def counts(self) -> bool:
        """Whether any group is waited for."""
        return bool(self._groups)

    def refresh(self) -> Positions:
        """Ask the broker."""
        settled = self.settled.total()
        positions = read_positions(self._broker, self._topic, self._groups)
        self.positions, self._base = positions, (positions.depth, settled)
        return positions

    def depth(self) -> int:
        """Return the records that wait, with those that are on their way; 0 if no group counts."""
        if not self._groups:
            return 0
        waiting, settled = self._base
        return max(waiting + self.admitted.total() - settled, 0)
