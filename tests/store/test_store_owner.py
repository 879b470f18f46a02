"""Who holds something, and whether that process still runs."""

import subprocess
import sys

import pytest

from dw_platform.foundation import FakeClock
from dw_platform.store import LeaseLock, LeaseMode, LeaseTimeoutError, MemoryStore
from dw_platform.store.owner import is_dead, process_owner


def owner_of_an_ended_process() -> str:
    program = "from dw_platform.store.owner import process_owner; print(process_owner())"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_a_process_that_runs_is_not_dead_and_one_that_ended_is() -> None:
    assert not is_dead(process_owner())
    assert is_dead(owner_of_an_ended_process())


def test_an_id_that_was_given_to_another_process_is_that_of_a_dead_one() -> None:
    host, pid, began = process_owner().rsplit("/", 2)
    assert is_dead(f"{host}/{pid}/{int(began) - 100}")


def test_nothing_is_said_about_other_machines_and_other_names() -> None:
    _, pid, began = process_owner().rsplit("/", 2)
    assert not is_dead(f"elsewhere/{pid}9/{began}")
    assert not any(map(is_dead, ("", "somebody", "a/b/c", "a/b", process_owner().rpartition("/")[0])))


def test_the_lease_of_a_dead_process_is_free_at_once_and_that_of_a_living_one_is_not() -> None:
    store, clock = MemoryStore(), FakeClock()
    LeaseLock(store, "k", owner=owner_of_an_ended_process(), renew=False, clock=clock).acquire(
        LeaseMode.EXCLUSIVE, timeout_s=0
    )
    mine = LeaseLock(store, "k", owner=process_owner(), renew=False, clock=clock)
    assert mine.forget(is_dead)
    lease = mine.acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
    assert not mine.forget(is_dead)
    other = LeaseLock(store, "k", owner="other", renew=False, clock=clock)
    with pytest.raises(LeaseTimeoutError) as refused:
        other.acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
    assert process_owner() in refused.value.holders[0]
    lease.ensure_held()
