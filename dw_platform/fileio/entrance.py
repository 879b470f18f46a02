"""The way of one request to the device: its quota, then its turn."""

import threading
from datetime import timedelta
from types import TracebackType

from dw_platform.fileio.errors import FileIoClosedError, QuotaExceededError, SlotTimeoutError
from dw_platform.fileio.gate import Gate
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.priority import IoPriority
from dw_platform.fileio.quotas import Charge, QuotaLedger
from dw_platform.foundation import Clock


class Entrance:
    """Quotas in front of a gate; any thread may use it."""

    def __init__(self, gate: Gate, limits: IoLimits, *, clock: Clock) -> None:
        self.gate, self._clock = gate, clock
        self._ledger = QuotaLedger(limits, clock=clock)
        self._has_quotas = _has_quotas(limits)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.slowed = self.refused = 0
        """Requests that a quota made wait, and that it refused."""

    def enter(self, priority: IoPriority, nbytes: int, caller: str, timeout: timedelta | None) -> None:
        """Wait for the caller's quota and for a turn; followed by one `gate.leave()` unless it raises."""
        charge = self.pay(caller, nbytes)
        entered = False
        try:
            entered = self.gate.enter(priority, nbytes, None if timeout is None else timeout.total_seconds())
        finally:
            if not entered:
                self.refund(charge)
        if not entered:
            stats = self.gate.stats()
            raise SlotTimeoutError(caller, priority, timeout or timedelta(0), running=stats.running, depth=stats.depth)

    def pay(self, caller: str, nbytes: int) -> Charge | None:
        """Charge the caller's quota and wait as long as it says; None if there are no quotas."""
        if not self._has_quotas:
            return None
        try:
            charge = self._ledger.admit(caller, nbytes)
        except QuotaExceededError:
            with self._lock:
                self.refused += 1
            raise
        if charge.wait_s:
            with self._lock:
                self.slowed += 1
            self._wait(charge)
        return charge

    def refund(self, charge: Charge | None) -> None:
        """Take back the charge of a request that did not begin."""
        if charge is not None:
            self._ledger.refund(charge)

    def reconfigure(self, limits: IoLimits) -> None:
        """Judge by other quotas from now on."""
        self._ledger.reconfigure(limits)
        self._has_quotas = _has_quotas(limits)

    def close(self) -> None:
        """Refuse all that wait and all that come."""
        self._closed.set()
        self.gate.close()

    def _wait(self, charge: Charge) -> None:
        stopped = True
        try:
            stopped = self._clock.wait(self._closed, charge.wait_s)
        finally:
            if stopped:
                self.refund(charge)
        if stopped:
            raise FileIoClosedError


class Slot:
    """One request's time at the device, as a context; each is used once."""

    __slots__ = ("_caller", "_entrance", "_nbytes", "_priority", "_timeout")

    def __init__(
        self, entrance: Entrance, priority: IoPriority, nbytes: int, caller: str, timeout: timedelta | None
    ) -> None:
        self._entrance, self._priority, self._nbytes = entrance, priority, nbytes
        self._caller, self._timeout = caller, timeout

    def __enter__(self) -> None:
        self._entrance.enter(self._priority, self._nbytes, self._caller, self._timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entrance.gate.leave()


def _has_quotas(limits: IoLimits) -> bool:
    return limits.quota_bytes_per_hour is not None or limits.quota_requests_per_hour is not None
