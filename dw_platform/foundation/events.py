"""In-process events: a subsystem announces a change, whoever cares listens.

A listener that raises is logged and skipped, because a broken observer must not stop the observed.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Event = TypeVar("Event")


class EventHub(Generic[Event]):
    """Delivers each event to every listener, in the order in which they subscribed, on the caller's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[Event], None]] = {}

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Add `listener` and return a function that removes it again; twice added, it is called twice."""
        ticket = object()
        with self._lock:
            self._listeners[ticket] = listener

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.pop(ticket, None)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Call every listener with `event`."""
        with self._lock:
            listeners = tuple(self._listeners.values())
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                log.exception("event listener failed", extra={"event": repr(event)})
