"""What the pipeline of a stream should leave out, told across processes through the control store.

    dw://internal/streaming/directive/{topic}    {"skip_enrichment": true, "batch_factor": 4, ..., "at": "..."}

The process that measures the pressure writes it when it changes, and again every few seconds while it holds. One that
was not renewed is void: its writer died, and a pipeline must not stay degraded because of that.
"""

import json
from dataclasses import asdict, fields
from datetime import datetime, timedelta

from dw_platform.foundation import Clock, SystemClock
from dw_platform.store import PersistentStore, internal_key
from dw_platform.streaming.publishing import DegradationDirective

RENEW_EVERY_S = 10.0
_VOID_AFTER = timedelta(seconds=45)


def directive_key(topic: str) -> str:
    """Return where the directive of a topic is."""
    return internal_key("streaming", "directive", topic)


def current_directive(store: PersistentStore, topic: str, *, clock: Clock | None = None) -> DegradationDirective | None:
    """Return what the pipeline of `topic` should leave out now; None means nothing.

    A record that cannot be read counts as none, because doing everything is always right.
    """
    entry = store.get(directive_key(topic))
    if entry is None:
        return None
    try:
        content = json.loads(entry.value)
        if (clock or SystemClock()).now() - datetime.fromisoformat(content["at"]) > _VOID_AFTER:
            return None
        return DegradationDirective(**{item.name: content[item.name] for item in fields(DegradationDirective)})
    except (ValueError, KeyError, TypeError):
        return None


class DirectiveBoard:
    """Writes the directive of one topic when it changes and while it holds; used by one thread at a time."""

    def __init__(self, store: PersistentStore, topic: str, *, clock: Clock) -> None:
        self._store, self._key, self._clock = store, directive_key(topic), clock
        self._written: DegradationDirective | None = None
        self._renew_at = 0.0

    def show(self, directive: DegradationDirective | None) -> None:
        """Make the store say `directive`; raises what the store raises, and then tries again the next time."""
        if directive is None:
            if self._written is not None:
                self._store.delete(self._key)
            self._written = None
        elif directive != self._written or self._clock.monotonic() >= self._renew_at:
            content = asdict(directive) | {"at": self._clock.now().isoformat()}
            self._store.put(self._key, json.dumps(content).encode())
            self._written, self._renew_at = directive, self._clock.monotonic() + RENEW_EVERY_S
