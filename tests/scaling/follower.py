"""A long-lived process with one queue: prints each limit change that reaches it, until its input ends."""

import sys

from dw_platform.foundation import SystemClock
from dw_platform.scaling import ScalingRegistry
from dw_platform.store.open import open_store
from tests.scaling.sample_queue import QueueLimits, SampleQueue


class PrintingQueue(SampleQueue):
    def reconfigure_limits(self, limits: QueueLimits) -> None:
        super().reconfigure_limits(limits)
        print(f"partitions={limits.partitions}", flush=True)  # noqa: T201 - the test reads it


def main(store_url: str) -> None:
    clock = SystemClock()
    store = open_store(store_url)
    registry = ScalingRegistry(store, node="follower", clock=clock)
    registry.register(PrintingQueue(clock=clock))
    with registry:
        print("ready", flush=True)  # noqa: T201 - the test reads it
        sys.stdin.read()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
