"""The numbers of file I/O, under the names by which operators find them."""

from dw_platform.fileio.capabilities import IoCapabilities
from dw_platform.fileio.gate import GateStats
from dw_platform.fileio.sampling import UtilisationSample


def metrics_of(
    gate: GateStats, sample: UtilisationSample, capabilities: IoCapabilities, *, slowed: int, refused: int
) -> dict[str, float]:
    """Return every number that is known; those of a device that cannot be watched are left out."""
    metrics: dict[str, float] = {
        "queue_depth": gate.depth,
        "running": gate.running,
        "waiting": sum(gate.waiting.values()),
        "slowed_by_quota": slowed,
        "refused_by_quota": refused,
        "io_uring": float(capabilities.io_uring.available),
        "direct_io": float(capabilities.direct_io.available),
    }
    for priority, waiting in gate.waiting.items():
        metrics[f"waiting_{priority.value}"] = waiting
        metrics[f"requests_{priority.value}"] = gate.begun[priority]
        metrics[f"bytes_{priority.value}"] = gate.nbytes[priority]
    if sample.reading is not None:
        metrics |= {
            "disk_utilisation": sample.reading.smoothed,
            "disk_queue_length": sample.reading.queue_length,
            "disk_await_ms": sample.reading.await_ms,
            "disk_read_bytes_per_s": sample.reading.read_bytes_per_s,
            "disk_written_bytes_per_s": sample.reading.written_bytes_per_s,
        }
    if sample.stalled is not None:
        metrics["io_stalled"] = sample.stalled
    return metrics
