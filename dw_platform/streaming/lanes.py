"""What a subscriber holds of one partition: where it fetches, what was handed out, what is done, what is committed."""

from collections import deque
from dataclasses import dataclass, field

from dw_platform.foundation import PlatformError
from dw_platform.log import LogBatch
from dw_platform.streaming.contract import Fetcher
from dw_platform.streaming.events import StreamEvent, events_of


@dataclass(slots=True, eq=False)
class Lane:
    """committed <= done <= handed_out <= fetched; the subscription's lock guards it, its thread alone fetches."""

    topic: str
    partition: int
    fetcher: Fetcher
    fetched: int
    """Where to fetch next."""

    handed_out: int = 0
    done: int = 0
    """Everything below was handled: the subscriber came back for more, or committed it."""

    committed: int = 0
    waiting: deque[tuple[StreamEvent, int]] = field(default_factory=deque)
    """Fetched and not handed out yet, each with the offset after it."""

    leaving_since: float | None = None
    """When another member's turn came; nothing more is handed out."""

    moves: int = 0
    """Counts seeks, so that a fetch that was under way is dropped."""

    failure: PlatformError | None = None
    """Why it cannot be read on; `seek` goes on elsewhere."""

    def __post_init__(self) -> None:
        self.handed_out = self.done = self.committed = self.fetched

    def take_in(self, batch: LogBatch) -> int:
        """Add what was fetched, and return how many records that is."""
        idle = not self.waiting and self.done == self.handed_out == self.fetched
        self.waiting.extend(events_of(self.topic, self.partition, batch))
        self.fetched = batch.next_offset
        if idle and not self.waiting:
            self.handed_out = self.done = self.fetched  # nothing but a gap
        return len(batch)

    def hand_out(self) -> StreamEvent:
        """Return the next record."""
        event, self.handed_out = self.waiting.popleft()
        return event

    def move_to(self, offset: int) -> None:
        """Go on at another offset; what was fetched is dropped."""
        self.waiting.clear()
        self.fetched = self.handed_out = self.done = self.committed = offset
        self.failure = None
        self.moves += 1

    def leave(self, now: float) -> None:
        """Hand out nothing more."""
        if self.leaving_since is None:
            self.leaving_since = now
            self.waiting.clear()
            self.fetched = self.handed_out
            self.moves += 1
