"""How a stream answers publishers when records arrive faster than they leave.

Depth goes into a gauge (EMA 0.3, levels at 70/85/95 %) with every look at the broker and, in a burst, with every 1 %
of the capacity that is published. The stream's strategy turns the gauge's reading into an answer. Publishers that
wait are woken when depth falls, when the strategy or the limits change, and when the stream closes; whoever gives up
before that has published nothing.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from dw_platform.bus import BusLimits
from dw_platform.foundation import Clock, PlatformError
from dw_platform.scaling import GaugeReading, PressureChanged, PressureGauge, PressureLevel
from dw_platform.store import PersistentStore
from dw_platform.streaming.definition import StreamDefinition, check_strategy
from dw_platform.streaming.depth import DepthMeter
from dw_platform.streaming.directives import DirectiveBoard
from dw_platform.streaming.dropping import plan_drop
from dw_platform.streaming.errors import PublishTimedOutError, StreamRejectedError, StreamsClosedError
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.metrics import StreamTraffic
from dw_platform.streaming.publishing import DegradationDirective
from dw_platform.streaming.strategies import STRATEGIES, Action, BackpressureStrategy, StreamDecision, directive_at
from dw_platform.streaming.waits import Doorbell, Steps

log = logging.getLogger(__name__)

# A burst is seen after this share of the capacity, well inside the 5 % that Shedding leaves.
_SAMPLE_SHARE = 0.01
_DEGRADING = {BackpressureStrategy.DEGRADE, BackpressureStrategy.ADAPTIVE}


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment until which a publisher is willing to wait."""

    clock: Clock
    started_s: float
    timeout_s: float

    @classmethod
    def after(cls, timeout_s: float, clock: Clock) -> "Deadline":
        """Return the moment `timeout_s` from now."""
        return cls(clock, clock.monotonic(), timeout_s)

    @property
    def waited_s(self) -> float:
        """Return how long it has been."""
        return self.clock.monotonic() - self.started_s

    @property
    def left_s(self) -> float:
        """Return what is left, 0 if it is over."""
        return max(self.timeout_s - self.waited_s, 0.0)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a decision depends on besides the reading; replaced as a whole, so that publishers notice a change."""

    strategy: BackpressureStrategy
    limits: StreamingLimits
    answers: BusLimits
    capacity: int


class StreamingBackpressureHandler:
    """The pressure of one topic; any thread may use it.

    `watch` makes sure that somebody calls `refresh` about ten times a second from now on, and once as soon as possible
    if it is given True. It is called when that begins to matter.
    """

    def __init__(
        self,
        definition: StreamDefinition,
        limits: StreamingLimits,
        *,
        store: PersistentStore,
        traffic: StreamTraffic,
        clock: Clock,
        watch: Callable[[bool], None],
        name: str,
    ) -> None:
        self._definition, self._traffic, self._clock, self._watch = definition, traffic, clock, watch
        self.depth = DepthMeter(definition.broker, definition.topic, definition.groups)
        self._rules = self._ruled(limits)
        self._gauge = PressureGauge(name, limits.thresholds, clock=clock)
        self._gauge.on_change(self._changed)
        self._board = DirectiveBoard(store, definition.topic, clock=clock)
        self._bell = Doorbell()
        self._sampled = 0
        self._refreshing = threading.Lock()
        self._closed = False

    @property
    def strategy(self) -> BackpressureStrategy:
        """The strategy in force."""
        return self._rules.strategy

    @property
    def capacity(self) -> int:
        """Records at which the stream is full, by the limits in force."""
        return self._rules.capacity

    def reading(self) -> GaugeReading:
        """Return the gauge's reading."""
        return self._gauge.reading()

    def directive(self) -> DegradationDirective | None:
        """Return what the pipeline should leave out now."""
        if self._rules.strategy not in _DEGRADING:
            return None
        return directive_at(self._gauge.reading().level, durable=self._definition.durable)

    def admit(self, records: int, deadline: Deadline) -> Steps[StreamDecision]:
        """Return the decision once the records may be published, and count them as on their way.

        Raise StreamRejectedError or PublishTimedOutError if they may not; they are not counted then.
        """
        while True:
            rules = self._rules
            decision = self._decide(rules)
            if decision.action is Action.REJECT:
                self._traffic.rejected.add(records)
                occupancy = self._gauge.reading().occupancy
                raise StreamRejectedError(self._definition.topic, occupancy, decision.retry_after_s)
            if decision.action is Action.WAIT:
                yield from self._wait_for_room(rules, records, deadline)
            elif not decision.delay_s or not (yield from self._delay(decision.delay_s, rules, records, deadline)):
                break
        self._count(records, rules)
        return decision

    def settle(self, records: int) -> None:
        """Tell that records which were admitted are acknowledged, or failed."""
        self.depth.settled.add(records)

    def refresh(self) -> None:
        """Ask the broker for the depth, act on it, and let those who wait look again."""
        with self._refreshing:
            positions = self.depth.refresh()
            self._observe()
            rules = self._rules
            if rules.strategy is BackpressureStrategy.DROP_OLDEST and positions.depth >= _full(rules):
                self._drop(rules)
            try:
                self._board.show(self.directive())
            except PlatformError as error:
                log.warning("directive not written", extra={"topic": self._definition.topic, "reason": str(error)})
        self._bell.ring()

    def reconfigure(self, limits: StreamingLimits) -> None:
        """Work with other limits, and with the strategy that they name; who waits decides again."""
        self._rules = self._ruled(limits)
        self._gauge.reconfigure(limits.thresholds)
        self._bell.ring()

    def check(self, limits: StreamingLimits) -> None:
        """Raise for limits whose strategy this stream cannot follow."""
        check_strategy(self._definition, self._ruled(limits).strategy)

    def on_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level; return a function that ends this."""
        return self._gauge.on_change(listener)

    def close(self) -> None:
        """Refuse publishers from now on, also those who wait; a directive that holds is taken back."""
        self._closed = True
        self._bell.ring()
        with self._refreshing:
            try:
                self._board.show(None)
            except PlatformError as error:
                log.warning("directive left behind", extra={"topic": self._definition.topic, "reason": str(error)})

    def _ruled(self, limits: StreamingLimits) -> _Rules:
        definition = self._definition
        strategy = limits.strategy_of(definition.topic) or definition.strategy
        return _Rules(strategy, limits, limits.answers(), max(int(definition.capacity * limits.capacity_factor), 1))

    def _decide(self, rules: _Rules) -> StreamDecision:
        if self._closed:
            raise StreamsClosedError
        decision = STRATEGIES[rules.strategy].decide(
            self._gauge.reading(), rules.answers, critical=self._definition.critical, durable=self._definition.durable
        )
        if decision.level is not PressureLevel.NORMAL:
            self._watch(decision.drops)
        return decision

    def _wait_for_room(self, rules: _Rules, records: int, deadline: Deadline) -> Steps[None]:
        self._traffic.waited.add(records)

        def free() -> bool:
            return self._other(rules) or self._gauge.reading().level is not PressureLevel.SHEDDING

        if not (yield self._bell.until(free, deadline.left_s)):
            self._give_up(records, deadline)

    def _delay(self, delay_s: float, rules: _Rules, records: int, deadline: Deadline) -> Steps[bool]:
        """Wait, and return whether to decide again because the rules have changed."""
        self._traffic.delayed.add(records)
        pause_s = min(delay_s, deadline.left_s)
        if (yield self._bell.until(lambda: self._other(rules), pause_s)):
            return True
        if pause_s < delay_s:
            self._give_up(records, deadline)
        return False

    def _other(self, rules: _Rules) -> bool:
        return self._rules is not rules or self._closed

    def _give_up(self, records: int, deadline: Deadline) -> None:
        self._traffic.timed_out.add(records)
        raise PublishTimedOutError(self._definition.topic, deadline.waited_s)

    def _count(self, records: int, rules: _Rules) -> None:
        if not self.depth.counts:
            return
        self.depth.admitted.add(records)
        if self.depth.admitted.total() - self._sampled >= rules.capacity * _SAMPLE_SHARE:
            self._observe()

    def _observe(self) -> None:
        self._sampled = self.depth.admitted.total()
        self._gauge.observe(self.depth.depth() / self._rules.capacity)

    def _drop(self, rules: _Rules) -> None:
        """Make room down to where Critical ends, so that this does not happen with every look."""
        definition = self._definition
        plan = plan_drop(self.depth.positions, int(rules.capacity * rules.limits.thresholds.critical_exit))
        if not plan.ranges:
            return
        definition.broker.drop_before(definition.topic, {partition: end for partition, (_, end) in plan.ranges.items()})
        self._traffic.dropped.add(plan.records)
        ranges = {str(partition): f"{first}..{end - 1}" for partition, (first, end) in plan.ranges.items()}
        log.warning(
            "oldest records dropped", extra={"topic": definition.topic, "records": plan.records, "ranges": ranges}
        )
        self.depth.refresh()
        self._observe()

    def _changed(self, change: PressureChanged) -> None:
        facts = {"subsystem": change.subsystem, "before": change.before.label, "after": change.after.label}
        log.info("pressure changed", extra=facts | {"occupancy": round(change.occupancy, 3)})
        self._bell.ring()


def _full(rules: _Rules) -> float:
    return rules.capacity * rules.limits.thresholds.shedding
