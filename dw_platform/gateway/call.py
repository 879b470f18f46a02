"""One request as handlers see it: headers, parameters, and a body that is read once and within limits."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from dw_platform.gateway.admission import Receive, Visit
from dw_platform.gateway.errors import InvalidParameterError
from dw_platform.log import InvalidNameError, check_name
from dw_platform.streaming.publishing import ProducerStamp

NAMES = "up to 200 letters, digits, '.', '_' and '-', beginning with a letter or digit"
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)


class Call:
    """Made anew for each request."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, visit: Visit) -> None:
        self.params: Mapping[str, str] = scope.get("path_params", {})
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._scope, self._receive, self._visit = scope, receive, visit

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in small letters; of several the last."""
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1").strip()

    @cached_property
    def query(self) -> dict[str, str]:
        """The query's parameters; of several of one name the last."""
        text: bytes = self._scope["query_string"]
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}

    def whole_number(self, name: str, *, default: int | None, most: int, least: int = 0) -> int:
        """Return a number of the query; raise InvalidParameterError for what is not one, or missing without default."""
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise InvalidParameterError(name, f"a whole number from {least} to {most}")
        return int(text)

    def partition(self) -> int:
        """Return the partition of the path."""
        text = self.params["partition"]
        if not _WHOLE.fullmatch(text) or int(text) > 2**31:
            raise InvalidParameterError("partition", "a whole number")
        return int(text)

    def key(self) -> str | None:
        """Return the API key that the caller shows, or None."""
        shown = self.header(b"authorization")
        if shown is not None:
            scheme, _, key = shown.partition(" ")
            # Another scheme is a key that nobody has, and is refused as such.
            return key.strip() if scheme.lower() == "bearer" else ""
        return self.header(b"x-api-key")

    def stamp(self) -> ProducerStamp | None:
        """Return the stamp of an idempotent producer, or None."""
        producer, sequence = self.header(b"x-producer-id"), self.header(b"x-sequence")
        if producer is None and sequence is None:
            return None
        try:
            name = check_name("producer", producer or "")
        except InvalidNameError as error:
            raise InvalidParameterError("X-Producer-Id", f"{NAMES}, with X-Sequence") from error
        if sequence is None or not _WHOLE.fullmatch(sequence):
            raise InvalidParameterError("X-Sequence", "0 for a producer's first batch, then one more with each")
        return ProducerStamp(name, int(sequence))

    def content_type(self) -> str:
        """Return the media type of the body, without parameters."""
        return (self.header(b"content-type") or "").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """Return the whole body."""
        return await self._visit.body(self._receive, self.header(b"content-length"))
