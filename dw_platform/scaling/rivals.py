"""Published rules for the number of consumers, written after their documentation, with its defaults.

They are what the platform's own decision is compared with, so each is given what serves it: see `lag_per_consumer`.

Kubernetes' HorizontalPodAutoscaler, on an external metric with an average value for each pod: every 15 s it wants
total / target pods, unless the ratio is within 10 % of what there is. Upwards at once, by at most 4 pods or a doubling
in 15 s, whichever is more. Downwards to the highest of what it wanted in the last 300 s.

KEDA's Kafka scaler gives that metric to such an autoscaler: the lag of all partitions, cut so that no more pods are
wanted than partitions. Between 0 and 1 pods KEDA decides itself, every 30 s: it starts one when there is lag, and stops
the last one when there has been none for the cooldown of 300 s. With `excludePersistentLag` a partition whose position
is where it was at the last look does not count; with `limitToPartitionsWithLag` there are no more pods than partitions
with lag. Both are off unless asked for, and both are compared.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from dw_platform.scaling.simulated_stream import StreamSetup
from dw_platform.scaling.simulator import RuleMaker, View
from dw_platform.scaling.stream_reading import ReadOffsets
from dw_platform.scaling.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaBehavior:
    """The documented defaults."""

    sync_s: int = 15
    tolerance: float = 0.1
    down_window_s: int = 300
    up_factor: float = 2.0
    up_pods: int = 4


class Hpa:
    """The autoscaler itself: from a metric's total to a number of pods."""

    def __init__(self, target: float, *, at_least: int, at_most: int, behavior: HpaBehavior | None = None) -> None:
        self.behavior = behavior or HpaBehavior()
        self._target, self._at_least, self._at_most = target, at_least, at_most
        self._recommended: deque[tuple[int, int]] = deque()

    @property
    def every_s(self) -> int:
        return self.behavior.sync_s

    def decide(self, view: View) -> int:
        return self.pods(view.second, view.wanted, total_lag(view.partitions))

    def pods(self, second: int, current: int, total: float) -> int:
        """Return how many pods it wants after one synchronisation."""
        desired = current
        if abs(total / (self._target * current) - 1) > self.behavior.tolerance:
            desired = math.ceil(total / self._target)
        desired = self._stabilised(second, desired, current)
        quickest = max(math.floor(current * self.behavior.up_factor), current + self.behavior.up_pods)
        return min(max(desired, self._at_least), self._at_most, max(quickest, current))

    def _stabilised(self, second: int, desired: int, current: int) -> int:
        window = self._recommended
        if not window:
            window.append((second, current))  # as the controller does: what it finds is its first recommendation
        window.append((second, desired))
        while window[0][0] <= second - self.behavior.down_window_s:
            window.popleft()
        highest = max(wanted for _, wanted in window)
        # Upwards nothing is waited for; downwards not below what was wanted lately, nor above what there is.
        return desired if desired >= current else min(highest, current)


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaTrigger:
    """A `kafka` trigger and its ScaledObject, with the documented defaults."""

    polling_s: int = 30
    cooldown_s: int = 300
    min_replicas: int = 0
    exclude_persistent_lag: bool = False
    limit_to_partitions_with_lag: bool = False


class Keda:
    """The scaler in front of the autoscaler."""

    every_s = HpaBehavior().sync_s

    def __init__(self, lag_threshold: float, *, at_most: int, trigger: KedaTrigger | None = None) -> None:
        self._trigger = trigger or KedaTrigger()
        self._threshold = lag_threshold
        self._hpa = Hpa(lag_threshold, at_least=max(1, self._trigger.min_replicas), at_most=at_most)
        self._positions: dict[int, int] = {}
        self._active_at = 0

    def decide(self, view: View) -> int:
        if view.second % self._trigger.polling_s == 0:
            if total_lag(view.partitions) > 0:
                self._active_at = view.second
                if view.wanted == 0:
                    return max(1, self._trigger.min_replicas)
            elif view.second - self._active_at >= self._trigger.cooldown_s:
                return self._trigger.min_replicas
        return self._hpa.pods(view.second, view.wanted, self._metric(view)) if view.wanted else 0

    def _metric(self, view: View) -> float:
        total, with_lag = 0, 0
        for number, offsets in view.partitions.items():
            lag = max(0, offsets.end - offsets.position)
            stays = self._positions.get(number) == offsets.position
            self._positions[number] = offsets.position
            if lag and not (self._trigger.exclude_persistent_lag and stays):
                total += lag
                with_lag += 1
        most = with_lag if self._trigger.limit_to_partitions_with_lag else len(view.partitions)
        return min(total, most * self._threshold)


def total_lag(partitions: Mapping[int, ReadOffsets]) -> int:
    """Return the records that wait in all partitions."""
    return sum(max(0, offsets.end - offsets.position) for offsets in partitions.values())


def hpa(lag_s: float) -> RuleMaker:
    """Return the rule whose target is the lag that one consumer reads in `lag_s`."""

    def make(_: Trace, setup: StreamSetup) -> Hpa:
        return Hpa(setup.capacity * lag_s, at_least=1, at_most=setup.max_consumers)

    return make


def keda(lag_s: float, trigger: KedaTrigger | None = None) -> RuleMaker:
    """Return the rule whose threshold is the lag that one consumer reads in `lag_s`."""

    def make(_: Trace, setup: StreamSetup) -> Keda:
        return Keda(setup.capacity * lag_s, at_most=setup.max_consumers, trigger=trigger)

    return make
