"""The gateway is killed while idempotent producers publish and retry: everything acknowledged is there exactly once."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.gateway.processes import Gateway, running_gateway, values_in, write_platform

pytestmark = pytest.mark.crash
ROUNDS = 10
PRODUCERS = 4


class Producer:
    """Publishes batches under rising sequences; a batch without an answer is sent again until it has one."""

    def __init__(self, number: int) -> None:
        self.name, self._chance = f"producer-{number}", random.Random(number)
        self.sequence = 0
        self.acknowledged: list[bytes] = []
        self.duplicates = 0
        self._batch = self._next_batch()

    def _next_batch(self) -> list[bytes]:
        size = self._chance.randint(1, 5)
        return [
            json.dumps({"by": self.name, "batch": self.sequence, "n": n, "key": f"k{n}"}).encode() for n in range(size)
        ]

    def publish_until_gone(self, gateway: Gateway) -> None:
        """Publish one batch after the other until the gateway no longer answers."""
        connection = gateway.connection()
        try:
            while self._publish(connection):
                pass
        except (OSError, http.client.HTTPException):
            return  # killed; whether the batch is in the log is not known, and the next gateway is asked
        finally:
            connection.close()

    def _publish(self, connection: http.client.HTTPConnection) -> bool:
        headers = {"Content-Type": "application/x-ndjson", "X-Producer-Id": self.name}
        headers["X-Sequence"] = str(self.sequence)
        # By key, so that one batch goes to several partitions, of which a crash may leave only some.
        connection.request("POST", "/topics/orders/records?key_field=key", b"\n".join(self._batch), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        self.duplicates += answer["duplicate"]
        self.acknowledged += self._batch
        self.sequence += 1
        self._batch = self._next_batch()
        return True


def test_what_a_killed_gateway_acknowledged_is_in_the_log_exactly_once(tmp_path: Path) -> None:
    file, chance = write_platform(tmp_path), random.Random(7)
    producers = [Producer(number) for number in range(PRODUCERS)]
    for _ in range(ROUNDS):
        before = sum(producer.sequence for producer in producers)
        with running_gateway(file) as gateway:
            threads = [threading.Thread(target=each.publish_until_gone, args=(gateway,)) for each in producers]
            for thread in threads:
                thread.start()
            deadline, wanted = time.monotonic() + 60, before + chance.randint(5, 60)
            while sum(producer.sequence for producer in producers) < wanted:
                assert time.monotonic() < deadline, "the producers do not get on"
                time.sleep(0.001)
            # Any moment will do: the point is that it falls anywhere inside a publish.
            time.sleep(chance.uniform(0, 0.01))
            gateway.process.kill()
            for thread in threads:
                thread.join(60)
    found = Counter(values_in(file))
    promised = [value for producer in producers for value in producer.acknowledged]
    assert len(promised) == len(set(promised)) > ROUNDS
    assert all(found[value] == 1 for value in promised)
    # The one batch of each producer that was never answered may be there, too; nothing else is, and nothing twice.
    assert max(found.values()) == 1
    unanswered = {value for producer in producers for value in producer._batch}
    assert set(found) <= set(promised) | unanswered
