"""Which of several managers acts: one, found by compare-and-set and by watching whether a version moves.

The acting manager rewrites the key at each look. Another takes it over when the key has not moved for `patience_s` of
the other's own watched time, so nobody compares wall times (a `LeaseLock` does), and a clock that jumps changes
nothing. A holder stops acting by itself before that time is over, and finds a moved version when it comes back.
"""

import secrets
from datetime import datetime

from dw_platform.fabric.detector import WatchedTime
from dw_platform.fabric.records import MANAGER
from dw_platform.scaling import UndecodableRecordError
from dw_platform.scaling.encoding import decode_object, encode_object
from dw_platform.store import Entry, PersistentStore, StaleVersionError

# The holder gives up this much earlier than others take over.
_OWN_SHARE = 0.8


class Leadership:
    """One manager's part in the election; the caller passes its monotonic time."""

    def __init__(self, store: PersistentStore, name: str, *, now: float) -> None:
        self._store, self._name, self._token = store, name, secrets.token_hex(8)
        self._watch = WatchedTime(now)
        self._seen: tuple[int, float] | None = None
        self._held: tuple[int, float] | None = None
        self.term = 0
        """Grows each time that this manager begins to act, so that it does not go on with what it knew before."""

    def renew(self, now: float, at: datetime, *, patience_s: float, look_every_s: float) -> bool:
        """Return whether this manager acts from now on; what the store raises leaves it in doubt, so it does not."""
        self._held = None
        entry = self._store.get(MANAGER)
        # Several looks fit into the longest gap: one slow look is not a pause.
        self._watch, _ = self._watch.look(now, longest_gap_s=max(patience_s / 2, 2 * look_every_s))
        if entry is not None and not self._may_write(entry, patience_s):
            return False
        value = encode_object({"name": self._name, "token": self._token, "at": at.isoformat()})
        try:
            written = self._store.compare_and_set(MANAGER, value, expected=None if entry is None else entry.version)
        except StaleVersionError:
            return False
        self.term += entry is None or not self._wrote(entry)
        self._held = (written.version, now)
        return True

    def holds(self, now: float, *, patience_s: float) -> bool:
        """Return whether nobody else can have taken over yet; ask right before acting."""
        return self._held is not None and now - self._held[1] < patience_s * _OWN_SHARE

    def release(self) -> None:
        """Let another one act at once."""
        held, self._held = self._held, None
        if held is not None:
            self._store.delete(MANAGER, expected=held[0])

    def _may_write(self, entry: Entry, patience_s: float) -> bool:
        if self._wrote(entry):
            return True
        if self._seen is None or self._seen[0] != entry.version:
            self._seen = (entry.version, self._watch.seconds)
        return self._watch.seconds - self._seen[1] >= patience_s

    def _wrote(self, entry: Entry) -> bool:
        """Return whether this manager was the last to write, be it that the answer was lost."""
        try:
            return decode_object(entry, lambda content: bool(content["token"] == self._token))
        except UndecodableRecordError:
            return False  # it is taken over like that of a manager that died


def acting_manager(store: PersistentStore) -> str | None:
    """Return the name of the manager that acted last, for people."""
    entry = store.get(MANAGER)
    return None if entry is None else decode_object(entry, lambda content: str(content["name"]))
