"""Read, change, write back: the loop around compare-and-set, written once."""

import random
import threading
from collections.abc import Callable

from dw_platform.foundation import Clock, SystemClock
from dw_platform.store.contract import Entry, PersistentStore
from dw_platform.store.errors import StaleVersionError

_SYSTEM_CLOCK = SystemClock()
# A lost race costs one more read, so 200 are cheap; with the pauses below they last about 10 s.
DEFAULT_ATTEMPTS = 200
_LONGEST_PAUSE_S = 0.05


def update(
    store: PersistentStore,
    key: str,
    change: Callable[[Entry | None], bytes | None],
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    clock: Clock = _SYSTEM_CLOCK,
) -> Entry | None:
    """Replace the entry by what `change` makes of it, without losing anybody else's update; return what is stored.

    `change` may run several times and must only look at its argument. If it returns None, nothing is written.
    Raise StaleVersionError when others won every race.
    """
    lost = 0
    while True:
        current = store.get(key)
        value = change(current)
        if value is None:
            return current
        try:
            return store.compare_and_set(key, value, expected=None if current is None else current.version)
        except StaleVersionError:
            lost += 1
            if lost >= attempts:
                raise
            clock.wait(threading.Event(), _pause(lost))


def _pause(lost: int) -> float:
    """Return a random pause that grows with the crowd, so that many writers do not race in step."""
    return min(_LONGEST_PAUSE_S, 0.001 * 2.0 ** min(lost, 10)) * random.random()  # noqa: S311 - nothing secret
