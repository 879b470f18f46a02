"""Warnings about refused requests: one line a second for each code, because a refused crowd would fill a disk."""

import logging

from dw_platform.foundation import Clock

log = logging.getLogger(__name__)

# What a caller gets wrong in its own records is its business; these may be an attack, an overload or an outage.
_WORTH_TELLING = frozenset({401, 403, 408, 413, 429, 503, 504})
_EVERY_S = 1.0


class Refusals:
    """Used by the event loop's thread only."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, code: str, route: str, status: int) -> None:
        """Log the refusal, or count it for the next line."""
        if status not in _WORTH_TELLING:
            return
        now = self._clock.monotonic()
        if now - self._told.get(code, -_EVERY_S) < _EVERY_S:
            self._untold[code] = self._untold.get(code, 0) + 1
            return
        self._told[code] = now
        more = self._untold.pop(code, 0)
        log.warning(
            "request refused: %s (%d) at %s, %d more since the last line",
            code, status, route, more,
            extra={"code": code, "route": route, "status": status, "more": more},
        )  # fmt: skip
