"""A process that is killed while it backs up and sweeps leaves a repository in which every backup restores."""

import random
import time
from datetime import timedelta
from pathlib import Path

import pytest

from dw_platform.backup import RetentionPolicy, expiry, prune, verify
from tests.backup.repository_kit import SECRET, now_clock, restored
from tests.backup.repository_rounds import contents_of, opened, work
from tests.store.workers import PROCESSES

pytestmark = pytest.mark.crash
ROUNDS = 10


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "encrypted"])
def test_every_published_backup_outlives_any_number_of_kills(tmp_path: Path, secret: str | None) -> None:
    chance, number, told = random.Random(7), 0, dict[str, int]()
    for _ in range(ROUNDS):
        receive, send = PROCESSES.Pipe(duplex=False)
        worker = PROCESSES.Process(target=work, args=(tmp_path, secret, number, send))
        worker.start()
        send.close()
        try:
            for _ in range(chance.randint(1, 3)):
                assert receive.poll(60), "no backup was published"
                number, backup_id = receive.recv()
                told[backup_id] = number
            # Any moment will do: the point is that it falls anywhere inside a backup or a sweep.
            time.sleep(chance.uniform(0, 0.06))
        finally:
            worker.kill()
            worker.join()
        with receive:
            while receive.poll():
                try:
                    number, backup_id = receive.recv()
                except EOFError:
                    break
                told[backup_id] = number
        number += 1
        repository = opened(tmp_path, now_clock(), secret)
        headers = repository.manifests.headers()
        assert headers.damaged == ()
        # The newest that was told is there; at most one more was published without being told.
        assert max(told) in {header.backup_id for header in headers.headers}
        for ref in repository.manifests.refs():
            content = restored(repository, ref)
            version = sum(path.startswith("_delta_log/") for path in content) - 1
            assert content == contents_of(version)
            assert version == told.get(ref.backup_id, version)
        assert verify(repository).broken == {}
    clock = now_clock()
    clock.advance(timedelta(days=40).total_seconds())
    repository = opened(tmp_path, clock, secret)
    plan = expiry(repository, RetentionPolicy(max_count=1))
    with repository.exclusive() as hold:
        prune(repository, plan.remove, hold)
    (ref,) = repository.manifests.refs()
    assert repository.objects.index() == repository.manifests.read(ref).objects()
    verify(repository)  # a kill may have prevented a twin
    assert verify(repository).healthy
    assert not list((tmp_path / "repo").rglob("*.tmp"))
