"""A subsystem's numbers at one moment, as sensors, `dw status` and other processes read them.

dw://internal/metrics/{node}/{subsystem}
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.scaling.pressure import PressureLevel
from dw_platform.store.contract import Entry
from dw_platform.store.keys import internal_key, internal_prefix, key_parts

METRICS = internal_prefix("metrics")


def metrics_key(node: str, subsystem: str) -> str:
    """Return the key of the last snapshot that the process `node` took of `subsystem`."""
    return internal_key("metrics", node, subsystem)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """Every number is finite; one that is not is refused by name, because JSON could not carry it."""

    node: str
    subsystem: str
    at: datetime
    values: Mapping[str, float]
    level: PressureLevel
    occupancy: float

    def __post_init__(self) -> None:
        for name, value in {**self.values, "occupancy": self.occupancy}.items():
            if isinstance(value, bool) or not math.isfinite(value):
                raise InvalidValueError(name, value, "a finite number")

    def age(self, now: datetime) -> timedelta:
        """Return how old the snapshot is; never negative, though clocks of two machines differ."""
        return max(now - self.at, timedelta(0))

    @classmethod
    def decode(cls, entry: Entry) -> "MetricsSnapshot":
        """Read what a process has published."""

        def build(content: dict[str, Any]) -> MetricsSnapshot:
            _, node, subsystem = key_parts(entry.key)
            return cls(
                node=node,
                subsystem=subsystem,
                at=as_time(content["at"]),
                values=as_object(content["values"]),
                level=PressureLevel.from_label(content["pressure"]),
                occupancy=content["occupancy"],
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the snapshot's value in the store, without what its key says."""
        return encode_object(
            {
                "at": self.at.isoformat(),
                "values": dict(self.values),
                "pressure": self.level.label,
                "occupancy": self.occupancy,
            }
        )
