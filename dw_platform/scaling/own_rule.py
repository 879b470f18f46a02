"""The platform's own decision as a rule of the simulator: the very function that runs in production."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dw_platform.scaling.simulated_stream import StreamSetup
from dw_platform.scaling.simulator import RuleMaker, View
from dw_platform.scaling.stream_policy import StreamScalePolicy
from dw_platform.scaling.stream_reading import StreamReading
from dw_platform.scaling.stream_scale import decide_stream_scale
from dw_platform.scaling.stream_state import StreamScaleState, restore_state
from dw_platform.scaling.streams import ScalabilityConfig
from dw_platform.scaling.traces import Trace

_START = datetime(2026, 1, 1, tzinfo=UTC)


class OwnRule:
    """Keeps its state as text, as a sensor's cursor does."""

    def __init__(self, policy: StreamScalePolicy) -> None:
        self._policy = policy
        self._cursor = StreamScaleState().encode()
        self.reason = ""

    @property
    def every_s(self) -> int:
        return round(self._policy.sample_every.total_seconds())

    def decide(self, view: View) -> int:
        reading = StreamReading(
            at=_START + timedelta(seconds=view.second), partitions=view.partitions, consumers=view.running
        )
        decision = decide_stream_scale(reading, restore_state(self._cursor).state, self._policy)
        self._cursor, self.reason = decision.state.encode(), decision.reason
        return decision.consumers


def own(policy: StreamScalePolicy | None = None) -> RuleMaker:
    """Return the rule; of `policy`, the bounds and the age of a late record are those of the setup."""

    def make(trace: Trace, setup: StreamSetup) -> OwnRule:
        scalability = ScalabilityConfig(
            max_consumers=setup.max_consumers, max_lag_ms=setup.max_age_s * 1_000, max_partitions=trace.partitions
        )
        return OwnRule(replace(policy or StreamScalePolicy(), scalability=scalability))

    return make
