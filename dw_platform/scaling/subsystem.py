"""What a subsystem offers so that people, sensors and other processes can watch and steer it."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from dw_platform.scaling.gauge import GaugeReading, PressureChanged
from dw_platform.scaling.limits import Limits

L = TypeVar("L", bound=Limits)


class ScalableSubsystem(Protocol[L]):
    """A part of the platform with its own limits, numbers and pressure; `L` is its frozen limits dataclass."""

    @property
    def name(self) -> str:
        """The word under which its limits and metrics are found, such as `bus`; the same in every process."""

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return current numbers by name, all finite; cheap enough to be called every second."""

    def current_limits(self) -> L:
        """Return the limits that it works with now."""

    def reconfigure_limits(self, limits: L) -> None:
        """Work with `limits` from now on, without a restart and without losing what it holds.

        They are valid by themselves. What cannot be done now (fewer partitions than have data) raises
        InvalidValueError before anything has changed.
        """

    def backpressure_state(self) -> GaugeReading:
        """Return its pressure after the last observation."""


@runtime_checkable
class BackpressureAware(Protocol):
    """Announces changes of its pressure, so that others need not ask."""

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level, soon and in order; return a function that ends this.

        It is called on a thread of the subsystem, so it must be quick.
        """
