"""API keys: made, kept as hashes, checked, limited, taken back."""

from datetime import timedelta

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.gateway.errors import KeyRefusedError, KeyRequiredError, RightMissingError
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.keys import KEYS, KeyExistsError, UnknownKeyError, create_key, list_keys, revoke_key
from dw_platform.gateway.quota import TokenBucket
from dw_platform.store import MemoryStore, StoreUnavailableError
from tests.gateway.conftest import MakeWeb
from tests.gateway.web import Web


def ring_of(store: MemoryStore, clock: FakeClock, *, required: bool = True) -> KeyRing:
    ring = KeyRing(store, required=required, clock=clock)
    ring.poll()
    return ring


def test_the_store_knows_a_hash_and_never_the_key(store: MemoryStore, clock: FakeClock) -> None:
    record, key = create_key(store, "shop", clock=clock, topics=["orders.*"], quota=5, expires_in=timedelta(days=90))
    kept = store.get(KEYS + "shop")
    assert kept is not None
    assert key.rpartition(".")[2].encode() not in kept.value
    assert list_keys(store) == [record]
    assert len(key.rpartition(".")[2]) == 43, "32 bytes"


def test_a_key_counts_from_the_next_look_until_it_is_revoked_or_expires(store: MemoryStore, clock: FakeClock) -> None:
    ring = ring_of(store, clock)
    _, key = create_key(store, "shop", clock=clock, expires_in=timedelta(seconds=10))
    with pytest.raises(KeyRefusedError):
        ring.caller(key)
    ring.poll()
    assert ring.caller(key).name == "shop"
    clock.advance(9.9)
    assert ring.caller(key).name == "shop"
    clock.advance(0.1)
    with pytest.raises(KeyRefusedError):
        ring.caller(key)
    _, other = create_key(store, "other", clock=clock)
    ring.poll()
    assert ring.caller(other).name == "other"
    revoke_key(store, "other")
    ring.poll()
    with pytest.raises(KeyRefusedError):
        ring.caller(other)


@pytest.mark.parametrize("wrong", ["", "x", "dw.shop.", "dw.shop.AAAA", "dw..", "dw.nobody.AAAA", "dw.shop.a.b", "é"])
def test_other_texts_are_refused(store: MemoryStore, clock: FakeClock, wrong: str) -> None:
    create_key(store, "shop", clock=clock)
    with pytest.raises(KeyRefusedError):
        ring_of(store, clock).caller(wrong)


def test_a_key_made_again_under_its_name_is_another_one(store: MemoryStore, clock: FakeClock) -> None:
    _, old = create_key(store, "shop", clock=clock)
    with pytest.raises(KeyExistsError):
        create_key(store, "shop", clock=clock)
    revoke_key(store, "shop")
    _, new = create_key(store, "shop", clock=clock)
    ring = ring_of(store, clock)
    assert ring.caller(new).name == "shop"
    with pytest.raises(KeyRefusedError):
        ring.caller(old)
    with pytest.raises(UnknownKeyError):
        revoke_key(store, "nobody")


def test_rights_are_by_topic(store: MemoryStore, clock: FakeClock) -> None:
    _, key = create_key(store, "shop", clock=clock, topics=["orders.*", "clicks"], rights=["publish"])
    caller = ring_of(store, clock).caller(key)
    caller.require("publish", "orders.eu")
    caller.require("publish", "clicks")
    for right, topic in (("read", "clicks"), ("publish", "clicks2"), ("publish", "Orders.eu")):
        with pytest.raises(RightMissingError):
            caller.require(right, topic)


def test_a_damaged_record_is_no_key(store: MemoryStore, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    _, key = create_key(store, "shop", clock=clock)
    ring = ring_of(store, clock)
    store.put(KEYS + "shop", b"{}")
    ring.poll()
    with pytest.raises(KeyRefusedError):
        ring.caller(key)
    assert "does not count" in caplog.text


def test_an_outage_of_the_store_locks_nobody_out_but_a_start_without_it_fails(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = create_key(store, "shop", clock=clock)
    ring = ring_of(store, clock)

    def away(*_: object) -> None:
        raise StoreUnavailableError("memory://", "away")

    monkeypatch.setattr(store, "list_versions", away)
    ring.poll()
    assert ring.caller(key).name == "shop"
    with pytest.raises(StoreUnavailableError):
        KeyRing(store, required=True, clock=clock).start()


def test_without_a_key_only_an_open_gateway_lets_one_in(store: MemoryStore, clock: FakeClock) -> None:
    assert ring_of(store, clock, required=False).caller(None).name == "anonymous"
    with pytest.raises(KeyRequiredError):
        ring_of(store, clock).caller(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a.b"},
        {"name": ""},
        {"topics": [""]},
        {"topics": []},
        {"rights": ["admin"]},
        {"rights": []},
        {"quota": 0.0},
        {"quota": float("nan")},
        {"expires_in": timedelta(0)},
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(store: MemoryStore, clock: FakeClock, wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"name": "shop"} | wrong
    with pytest.raises(InvalidValueError):
        create_key(store, str(arguments.pop("name")), clock=clock, **arguments)  # type: ignore[arg-type]
    assert list_keys(store) == []


def test_a_bucket_holds_a_second_and_large_batches_leave_a_debt(clock: FakeClock) -> None:
    bucket = TokenBucket(10, clock=clock)
    bucket.take(25)
    assert bucket.wait_s() == pytest.approx(1.6)
    clock.advance(1.6)
    assert bucket.wait_s() == 0
    clock.advance(100)
    bucket.take(10)
    assert bucket.wait_s() == pytest.approx(0.1), "what was not used in time is not saved up"
    bucket.take(-10)
    assert bucket.wait_s() == 0


def test_a_slow_rate_still_lets_single_records_through(clock: FakeClock) -> None:
    bucket = TokenBucket(0.5, clock=clock)
    assert bucket.wait_s() == 0
    bucket.take(1)
    assert bucket.wait_s() == pytest.approx(2)


def keyed(make_web: MakeWeb, store: MemoryStore, clock: FakeClock, **rules: object) -> tuple[Web, dict[str, str]]:
    _, key = create_key(store, "shop", clock=clock, **rules)  # type: ignore[arg-type]
    return make_web(require_keys=True), {"Authorization": f"Bearer {key}"}


def test_a_gateway_with_keys_asks_everybody_but_probes(make_web: MakeWeb, store: MemoryStore, clock: FakeClock) -> None:
    web, headers = keyed(make_web, store, clock)
    for path in ("/topics", "/topics/orders", "/metrics", "/topics/orders/partitions/0/records"):
        answer = web.get(path)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    for path in ("/health", "/ready", "/openapi.json"):
        assert web.get(path).status_code == 200
    assert web.post("/topics/orders/records", json={}, headers=headers).status_code == 200
    assert web.post("/topics/orders/records", json={}, headers={"X-Api-Key": headers["Authorization"][7:]}).is_success
    assert web.get("/topics/orders/partitions/0/records", headers=headers).json()["error"]["code"] == "right_missing"


def test_topics_that_a_key_may_not_use_are_not_shown(make_web: MakeWeb, store: MemoryStore, clock: FakeClock) -> None:
    web, headers = keyed(make_web, store, clock, topics=["clicks"], rights=["read"])
    assert [each["name"] for each in web.get("/topics", headers=headers).json()["topics"]] == ["clicks"]
    assert web.get("/topics/orders", headers=headers).status_code == 403
    assert web.get("/topics/clicks", headers=headers).status_code == 200


def test_a_quota_is_a_429_with_the_time_to_wait(make_web: MakeWeb, store: MemoryStore, clock: FakeClock) -> None:
    web, headers = keyed(make_web, store, clock, quota=10)
    url = "/topics/orders/records"
    assert web.post(url, json=[{}] * 25, headers=headers).status_code == 200
    answer = web.post(url, json={}, headers=headers)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert answer.json()["error"] == {
        "code": "quota_exceeded",
        "message": "This key may publish 10 records/s. Go on in 1.6 s.",
        "records_per_s": 10.0,
        "retry_after_s": 1.6,
    }
    clock.advance(1.6)
    assert web.post(url, json={}, headers=headers).status_code == 200


def test_what_was_not_published_does_not_count_against_the_quota(
    make_web: MakeWeb, store: MemoryStore, clock: FakeClock
) -> None:
    web, headers = keyed(make_web, store, clock, quota=2)
    for _ in range(5):
        stamped = headers | {"X-Producer-Id": "p", "X-Sequence": "9"}
        assert web.post("/topics/orders/records", json=[{}, {}], headers=stamped).status_code == 409
    assert web.post("/topics/orders/records", json=[{}, {}], headers=headers).status_code == 200
