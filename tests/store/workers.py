"""What other processes do to a store in these tests.

They are forked from a server that has imported everything but never opened a store, so each opens it by its
address, as after `spawn`, without paying a second of imports each.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

from dw_platform.store import Entry, LeaseLock, LeaseMode, PersistentStore, internal_key, open_store, update

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "psycopg", "sqlalchemy.dialects.postgresql", "dw_platform.store.sql"])


def run_together(count: int, work: Callable[..., None], *arguments: Any, timeout_s: float = 120) -> None:
    """Run `work(barrier, number, *arguments)` in `count` processes; each must end without an error."""
    barrier = PROCESSES.Barrier(count)
    processes = [PROCESSES.Process(target=work, args=(barrier, number, *arguments)) for number in range(count)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout_s)
        assert [process.exitcode for process in processes] == [0] * count
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def add_one(entry: Entry | None) -> bytes:
    return str(1 + (int(entry.value) if entry else 0)).encode()


def increment(barrier: Barrier, _number: int, url: str, key: str, times: int) -> None:
    barrier.wait()
    store = open_store(url)
    count_up(store, key, times)
    store.close()


def count_up(store: PersistentStore, key: str, times: int) -> None:
    for _ in range(times):
        update(store, key, add_one, attempts=100_000)


def write_times(barrier: Barrier, _number: int, url: str, key: str, seen: Any, changes: int) -> None:
    """Write the time of writing, wait until the change was seen, and write again."""
    store = open_store(url)
    barrier.wait()
    for _ in range(changes):
        store.put(key, str(time.monotonic()).encode())
        assert seen.acquire(timeout=60)
    store.close()


def count_up_under_lease(barrier: Barrier, number: int, url: str, times: int) -> None:
    """Read and write in two steps, which only the lease makes safe; note the token of each turn."""
    store = open_store(url)
    lock = LeaseLock(store, internal_key("locks", "counter"), owner=f"worker {number}")
    barrier.wait()
    for _ in range(times):
        with lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=100) as lease:
            entry = store.get("counter")
            lease.ensure_held()
            store.put("counter", add_one(entry))
            store.put(f"turn/{lease.token:012}", b"")
    store.close()
