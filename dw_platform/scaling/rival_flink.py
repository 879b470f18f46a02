"""The autoscaler of Flink's Kubernetes operator, after its documentation and its defaults.

A look a minute. What a job can read is its rate divided by how busy its busiest task was, on average over a window of
15 min; while it works off a lag of more than 30 s, what it was seen to read replaces that if it is much less. What it
should be able to read is

    lag / catch-up + rate * restart / catch-up + rate / utilisation

with a catch-up of 30 min, an assumed restart of 5 min and a utilisation of 0.7. Nothing happens while what it can read
lies between that value for a utilisation of 1.0 (without the restart) and for 0.4; while it works off a backlog of more
than 5 min it does not shrink. Otherwise parallelism is multiplied by what it should over what it can, at most down to
0.4 of it, and rounded up to a number that divides the partitions evenly.

After a change, 5 min of stabilisation and a whole new window pass before the next. A reduction waits for 1 h, takes the
highest of what was computed meanwhile, and is forgotten if an increase comes first.
"""

import math
from collections import deque
from dataclasses import dataclass

from dw_platform.scaling.rivals import total_lag
from dw_platform.scaling.simulated_stream import StreamSetup
from dw_platform.scaling.simulator import View
from dw_platform.scaling.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkOptions:
    """The documented defaults, in seconds."""

    reconcile_s: int = 60
    window_s: int = 15 * 60
    stabilization_s: int = 5 * 60
    scale_down_s: int = 60 * 60
    utilization: float = 0.7
    boundary: float = 0.3
    max_down: float = 0.6
    catch_up_s: int = 30 * 60
    restart_s: int = 5 * 60
    backlog_s: int = 5 * 60
    observe_from_s: int = 30
    observed_switch: float = 0.15


@dataclass(frozen=True, slots=True)
class _Sample:
    second: int
    read: int
    lag: int
    busy: float


@dataclass(frozen=True, slots=True)
class _Shrink:
    second: int
    wanted: int
    outside: bool


class FlinkAutoscaler:
    """One source vertex, which is what a group of consumers is to it."""

    def __init__(self, *, at_most: int, options: FlinkOptions | None = None) -> None:
        self._options, self._at_most = options or FlinkOptions(), at_most
        self._samples: deque[_Sample] = deque()
        self._stable_from = self._options.stabilization_s
        self._shrinks: deque[_Shrink] = deque()
        self._shrink_since: int | None = None

        self._lowest = self._options.utilization - self._options.boundary
        self._highest = self._options.utilization + self._options.boundary

    @property
    def every_s(self) -> int:
        return self._options.reconcile_s

    def decide(self, view: View) -> int:
        if view.running != view.wanted:  # the job restarts; its time to be stable begins when it runs
            self._restarted(view.second)
            return view.wanted
        if view.second < self._stable_from:
            return view.wanted
        self._samples.append(
            _Sample(
                view.second, sum(o.position for o in view.partitions.values()), total_lag(view.partitions), view.busy
            )
        )
        if view.second - self._samples[0].second < self._options.window_s:
            return view.wanted
        while view.second - self._samples[0].second > self._options.window_s:
            self._samples.popleft()
        wanted = self._evaluate(view.wanted, len(view.partitions), view.second)
        if wanted != view.wanted:
            self._restarted(view.second)
        return wanted

    def _restarted(self, second: int) -> None:
        self._samples.clear()
        self._shrinks.clear()
        self._shrink_since = None
        self._stable_from = second + self._options.stabilization_s

    def _evaluate(self, current: int, partitions: int, second: int) -> int:
        first, last = self._samples[0], self._samples[-1]
        passed = last.second - first.second
        read = (last.read - first.read) / passed
        rate = max(0.0, read + (last.lag - first.lag) / passed)
        busy = sum(sample.busy for sample in self._samples) / len(self._samples)
        can = self._true_rate(read, busy)
        if not math.isfinite(can) or can <= 0:
            return current
        factor = max(
            self._target(rate, last.lag, self._options.utilization, restart=True) / can, 1 - self._options.max_down
        )
        wanted = self._aligned(current, math.ceil(factor * current), partitions)
        if wanted == current:
            self._forget_shrinks()
            return current
        if wanted < current:
            backlog = read > 0 and last.lag / read > self._options.backlog_s
            outside = not backlog and can > self._target(rate, last.lag, self._lowest, restart=True)
            return self._shrink(current, _Shrink(second, wanted, outside))
        self._forget_shrinks()
        return wanted if can < self._target(rate, last.lag, self._highest, restart=False) else current

    def _true_rate(self, read: float, busy: float) -> float:
        by_busy = read / busy if busy > 0 and read > 0 else math.inf
        observed = [
            (after.read - before.read) / (after.second - before.second)
            for before, after in zip(self._samples, list(self._samples)[1:], strict=False)
            if min(before.lag, after.lag) > self._options.observe_from_s * max(read, 1.0)
        ]
        if len(observed) < 2:
            return by_busy
        seen = sum(observed) / len(observed)
        return seen if by_busy > seen * (1 + self._options.observed_switch) else by_busy

    def _target(self, rate: float, lag: float, utilization: float, *, restart: bool) -> float:
        catch_up = self._options.catch_up_s
        again = rate * self._options.restart_s / catch_up if restart else 0.0
        return lag / catch_up + again + rate / utilization

    def _shrink(self, current: int, asked: _Shrink) -> int:
        if self._shrink_since is None:
            self._shrink_since = asked.second
        self._shrinks.append(asked)
        begin = asked.second - self._options.scale_down_s
        if begin < self._shrink_since:
            return current
        while self._shrinks[0].second < begin:
            self._shrinks.popleft()
        most = max(self._shrinks, key=lambda each: (each.wanted, each.second))
        return most.wanted if most.outside else current

    def _forget_shrinks(self) -> None:
        self._shrinks.clear()
        self._shrink_since = None

    def _aligned(self, current: int, wanted: int, partitions: int) -> int:
        most = min(partitions, max(self._at_most, current))
        wanted = min(max(1, wanted), most)
        if wanted == current:
            return current
        highest = most if wanted > current else current
        even = (count for count in range(wanted, highest + 1) if partitions % count == 0)
        return next(even, wanted)


def flink(_: Trace, setup: StreamSetup) -> FlinkAutoscaler:
    """Return the rule with its defaults."""
    return FlinkAutoscaler(at_most=setup.max_consumers)
