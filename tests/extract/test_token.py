"""A token is taken exactly as it was given out, for exactly its request, or refused with its own error."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.extract.errors import (
    TokenError,
    TokenExpiredError,
    TokenForgedError,
    TokenForOtherRequestError,
    TokenMalformedError,
    TokenOutdatedError,
)
from dw_platform.extract.keyring import KEYS, CorruptTokenKeysError, TokenKeyring
from dw_platform.extract.token import (
    MAX_TOKEN_CHARACTERS,
    ContinuationToken,
    TokenBinding,
    TokenTooLargeError,
    decode_token,
    encode_token,
    require_binding,
)
from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.store import MemoryStore

BINDING = TokenBinding.of(source="shop", table="orders", filter=(), order=("id",), schema="abc")
TOKEN = ContinuationToken(BINDING, position=("5", None, "it's"), upto=("9", "x", "y"), total_count=7)
DAY_S = 86_400.0


def keyring(store: MemoryStore | None = None, clock: FakeClock | None = None, **settings: Any) -> TokenKeyring:
    return TokenKeyring(MemoryStore() if store is None else store, clock=clock or FakeClock(), **settings)


RING = keyring()
TEXT = encode_token(TOKEN, RING)


@given(
    position=st.none() | st.lists(st.none() | st.text(alphabet=st.characters(codec="utf-8"))).map(tuple),
    upto=st.none() | st.lists(st.none() | st.text(alphabet=st.characters(codec="utf-8"))).map(tuple),
    offset=st.integers(0, 2**63),
    total=st.none() | st.integers(0, 2**63),
    estimate=st.booleans(),
)
def test_a_token_says_what_it_was_made_of(
    position: Any, upto: Any, offset: int, total: int | None, *, estimate: bool
) -> None:
    token = ContinuationToken(BINDING, position, upto, offset, total, estimate)
    text = encode_token(token, RING)
    assert decode_token(text, RING) == token
    assert text.isascii()
    assert text.replace("-", "").replace("_", "").isalnum()


@given(at=st.integers(0, len(TEXT) - 1), character=st.characters(codec="ascii"))
def test_a_changed_character_is_refused(at: int, character: str) -> None:
    changed = TEXT[:at] + character + TEXT[at + 1 :]
    if changed != TEXT:
        with pytest.raises((TokenMalformedError, TokenForgedError)):
            decode_token(changed, RING)


@given(at=st.integers(0, len(base64.urlsafe_b64decode(TEXT + "==")) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(at: int, bit: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4)))
    raw[at] ^= 1 << bit
    with pytest.raises((TokenMalformedError, TokenForgedError)):
        decode_token(base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode(), RING)


def test_a_token_cut_off_anywhere_is_refused() -> None:
    for length in range(len(TEXT)):
        for part in (TEXT[:length], TEXT[len(TEXT) - length :]):
            with pytest.raises((TokenMalformedError, TokenForgedError)):
                decode_token(part, RING)


@given(cut=st.integers(0, len(TEXT)))
def test_parts_of_two_tokens_make_none(cut: int) -> None:
    other = encode_token(ContinuationToken(BINDING, position=("6",), upto=("9",)), RING)
    spliced = TEXT[:cut] + other[cut:]
    if spliced not in {TEXT, other}:
        with pytest.raises((TokenMalformedError, TokenForgedError)):
            decode_token(spliced, RING)


@given(text=st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")))
@settings(max_examples=300)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises((TokenMalformedError, TokenForgedError)):
        decode_token(text, RING)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("A" * (MAX_TOKEN_CHARACTERS + 1), "characters"),
        (TEXT + "=", "characters other than"),
        (TEXT + "\n", "characters other than"),
        (TEXT.replace(TEXT[5], "+", 1), "characters other than"),
        ("QUJD", "too short"),
        (base64.urlsafe_b64encode(b"\x02" + bytes(80)).rstrip(b"=").decode(), "version 2"),
    ],
)
def test_the_refusal_says_why_it_is_no_token(text: str, why: str) -> None:
    with pytest.raises(TokenMalformedError, match=why) as refused:
        decode_token(text, RING)
    assert "without a token" in str(refused.value)


def test_the_token_of_another_platform_is_forged() -> None:
    with pytest.raises(TokenForgedError):
        decode_token(encode_token(TOKEN, keyring()), RING)


def test_a_token_lives_for_the_configured_time() -> None:
    clock = FakeClock()
    ring = keyring(clock=clock, ttl=timedelta(hours=1))
    text = encode_token(TOKEN, ring)
    clock.advance(3599)
    assert decode_token(text, ring) == TOKEN
    clock.advance(1)
    with pytest.raises(TokenExpiredError, match="2026-01-01 01:00:00 UTC"):
        decode_token(text, ring)


def test_a_key_that_does_not_fit_is_refused_when_the_token_is_made() -> None:
    with pytest.raises(TokenTooLargeError, match="shorter values"):
        encode_token(ContinuationToken(BINDING, position=("x" * MAX_TOKEN_CHARACTERS,)), RING)


@pytest.mark.parametrize("differing", ["source", "table", "filter", "order"])
def test_a_token_for_another_request_names_what_differs(differing: str) -> None:
    facts: dict[str, Any] = {"source": "shop", "table": "orders", "filter": (), "order": ("id",), "schema": "abc"}
    require_binding(TOKEN, TokenBinding.of(**facts), source="shop", table="orders")
    with pytest.raises(TokenForOtherRequestError) as refused:
        require_binding(TOKEN, TokenBinding.of(**(facts | {differing: "other"})), source="shop", table="orders")
    assert refused.value.what == differing


def test_a_token_from_before_a_change_of_columns_is_outdated() -> None:
    changed = TokenBinding.of(source="shop", table="orders", filter=(), order=("id",), schema="abd")
    with pytest.raises(TokenOutdatedError):
        require_binding(TOKEN, changed, source="shop", table="orders")


def test_tokens_of_a_replaced_key_hold_until_they_expire() -> None:
    store, clock = MemoryStore(), FakeClock()
    ring = keyring(store, clock, ttl=timedelta(days=3))
    before = encode_token(TOKEN, ring)
    ring.rotate()
    after = encode_token(TOKEN, ring)
    assert before != after
    clock.advance(3 * DAY_S - 1)
    assert decode_token(before, ring) == decode_token(after, ring) == TOKEN
    clock.advance(1)
    with pytest.raises(TokenExpiredError):
        decode_token(before, ring)


def test_keys_are_replaced_by_age_and_dropped_when_nothing_needs_them() -> None:
    store, clock = MemoryStore(), FakeClock()
    ring = keyring(store, clock, ttl=timedelta(days=3), rotate_every=timedelta(days=30))
    first = ring.newest()
    clock.advance(29 * DAY_S)
    assert ring.newest() == first
    clock.advance(DAY_S)
    second = ring.newest()
    assert second != first
    clock.advance(30 * DAY_S)
    third = ring.newest()
    assert ring.find(first.id) is None
    assert ring.find(second.id) == second
    assert ring.find(third.id) == third


def test_processes_share_their_keys() -> None:
    store, clock = MemoryStore(), FakeClock()
    one, other = keyring(store, clock), keyring(store, clock)
    assert decode_token(encode_token(TOKEN, one), other) == TOKEN
    one.rotate()
    assert decode_token(encode_token(TOKEN, one), other) == TOKEN
    # The other one has not looked yet and signs with the key that was replaced.
    assert decode_token(encode_token(TOKEN, other), one) == TOKEN
    clock.advance(60)
    assert one.newest() == other.newest()


def test_keys_that_cannot_be_read_say_so() -> None:
    store = MemoryStore()
    for damage in (b"", b"{}", b'{"keys": [{"id": "zz"}]}', b"\xff"):
        store.put(KEYS, damage)
        with pytest.raises(CorruptTokenKeysError):
            keyring(store).newest()


def test_secrets_stay_out_of_representations() -> None:
    key = RING.newest()
    assert repr(key.secret) not in repr(key)
    assert key.secret.hex() not in repr(key)


def test_a_time_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        keyring(ttl=timedelta(0))


def test_every_refusal_is_a_token_error() -> None:
    for kind in (TokenMalformedError, TokenForgedError, TokenExpiredError, TokenTooLargeError, TokenOutdatedError):
        assert issubclass(kind, TokenError)
