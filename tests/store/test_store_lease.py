import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import Clock, FakeClock, InvalidValueError
from dw_platform.store import (
    CorruptLeaseError,
    Entry,
    Lease,
    LeaseLock,
    LeaseLostError,
    LeaseMode,
    LeaseTimeoutError,
    MemoryStore,
    PersistentStore,
    StoreUnavailableError,
)
from dw_platform.store.lease_state import Claim, LeaseState, decode, encode

SHARED, EXCLUSIVE = LeaseMode.SHARED, LeaseMode.EXCLUSIVE
KEY = "dw://internal/locks/orders"
TTL = timedelta(seconds=30)


class BusyClock(FakeClock):
    """A clock on which something happens during each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: list[Callable[[], object]] = []

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        if self.happens:
            self.happens.pop(0)()
        return super().wait(stop, seconds)


class SteppedClock(FakeClock):
    """A clock for a thread that waits on it until the test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = threading.Semaphore(0)

    def step(self, seconds: float) -> None:
        self.advance(seconds)
        self.steps.release()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        assert seconds == TTL.total_seconds() / 3
        while not stop.is_set():
            if self.steps.acquire(timeout=0.005):
                return False
        return True


class CountingStore(MemoryStore):
    """Counts conditional writes, and fails before or after them when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.fail_before = self.fail_after = 0

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        if self.fail_before:
            self.fail_before -= 1
            raise StoreUnavailableError("test://", "switched off")
        entry = super().compare_and_set(key, value, expected=expected)
        self.writes += 1
        if self.fail_after:
            self.fail_after -= 1
            raise StoreUnavailableError("test://", "the answer was lost")
        return entry


def lock(store: PersistentStore, owner: str, clock: Clock) -> LeaseLock:
    return LeaseLock(store, KEY, owner=owner, ttl=TTL, clock=clock, renew=False)


def take(store: PersistentStore, owner: str, mode: LeaseMode, clock: Clock, timeout_s: float = 0) -> Lease:
    return lock(store, owner, clock).acquire(mode, timeout_s=timeout_s)


def state(store: PersistentStore) -> LeaseState:
    entry = store.get(KEY)
    return LeaseState() if entry is None else decode(entry.value)


def test_an_exclusive_lease_keeps_everybody_else_out_and_names_its_holder() -> None:
    store, clock = MemoryStore(), FakeClock()
    with take(store, "backup on host-1", EXCLUSIVE, clock):
        for mode in (SHARED, EXCLUSIVE):
            with pytest.raises(LeaseTimeoutError, match="backup on host-1") as caught:
                take(store, "other", mode, clock, timeout_s=5)
            assert (caught.value.key, caught.value.mode, caught.value.timeout_s) == (KEY, mode, 5)
            assert caught.value.holders == ("backup on host-1 (exclusive until 2026-01-01 00:00:30 UTC)",)
    take(store, "other", EXCLUSIVE, clock).release()


def test_shared_leases_are_held_together_and_keep_an_exclusive_one_out() -> None:
    store, clock = MemoryStore(), FakeClock()
    first, second = take(store, "a", SHARED, clock), take(store, "b", SHARED, clock)
    with pytest.raises(LeaseTimeoutError) as caught:
        take(store, "c", EXCLUSIVE, clock)
    assert [holder.split()[0] for holder in caught.value.holders] == ["a", "b"]
    first.release()
    second.release()
    assert take(store, "c", EXCLUSIVE, clock).token > second.token > first.token


def test_a_waiting_exclusive_claim_stops_new_shared_ones() -> None:
    store, clock = MemoryStore(), BusyClock()
    reader = take(store, "reader", SHARED, clock)

    def try_to_enter() -> None:
        with pytest.raises(LeaseTimeoutError) as caught:
            take(store, "late reader", SHARED, clock)
        assert caught.value.holders[0].startswith("writer (exclusive")

    clock.happens = [try_to_enter, reader.release]
    with take(store, "writer", EXCLUSIVE, clock, timeout_s=10):
        assert [claim.owner for claim in state(store).holders] == ["writer"]


def test_a_waiting_shared_claim_is_not_overtaken_by_later_exclusive_ones() -> None:
    store, clock = MemoryStore(), BusyClock()
    writer = take(store, "writer", EXCLUSIVE, clock)

    def release_and_try_to_overtake() -> None:
        writer.release()
        with pytest.raises(LeaseTimeoutError) as caught:
            take(store, "next writer", EXCLUSIVE, clock)
        assert caught.value.holders[0].startswith("reader (shared")

    clock.happens = [release_and_try_to_overtake]
    take(store, "reader", SHARED, clock, timeout_s=10).release()


def test_a_timeout_leaves_nobody_in_the_queue() -> None:
    store, clock = MemoryStore(), FakeClock()
    with take(store, "holder", SHARED, clock):
        with pytest.raises(LeaseTimeoutError):
            take(store, "writer", EXCLUSIVE, clock, timeout_s=5)
        assert state(store).waiting == ()
        take(store, "reader", SHARED, clock).release()


def test_an_interrupted_wait_leaves_nobody_in_the_queue() -> None:
    store, clock = MemoryStore(), BusyClock()

    def interrupt() -> None:
        assert [claim.owner for claim in state(store).waiting] == ["writer"]
        raise KeyboardInterrupt

    clock.happens = [interrupt]
    with take(store, "holder", SHARED, clock):
        with pytest.raises(KeyboardInterrupt):
            take(store, "writer", EXCLUSIVE, clock, timeout_s=5)
        assert state(store).waiting == ()


def test_trying_without_a_timeout_writes_nothing() -> None:
    store, clock = CountingStore(), FakeClock()
    with take(store, "holder", SHARED, clock):
        with pytest.raises(LeaseTimeoutError):
            take(store, "writer", EXCLUSIVE, clock)
        assert store.writes == 1


def test_waiting_reads_often_and_writes_seldom() -> None:
    store, clock = CountingStore(), FakeClock()
    holder = take(store, "holder", EXCLUSIVE, clock)
    with pytest.raises(LeaseTimeoutError):
        take(store, "writer", EXCLUSIVE, clock, timeout_s=25)
    # The holder's entry, queueing, two refreshes of the place in the queue, leaving: 250 polls, 5 writes.
    assert store.writes == 5
    assert not holder.lost


def test_an_expired_holder_is_dropped_and_its_successor_has_a_higher_token() -> None:
    store, clock = MemoryStore(), FakeClock()
    dead = take(store, "dead", EXCLUSIVE, clock)
    clock.advance(29.9)
    with pytest.raises(LeaseTimeoutError):
        take(store, "heir", EXCLUSIVE, clock)
    assert not dead.lost
    clock.advance(0.1)
    heir = take(store, "heir", EXCLUSIVE, clock)
    assert heir.token > dead.token
    assert dead.lost
    for late in (dead.ensure_held, dead.renew):
        with pytest.raises(LeaseLostError) as caught:
            late()
        assert (caught.value.key, caught.value.owner, caught.value.token) == (KEY, "dead", dead.token)
    dead.release()
    heir.ensure_held()
    assert [claim.owner for claim in state(store).holders] == ["heir"]


def test_a_waiter_that_died_does_not_block_for_longer_than_its_time() -> None:
    store, clock = MemoryStore(), FakeClock()
    reader = take(store, "reader", SHARED, clock)
    dead = Claim("dead", "dead writer", EXCLUSIVE, clock.now() + TTL)
    store.put(KEY, encode(state(store).queued(dead)))
    clock.advance(20)
    reader.renew()
    with pytest.raises(LeaseTimeoutError):
        take(store, "next reader", SHARED, clock)
    clock.advance(10)
    take(store, "next reader", SHARED, clock).release()


def test_renewal_postpones_the_end() -> None:
    store, clock = MemoryStore(), FakeClock()
    lease = take(store, "holder", EXCLUSIVE, clock)
    for _ in range(5):
        clock.advance(20)
        lease.renew()
    clock.advance(29.9)
    assert not lease.lost
    lease.ensure_held()
    assert [claim.expires_at for claim in state(store).holders] == [clock.now() + timedelta(seconds=0.1)]


def test_a_lease_whose_claim_vanished_is_lost_at_the_next_renewal() -> None:
    store, clock = MemoryStore(), FakeClock()
    lease = take(store, "holder", EXCLUSIVE, clock)
    store.delete(KEY)
    assert not lease.lost
    with pytest.raises(LeaseLostError):
        lease.renew()
    assert lease.lost


def test_tokens_grow_even_when_the_key_was_deleted_in_between() -> None:
    store, clock = MemoryStore(), FakeClock()
    tokens = []
    for _ in range(3):
        lease = take(store, "holder", EXCLUSIVE, clock)
        lease.renew()
        tokens.append(lease.token)
        lease.release()
        store.delete(KEY)
    assert tokens == sorted(set(tokens))


def test_a_lost_lease_stays_lost_when_the_wall_clock_is_set_back() -> None:
    class Adjustable(FakeClock):
        shift = timedelta(0)

        def now(self) -> datetime:
            return super().now() + self.shift

    clock = Adjustable()
    lease = take(MemoryStore(), "holder", EXCLUSIVE, clock)
    clock.shift = timedelta(minutes=5)
    assert lease.lost
    clock.shift = timedelta(0)
    assert lease.lost


def test_a_wall_clock_set_back_does_not_lengthen_a_lease_for_its_holder() -> None:
    class SetBack(FakeClock):
        def now(self) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC)

    clock = SetBack()
    lease = take(MemoryStore(), "holder", EXCLUSIVE, clock)
    clock.advance(30)
    assert lease.lost


def test_an_outage_loses_the_lease_only_after_its_time() -> None:
    store, clock = CountingStore(), FakeClock()
    lease = take(store, "holder", EXCLUSIVE, clock)
    store.fail_before = 2
    for _ in range(2):
        clock.advance(10)
        with pytest.raises(StoreUnavailableError):
            lease.renew()
    assert not lease.lost
    lease.renew()
    clock.advance(29.9)
    assert not lease.lost


def test_a_lost_answer_leaves_no_holder_behind() -> None:
    store, clock = CountingStore(), FakeClock()
    store.fail_after = 1
    with pytest.raises(StoreUnavailableError):
        take(store, "unlucky", EXCLUSIVE, clock)
    take(store, "next", EXCLUSIVE, clock).release()


def test_a_release_that_does_not_reach_the_store_is_logged_and_ends_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = CountingStore(), FakeClock()
    lease = take(store, "holder", EXCLUSIVE, clock)
    store.fail_before = 1
    with caplog.at_level(logging.WARNING):
        lease.release()
        lease.release()
    assert caplog.messages == ["lease not released, it ends by itself"]
    clock.advance(30)
    take(store, "next", EXCLUSIVE, clock).release()


def test_a_released_lease_is_not_held() -> None:
    lease = take(MemoryStore(), "holder", EXCLUSIVE, FakeClock())
    with lease:
        lease.ensure_held()
    with pytest.raises(LeaseLostError):
        lease.ensure_held()


def test_an_error_inside_the_block_releases_the_lease() -> None:
    store, clock = MemoryStore(), FakeClock()
    with pytest.raises(ZeroDivisionError), take(store, "holder", EXCLUSIVE, clock):
        raise ZeroDivisionError
    take(store, "next", EXCLUSIVE, clock).release()


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"holders": [1], "waiting": []}', b"\xff"])
def test_a_key_that_holds_something_else_is_refused(value: bytes) -> None:
    store = MemoryStore()
    store.put(KEY, value)
    with pytest.raises(CorruptLeaseError, match="delete the key"):
        take(store, "holder", SHARED, FakeClock())


def test_a_lease_without_duration_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        LeaseLock(MemoryStore(), KEY, owner="x", ttl=timedelta(0))


def test_the_renewal_thread_keeps_a_lease_beyond_its_time() -> None:
    store, clock = MemoryStore(), SteppedClock()
    with LeaseLock(store, KEY, owner="holder", ttl=TTL, clock=clock).acquire(EXCLUSIVE, timeout_s=0) as lease:
        for _ in range(4):
            clock.step(10)
            wait_until(lambda: state(store).holders[0].expires_at == clock.now() + TTL)
            lease.ensure_held()
    assert state(store).holders == ()


def test_the_renewal_thread_goes_on_after_an_outage() -> None:
    store, clock = CountingStore(), SteppedClock()
    with LeaseLock(store, KEY, owner="holder", ttl=TTL, clock=clock).acquire(EXCLUSIVE, timeout_s=0) as lease:
        store.fail_before = 1
        clock.step(10)
        wait_until(lambda: store.fail_before == 0)
        clock.step(10)
        wait_until(lambda: state(store).holders[0].expires_at == clock.now() + TTL)
        lease.ensure_held()


def test_the_renewal_thread_notices_that_the_lease_was_taken_away(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = MemoryStore(), SteppedClock()
    with (
        caplog.at_level(logging.ERROR),
        LeaseLock(store, KEY, owner="holder", ttl=TTL, clock=clock).acquire(EXCLUSIVE, timeout_s=0) as lease,
    ):
        store.delete(KEY)
        assert not lease.lost
        clock.step(10)
        wait_until(lambda: "lease lost" in caplog.messages)
        assert lease.lost


MOMENTS = st.integers(0, 100).map(lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second))
CLAIMS = st.builds(
    Claim,
    id=st.sampled_from("abcdef"),
    owner=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    mode=st.sampled_from(LeaseMode),
    expires_at=MOMENTS,
)


@given(st.lists(CLAIMS, max_size=4), st.lists(CLAIMS, max_size=4))
def test_a_state_is_read_as_it_was_written(holders: list[Claim], waiting: list[Claim]) -> None:
    written = LeaseState(tuple(holders), tuple(waiting))
    assert decode(encode(written)) == written


@given(st.lists(st.tuples(st.sampled_from(["ask", "leave"]), CLAIMS), max_size=40), st.lists(MOMENTS, max_size=40))
def test_an_exclusive_holder_is_always_alone(steps: list[tuple[str, Claim]], moments: list[datetime]) -> None:
    current = LeaseState()
    for (step, claim), now in zip(steps, sorted(moments), strict=False):
        current = current.live(now)
        if step == "leave":
            current = current.without(claim.id)
        elif current.holding(claim.id) is None:
            may_enter = not current.in_the_way_of(claim)
            current = current.entered(claim) if may_enter else current.queued(claim)
        modes = [holder.mode for holder in current.holders]
        assert modes == [EXCLUSIVE] or EXCLUSIVE not in modes
        ids = [entry.id for entry in (*current.holders, *current.waiting)]
        assert len(ids) == len(set(ids))


def wait_until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen in time")
