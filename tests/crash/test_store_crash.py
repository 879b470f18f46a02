"""A writer that is killed, or runs out of space, leaves the old or the new value and never half of one."""

import random
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from dw_platform.store import (
    LeaseLock,
    LeaseMode,
    PersistentStore,
    StaleVersionError,
    StoreUnavailableError,
    open_store,
)
from tests.servers import postgres_server_url, postgres_url
from tests.store.workers import PROCESSES

__all__ = ["postgres_server_url", "postgres_url"]

pytestmark = pytest.mark.crash
ROUNDS = 12


@pytest.fixture(params=["file", "sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "file":
            return f"file://{tmp_path}/store"
        case "sqlite":
            return f"sqlite:///{tmp_path}/store.db"
        case _:
            return str(request.getfixturevalue("postgres_url"))


def value_of(number: int) -> bytes:
    """A value that shows which one it is, whole; the sizes differ, so a mixture of two would show as well."""
    return number.to_bytes(8, "big") + bytes([number % 251]) * (number * 7919 % 400_000)


def overwrite(url: str, acknowledged: Connection) -> None:
    store = open_store(url)
    entry = store.get("key")
    number = 1 if entry is None else int.from_bytes(entry.value[:8], "big") + 1
    while True:
        store.put("key", value_of(number))
        acknowledged.send(number)
        number += 1


def create_and_delete(url: str, acknowledged: Connection) -> None:
    store = open_store(url)
    while True:
        acknowledged.send(store.put("key", b"value").version)
        store.delete("key")


@contextmanager
def killed_writer(work: Any, url: str, seed: int) -> Iterator[list[int]]:
    """Let `work` acknowledge a few writes, kill it at a random moment, and give what it had acknowledged."""
    chance = random.Random(seed)
    receive, send = PROCESSES.Pipe(duplex=False)
    writer = PROCESSES.Process(target=work, args=(url, send))
    writer.start()
    send.close()
    acknowledged = []
    try:
        for _ in range(chance.randint(1, 8)):
            assert receive.poll(60), "the writer wrote nothing"
            acknowledged.append(receive.recv())
        # Any moment will do: the point is that it falls anywhere inside a write.
        time.sleep(chance.uniform(0, 0.01))
    finally:
        writer.kill()
        writer.join()
    with receive:
        while receive.poll():
            try:
                acknowledged.append(receive.recv())
            except EOFError:
                break
    yield acknowledged


def test_a_killed_writer_leaves_the_last_acknowledged_value_or_the_next(url: str) -> None:
    for seed in range(ROUNDS):
        with killed_writer(overwrite, url, seed) as acknowledged, closing(open_store(url)) as store:
            # A server may still be at the dead client's last request; this waits for it and changes nothing.
            with pytest.raises(StaleVersionError):
                store.compare_and_set("key", b"", expected=0)
            entry = store.get("key")
            assert entry is not None
            number = int.from_bytes(entry.value[:8], "big")
            assert number in {acknowledged[-1], acknowledged[-1] + 1}
            assert entry.value == value_of(number)
            assert entry.version == number
            assert store.list("") == [entry]
            assert store.compare_and_set("other", b"writable", expected=None)
            store.delete("other")


def test_a_writer_killed_while_deleting_brings_no_version_back(url: str) -> None:
    highest = 0
    for seed in range(ROUNDS):
        with killed_writer(create_and_delete, url, seed) as acknowledged, closing(open_store(url)) as store:
            assert acknowledged == sorted(set(acknowledged))
            assert acknowledged[0] > highest
            highest = store.put("key", b"mine").version
            assert highest > acknowledged[-1]
            store.delete("key")


def hold_lease(url: str, acknowledged: Connection) -> None:
    lock = LeaseLock(open_store(url), "lock", owner="victim", ttl=timedelta(seconds=1))
    acknowledged.send(lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=60).token)
    threading.Event().wait()


def test_the_lease_of_a_killed_holder_passes_on_with_a_higher_token(url: str) -> None:
    receive, send = PROCESSES.Pipe(duplex=False)
    holder = PROCESSES.Process(target=hold_lease, args=(url, send))
    holder.start()
    send.close()
    try:
        with receive:
            assert receive.poll(60)
            token = receive.recv()
    finally:
        holder.kill()
        holder.join()
    with closing(open_store(url)) as store:
        heir = LeaseLock(store, "lock", owner="heir")
        with heir.acquire(LeaseMode.EXCLUSIVE, timeout_s=60) as lease:
            assert lease.token > token


def write_beyond_the_limit(url: str, result: Connection) -> None:
    store = open_store(url)
    store.put("key", value_of(1))
    # A file size limit fails a write in the middle, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        store.put("key", b"x" * 2_000_000)
    except StoreUnavailableError as error:
        result.send(str(error))
    else:
        result.send("it was stored")
    after: PersistentStore = open_store(url)
    entry = after.get("key")
    result.send(entry is not None and entry.value == value_of(1))


@pytest.mark.parametrize("backing", ["file", "sqlite"])
def test_a_write_without_space_fails_and_keeps_the_old_value(backing: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store" if backing == "file" else f"sqlite:///{tmp_path}/store.db"
    receive, send = PROCESSES.Pipe(duplex=False)
    writer = PROCESSES.Process(target=write_beyond_the_limit, args=(url, send))
    writer.start()
    send.close()
    with receive:
        assert receive.poll(60)
        assert "free space" in receive.recv()
        assert receive.poll(60)
        assert receive.recv() is True
    writer.join(60)
    assert writer.exitcode == 0
    with closing(open_store(url)) as store:
        assert store.put("key", b"works again").version == 2
        assert not list(tmp_path.rglob("*.tmp"))
