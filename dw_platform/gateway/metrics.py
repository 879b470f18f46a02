"""What the gateway counts, and its numbers and those of its subsystems in Prometheus' text format.

Counting happens on the event loop's thread, so plain numbers are enough. Labels come from this process: route
templates and topics that exist, never what a caller made up.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dw_platform.bus.meters import RateMeter
from dw_platform.foundation import Clock
from dw_platform.scaling import ScalableSubsystem

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Sample = tuple[Mapping[str, str], float]


class Histogram:
    """How long requests took, in fixed buckets."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum += seconds

    def samples(self, labels: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield the running counts, as Prometheus wants them."""
        total = 0
        for bound, count in zip((*BOUNDS_S, math.inf), self.counts, strict=True):
            total += count
            yield "_bucket", {**labels, "le": _number(bound)}, total
        yield "_sum", labels, self.sum
        yield "_count", labels, total


class GatewayMetrics:
    """The numbers of one gateway."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.durations: dict[str, Histogram] = defaultdict(Histogram)
        self.rates: dict[str, RateMeter] = {}
        self.records: dict[str, int] = defaultdict(int)
        self.bytes: dict[str, int] = defaultdict(int)
        self.rejected: dict[str, int] = defaultdict(int)
        self.duplicates: dict[str, int] = defaultdict(int)
        self.refused: dict[str, int] = defaultdict(int)

    def published(self, topic: str, *, records: int, size: int, rejected: int, duplicate: bool) -> None:
        """Count a batch that was acknowledged; one that had been before is not counted again."""
        self.rejected[topic] += rejected
        if duplicate:
            self.duplicates[topic] += 1
            return
        self.records[topic] += records
        self.bytes[topic] += size
        if (meter := self.rates.get(topic)) is None:
            meter = self.rates[topic] = RateMeter(clock=self._clock)
        meter.add(records)

    def finished(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[method, route, status] += 1
        self.durations[route].observe(seconds)

    def per_second(self, topic: str) -> float:
        """Return the records a second published to the topic, over the last ten seconds."""
        meter = self.rates.get(topic)
        return 0.0 if meter is None else meter.per_second()


def exposition(
    metrics: GatewayMetrics, *, in_flight: int, buffered: int, subsystems: Sequence[ScalableSubsystem[Any]]
) -> str:
    """Return everything as text for Prometheus."""
    lines: list[str] = []
    requests = [
        ({"method": method, "route": route, "status": str(status)}, float(count))
        for (method, route, status), count in metrics.requests.items()
    ]
    _put(lines, "dw_gateway_requests_total", "counter", "Requests answered.", requests)
    for name, text, counts in (
        ("records", "Records acknowledged.", metrics.records),
        ("record_bytes", "Bytes of acknowledged records, with their keys.", metrics.bytes),
        ("rejected_records", "Records left out because they were wrong.", metrics.rejected),
        ("duplicate_batches", "Batches that had been published before, under the same stamp.", metrics.duplicates),
    ):
        samples = [({"topic": topic}, float(count)) for topic, count in counts.items()]
        _put(lines, f"dw_gateway_{name}_total", "counter", text, samples)
    refused = [({"code": code}, float(count)) for code, count in metrics.refused.items()]
    _put(lines, "dw_gateway_refused_total", "counter", "Requests refused, by the code of the error.", refused)
    _put(lines, "dw_gateway_requests_in_flight", "gauge", "Requests under way.", [({}, in_flight)])
    _put(lines, "dw_gateway_buffered_bytes", "gauge", "Bytes of bodies held.", [({}, buffered)])
    _put_histograms(lines, metrics.durations)
    _put_subsystems(lines, subsystems)
    return "\n".join(lines) + "\n"


def _put_histograms(lines: list[str], durations: Mapping[str, Histogram]) -> None:
    name = "dw_gateway_request_seconds"
    _head(lines, name, "histogram", "Time from the head of a request to the end of its answer.")
    for route, histogram in durations.items():
        lines += [_line(name + suffix, labels, value) for suffix, labels, value in histogram.samples({"route": route})]


def _put_subsystems(lines: list[str], subsystems: Sequence[ScalableSubsystem[Any]]) -> None:
    readings = [(subsystem.name, subsystem.backpressure_state()) for subsystem in subsystems]
    levels = [({"subsystem": name}, float(reading.level)) for name, reading in readings]
    _put(lines, "dw_pressure_level", "gauge", "0 normal, 1 warning, 2 critical, 3 shedding.", levels)
    filled = [({"subsystem": name}, reading.occupancy) for name, reading in readings]
    _put(lines, "dw_occupancy_ratio", "gauge", "How full a subsystem is, smoothed; 1 is full.", filled)
    values = [
        ({"subsystem": subsystem.name, "metric": metric}, float(value))
        for subsystem in subsystems
        for metric, value in subsystem.scaling_metrics().items()
    ]
    _put(lines, "dw_subsystem_metric", "gauge", "The numbers that a subsystem gives of itself.", values)


def _put(lines: list[str], name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
    _head(lines, name, kind, text)
    lines += [_line(name, labels, value) for labels, value in samples]


def _head(lines: list[str], name: str, kind: str, text: str) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
