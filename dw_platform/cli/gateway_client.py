"""Publishing through the gateway that runs, because it alone can write the platform's own log meanwhile.

Every batch carries the producer's id and a sequence number, so sending it again after a lost answer writes nothing
twice. Topics of the bus know no producers: after a lost answer nobody can tell, and the batch is not sent again.
"""

import http.client
import json
import ssl
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa

from dw_platform.foundation import PermanentError, TransientError, UserError
from dw_platform.log import Records
from dw_platform.streaming.publishing import PartitionReceipt

_ARROW = "application/vnd.apache.arrow.stream"
_TIMEOUT_S = 60.0
_AGAIN_S = 0.5
_BUSY = {408, 429, 503, 504}


class GatewayBusyError(TransientError):
    """The gateway took nothing of a batch for now, or did not answer; the same batch may be sent again."""

    def __init__(self, url: str, reason: str, retry_after_s: float) -> None:
        self.url, self.reason, self.retry_after_s = url, reason, retry_after_s
        super().__init__(f"The gateway at {url} did not take the records: {reason}")


class AnswerLostError(TransientError):
    """The connection broke before the answer, and this topic cannot tell a repeated batch from a new one."""

    def __init__(self, url: str, topic: str, reason: str) -> None:
        self.url, self.topic, self.reason = url, topic, reason
        super().__init__(
            f"The gateway at {url} did not answer: {reason}. {topic} is a topic of the bus, which would take the same "
            "batch twice, so it was not sent again; it may or may not have arrived."
        )


class GatewayRefusedError(PermanentError):
    """The gateway will not take the batch, however often it is sent."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        self.url, self.status, self.reason = url, status, reason
        super().__init__(f"The gateway at {url} refused the records ({status}): {reason}")


class KeyNeededError(UserError):
    """The gateway wants to know who publishes."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(
            f"The gateway at {url} wants an API key that may publish here: {reason} Set $DW_API_KEY or pass --api-key; "
            "`dw keys create` makes one."
        )


class GatewaySink:
    """Takes batches of one topic; one thread at a time uses it."""

    def __init__(
        self,
        topic: str,
        address: Callable[[], str | None],
        *,
        api_key: str | None = None,
        certificate: Path | None = None,
        stamped: bool = True,
    ) -> None:
        """`address` is asked before each connection, as a gateway may be started anew elsewhere.

        `certificate` is the platform's own: who shows it is the gateway, by whichever name it was called.
        """
        self._topic, self._address, self._api_key, self._certificate = topic, address, api_key, certificate
        self._producer = f"dw-publish-{uuid.uuid4().hex}" if stamped else None
        self._sequence = 0
        self._connection: http.client.HTTPConnection | None = None
        self.url = address() or ""

    @property
    def through(self) -> str:
        return f"the gateway at {self.url}"

    def publish(self, records: Records) -> tuple[PartitionReceipt, ...]:
        """Return once the gateway has acknowledged the batch; GatewayBusyError asks for the same batch again."""
        body = _body(records)
        try:
            connection = self._connected()
            connection.request("POST", f"/topics/{quote(self._topic, safe='')}/records", body, self._headers())
            response = connection.getresponse()
            status, text, retry = response.status, response.read(), response.getheader("Retry-After")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = str(error) or type(error).__name__
            if self._producer is None and not isinstance(error, ConnectionRefusedError):
                raise AnswerLostError(self.url, self._topic, reason) from error
            raise GatewayBusyError(self.url, reason, _AGAIN_S) from error
        answer = _decoded(text)
        if status not in {200, 202}:
            raise self._refusal(status, answer, retry)
        self._sequence += 1
        return tuple(
            PartitionReceipt(int(part["partition"]), int(part["base_offset"]), int(part["next_offset"]))
            for part in answer.get("partitions", [])
        )

    def close(self) -> None:
        """Let go of the connection; the next batch makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _refusal(self, status: int, answer: dict[str, Any], retry: str | None) -> Exception:
        told = answer.get("error", {})
        reason = str(told.get("message", f"it answered {status}"))
        if status in _BUSY:
            wait_s = told.get("retry_after_s", retry if retry and retry.isdigit() else _AGAIN_S)
            return GatewayBusyError(self.url, reason, float(wait_s))
        if status in {401, 403}:
            return KeyNeededError(self.url, reason)
        return GatewayRefusedError(self.url, status, reason)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": _ARROW}
        if self._producer is not None:
            headers |= {"X-Producer-Id": self._producer, "X-Sequence": str(self._sequence)}
        return headers | ({"Authorization": f"Bearer {self._api_key}"} if self._api_key else {})

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self.url = self._address() or self.url
            parts = urlsplit(self.url)
            host, port = parts.hostname or "127.0.0.1", parts.port
            if parts.scheme == "https":
                context = ssl.create_default_context(cafile=self._certificate)
                context.check_hostname = self._certificate is None
                self._connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        return self._connection


def _body(records: Records) -> bytes:
    """Return the records as an Arrow stream; always with keys, so that none is looked for in the values."""
    values = pa.array(records.values, pa.binary())
    keys = pa.nulls(len(values), pa.binary()) if records.keys is None else pa.array(records.keys, pa.binary())
    batch = pa.record_batch([values, keys], names=["value", "key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decoded(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # a proxy in between speaks for itself
        return {}
    return found if isinstance(found, dict) else {}
