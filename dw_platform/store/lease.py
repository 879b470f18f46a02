"""A lease: the right to do something, alone or together with others, until a moment that can be postponed.

It guards what has no lock of its own, such as commits to a Delta table on S3 or a backup repository.

Tokens: each acquisition gets a higher `token` than all earlier ones on its key, also when the key was deleted in
between. A guarded resource that remembers the highest token it saw can refuse a holder that came back too late.

Time: whoever looks judges expiry by the clock of its own machine. The clocks of all machines must agree far
better than `ttl`: with a skew of s, a lease may be taken over up to s before its holder knows that it is over.
The holder itself counts a lease as lost after `ttl` without a successful renewal, by its wall clock and by its
monotonic one, whichever is first. Between `ensure_held` and the guarded action a process can still be paused for
longer than `ttl`; only the token, checked by the resource, covers that.

A lease cannot be upgraded: asking for EXCLUSIVE while holding SHARED waits for itself until the timeout.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, InvalidValueError, PlatformError, SystemClock, TransientError
from dw_platform.store.contract import Entry, PersistentStore, check_key
from dw_platform.store.errors import CorruptLeaseError, LeaseLostError, LeaseTimeoutError
from dw_platform.store.lease_state import Claim, LeaseMode, LeaseState, decode, encode
from dw_platform.store.update import update

log = logging.getLogger(__name__)

# How long a holder that died keeps others out. Renewal happens three times in it, so two in a row may fail.
DEFAULT_TTL = timedelta(seconds=30)
_RENEWALS_PER_TTL = 3
# How soon a waiter notices that the way is free; a poll is one read of a few hundred bytes.
_POLL_S = 0.1


class LeaseLock:
    """The leases on one key of a store; `owner` is the name that others read when they have to wait."""

    def __init__(
        self,
        store: PersistentStore,
        key: str,
        *,
        owner: str,
        ttl: timedelta = DEFAULT_TTL,
        renew: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """With `renew`, a thread renews each lease until its release; without, the holder calls `Lease.renew`."""
        check_key(key)
        if ttl <= timedelta(0):
            raise InvalidValueError("ttl", ttl, "above 0")
        self.key, self.owner, self.ttl, self.clock = key, owner, ttl, clock or SystemClock()
        self._store, self._renew = store, renew

    def acquire(self, mode: LeaseMode, *, timeout_s: float) -> "Lease":
        """Return a lease as soon as nobody is in the way; raise LeaseTimeoutError after `timeout_s`.

        With 0 it tries once and does not queue.
        """
        claim_id = secrets.token_hex(8)
        try:
            return self._wait_for(claim_id, mode, timeout_s)
        except BaseException:
            self.withdraw(claim_id)
            raise

    def change(self, transition: Callable[[LeaseState], LeaseState | None]) -> Entry | None:
        """Apply `transition` to what is stored, or nothing if it returns None."""

        def write(current: Entry | None) -> bytes | None:
            state = transition(self._decode(current))
            return None if state is None else encode(state)

        return update(self._store, self.key, write, clock=self.clock)

    def withdraw(self, claim_id: str) -> None:
        """Give up a claim, held or waiting; if the store does not answer, it ends by itself after `ttl`."""

        def leave(state: LeaseState) -> LeaseState | None:
            without = state.without(claim_id)
            return None if without == state else without

        try:
            self.change(leave)
        except PlatformError as error:
            log.warning("lease not released, it ends by itself", extra={"key": self.key, "reason": str(error)})

    def forget(self, is_dead: Callable[[str], bool]) -> bool:
        """Drop the claims of owners that are known to be dead, instead of waiting for their end; return if any were."""
        dropped = False

        def drop(state: LeaseState) -> LeaseState | None:
            nonlocal dropped
            left = state
            for claim in (*state.holders, *state.waiting):
                if is_dead(claim.owner):
                    left = left.without(claim.id)
            dropped = left != state
            return left if dropped else None

        self.change(drop)
        return dropped

    def _wait_for(self, claim_id: str, mode: LeaseMode, timeout_s: float) -> "Lease":
        deadline = self.clock.monotonic() + timeout_s
        while True:
            remaining_s = deadline - self.clock.monotonic()
            attempt = self._attempt(claim_id, mode, queue=remaining_s > 0)
            if isinstance(attempt, Lease):
                return attempt
            if remaining_s <= 0:
                raise LeaseTimeoutError(self.key, mode, timeout_s, tuple(map(str, attempt)))
            self.clock.wait(threading.Event(), min(_POLL_S, remaining_s))

    def _attempt(self, claim_id: str, mode: LeaseMode, *, queue: bool) -> "Lease | tuple[Claim, ...]":
        """Return the lease, or the claims in its way."""
        now, started = self.clock.now(), self.clock.monotonic()
        claim = Claim(claim_id, self.owner, mode, now + self.ttl)
        in_the_way: tuple[Claim, ...] = ()

        def enter(state: LeaseState) -> LeaseState | None:
            nonlocal in_the_way
            state = state.live(now)
            in_the_way = state.in_the_way_of(claim)
            if not in_the_way:
                return state.entered(claim)
            fresh = now + self.ttl * (_RENEWALS_PER_TTL - 1) / _RENEWALS_PER_TTL
            waits = any(waiter.id == claim_id and waiter.expires_at > fresh for waiter in state.waiting)
            return state.queued(claim) if queue and not waits else None

        entry = self.change(enter)
        if in_the_way or entry is None:
            return in_the_way
        return Lease(self, claim, token=entry.version, started=started, renew=self._renew)

    def _decode(self, entry: Entry | None) -> LeaseState:
        if entry is None:
            return LeaseState()
        try:
            return decode(entry.value)
        except ValueError as error:
            raise CorruptLeaseError(self.key, str(error)) from error


class Lease:
    """A lease that was acquired; leaving its `with` block releases it."""

    def __init__(self, lock: LeaseLock, claim: Claim, *, token: int, started: float, renew: bool) -> None:
        """Count the end from `started`, the monotonic time before the claim was written."""
        self.token, self.mode, self.owner, self.key = token, claim.mode, claim.owner, lock.key
        self._lock, self._claim = lock, claim
        self._ends = (claim.expires_at, started + lock.ttl.total_seconds())
        self._lost, self._released = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        if renew:
            self._thread = threading.Thread(target=self._keep, name=f"lease-{lock.key}", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    @property
    def lost(self) -> bool:
        """Whether somebody else may hold it now; once true, it stays true."""
        wall, monotonic = self._ends
        if self._lock.clock.now() >= wall or self._lock.clock.monotonic() >= monotonic:
            self._lost.set()
        return self._lost.is_set()

    def ensure_held(self) -> None:
        """Raise LeaseLostError if the lease is lost or released; call it right before the guarded action."""
        if self._released.is_set() or self.lost:
            raise LeaseLostError(self.key, self.owner, self.token)

    def renew(self) -> None:
        """Postpone the end to `ttl` from now; raise LeaseLostError if that is too late."""
        self.ensure_held()
        now, started = self._lock.clock.now(), self._lock.clock.monotonic()
        renewed = replace(self._claim, expires_at=now + self._lock.ttl)

        def extend(state: LeaseState) -> LeaseState:
            state = state.live(now)
            if state.holding(renewed.id) is None:
                self._lost.set()
                raise LeaseLostError(self.key, self.owner, self.token)
            return state.entered(renewed)

        self._lock.change(extend)
        self._ends = (renewed.expires_at, started + self._lock.ttl.total_seconds())

    def release(self) -> None:
        """Let others in; if the store does not answer they get in after `ttl`. Releasing twice is harmless."""
        if self._released.is_set():
            return
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        self._lock.withdraw(self._claim.id)

    def _keep(self) -> None:
        pause_s = self._lock.ttl.total_seconds() / _RENEWALS_PER_TTL
        while not self._lock.clock.wait(self._released, pause_s):
            try:
                self.renew()
            except LeaseLostError as error:
                log.error("lease lost", extra={"key": self.key, "reason": str(error)})  # noqa: TRY400 - no bug here
                return
            except TransientError as error:
                log.warning("lease not renewed yet", extra={"key": self.key, "reason": str(error)})
            except Exception:
                # The lease then ends by the clock, which its holder sees.
                log.exception("lease renewal failed", extra={"key": self.key})
