"""What passes through a stream, counted: without locks where every publish goes, with the bus's meters elsewhere."""

import threading
import weakref
from collections.abc import Mapping

from dw_platform.bus.meters import LatencyHistogram, RateMeter
from dw_platform.foundation import Clock

# A snapshot goes to the control store every few seconds; the fullest streams are those that explain anything.
STREAMS_SHOWN = 64
_ADDED_UP = ("depth", "published_per_s")


class StripedCounter:
    """A sum that every thread adds to in a cell of its own, so that adding takes no lock."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._cells: list[tuple[weakref.ref[threading.Thread], list[int]]] = []
        self._ended = 0

    def add(self, count: int) -> None:
        """Add `count`, which may be negative."""
        try:
            self._mine.cell[0] += count
        except AttributeError:
            self._mine.cell = self._new_cell(count)

    def total(self) -> int:
        """Return the sum; what others add at this moment may or may not be in it."""
        return self._ended + sum([cell[0] for _, cell in self._cells])

    def _new_cell(self, count: int) -> list[int]:
        cell = [count]
        with self._lock:
            # Cells of threads that ended are put together here, or they would pile up where threads come and go.
            # The list is replaced first: a reader in between sees too little for a moment, never anything twice.
            ended = [entry for entry in self._cells if _ended(entry[0])]
            alive = [entry for entry in self._cells if entry not in ended]
            self._cells = [*alive, (weakref.ref(threading.current_thread()), cell)]
            self._ended += sum(count for _, (count,) in ended)
        return cell


def _ended(thread: "weakref.ref[threading.Thread]") -> bool:
    found = thread()
    return found is None or not found.is_alive()


class StreamTraffic:
    """The counters and meters of one topic in this process."""

    def __init__(self, *, clock: Clock) -> None:
        self.published = RateMeter(clock=clock)
        self.latency = LatencyHistogram()
        self.failed, self.rejected, self.delayed = StripedCounter(), StripedCounter(), StripedCounter()
        self.waited, self.timed_out = StripedCounter(), StripedCounter()
        self.duplicates, self.dropped = StripedCounter(), StripedCounter()

    def metrics(self) -> dict[str, float]:
        """Return totals, the rate, and percentiles of a publish with its waiting and its fsync."""
        return {
            "published_total": self.published.total,
            "published_per_s": self.published.per_second(),
            "failed_total": self.failed.total(),
            "rejected_total": self.rejected.total(),
            "delayed_total": self.delayed.total(),
            "waited_total": self.waited.total(),
            "timed_out_total": self.timed_out.total(),
            "duplicates_total": self.duplicates.total(),
            "dropped_total": self.dropped.total(),
            **{f"publish_p{share}_ms": self.latency.percentile(share / 100) * 1_000 for share in (50, 95, 99)},
        }


def flat_metrics(streams: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return sums over all streams, and the numbers of the fullest ones as `{number}.{topic}`."""
    names = sorted({name for numbers in streams.values() for name in numbers})
    totals = {
        name: sum(numbers.get(name, 0) for numbers in streams.values())
        for name in names
        if name in _ADDED_UP or name.endswith("_total")
    }
    fullest = sorted(streams, key=lambda topic: (-streams[topic].get("occupancy", 0), topic))[:STREAMS_SHOWN]
    shown = {f"{name}.{topic}": value for topic in fullest for name, value in streams[topic].items()}
    return {"streams": len(streams), **totals, **shown}
