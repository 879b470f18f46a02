"""Continuation tokens: where a sequence of pages goes on, in a form that a client can keep but not make.

    version 1 | key id 8 | JSON | HMAC-SHA-256 32        written as base64url without padding
    JSON: [issued, expires, five digests of 12 characters, position, upper bound, offset, total, is an estimate]

The signature covers all that stands before it and is checked before anything is parsed. A token belongs to one
request: source, table, filter and order are bound to it one by one, so that a refusal can name what differs, and so
are the table's columns. The size of a page is not. A token grants nothing: who may read is decided elsewhere.

Text that is not exactly what was given out is refused; it never means "from the beginning".
"""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from dw_platform.extract.errors import (
    TokenError,
    TokenExpiredError,
    TokenForgedError,
    TokenForOtherRequestError,
    TokenMalformedError,
    TokenOutdatedError,
)
from dw_platform.extract.key_column import Position
from dw_platform.extract.keyring import KEY_ID_BYTES, SIGNATURE_BYTES, TokenKeyring

VERSION = 1
# Twice the longest keys that databases index, with room for JSON's escapes; a longer text is not even decoded.
MAX_TOKEN_CHARACTERS = 64 * 1024
_ALPHABET = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = 1 + KEY_ID_BYTES
_DIGEST = 12


class TokenTooLargeError(TokenError):
    """The key of a row is too long to travel in a token."""

    def __init__(self, characters: int) -> None:
        self.characters = characters
        super().__init__(
            f"the key of the page's last row makes a continuation token of {characters:,} characters, and at most "
            f"{MAX_TOKEN_CHARACTERS:,} are allowed. Order by columns with shorter values."
        )


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """Digests of the request that a token continues."""

    source: str
    table: str
    filter: str
    order: str
    schema: str

    @classmethod
    def of(cls, *, source: Any, table: Any, filter: Any, order: Any, schema: Any) -> "TokenBinding":  # noqa: A002
        """Return the binding of a request; its parts are told apart by their representation."""
        parts = {"source": source, "table": table, "filter": filter, "order": order, "schema": schema}
        return cls(**{name: _digest(name, part) for name, part in parts.items()})

    @classmethod
    def split(cls, digests: str) -> "TokenBinding":
        """Return the binding whose digests stand one after the other."""
        return cls(*(digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST)))


@dataclass(frozen=True, slots=True)
class ContinuationToken:
    """What a token says once it is proved."""

    binding: TokenBinding
    position: Position | None = None
    """Key of the last row given; None for pages by offset."""

    upto: Position | None = None
    """Key of the last row that belongs to the sequence, fixed with its first page."""

    offset: int = 0
    """Rows given so far, for pages by offset."""

    total_count: int | None = None
    total_is_estimate: bool = False


def encode_token(token: ContinuationToken, keyring: TokenKeyring) -> str:
    """Return the token as text, signed by the newest key and valid for the keyring's time."""
    key, now = keyring.newest(), keyring.now()
    times = int(now.timestamp()), int((now + keyring.ttl).timestamp())
    binding, *rest = astuple(token)
    said = [*times, "".join(binding), *rest]
    message = bytes([VERSION]) + key.id + json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    text = _written(message + key.sign(message))
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise TokenTooLargeError(len(text))
    return text


def decode_token(text: str, keyring: TokenKeyring) -> ContinuationToken:
    """Return what the token says; raise TokenMalformedError, TokenForgedError or TokenExpiredError."""
    raw = _read(text)
    if len(raw) <= _HEAD + SIGNATURE_BYTES:
        raise TokenMalformedError("it is too short")
    message, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    if message[0] != VERSION:
        raise TokenMalformedError(f"it has version {message[0]}, and this platform makes version {VERSION}")
    key = keyring.find(message[1:_HEAD])
    if key is None or not key.signed(message, signature):
        raise TokenForgedError
    _, expires, digests, position, upto, *rest = json.loads(message[_HEAD:])
    if expires <= keyring.now().timestamp():
        raise TokenExpiredError(f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M:%S} UTC")
    return ContinuationToken(TokenBinding.split(digests), _position(position), _position(upto), *rest)


def require_binding(token: ContinuationToken, expected: TokenBinding, *, source: str, table: str) -> None:
    """Raise TokenForOtherRequestError or TokenOutdatedError unless the token continues this very request."""
    wanted: tuple[Literal["source", "table", "filter", "order"], ...] = ("source", "table", "filter", "order")
    for name in wanted:
        if getattr(token.binding, name) != getattr(expected, name):
            raise TokenForOtherRequestError(name)
    if token.binding != expected:
        raise TokenOutdatedError(source, table)


def _digest(name: str, part: Any) -> str:
    # 72 bits: two requests of one client must not meet by chance, and forging is the signature's business.
    digest = hashlib.sha256(f"{name}\0{part!r}".encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).decode()[:_DIGEST]


def _position(listed: list[str | None] | None) -> Position | None:
    return None if listed is None else tuple(listed)


def _written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read(text: str) -> bytes:
    """Return the bytes of a token's text; every other spelling of the same bytes is refused as well."""
    if not text:
        raise TokenMalformedError("it is empty")
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise TokenMalformedError(f"it has {len(text):,} characters, at most {MAX_TOKEN_CHARACTERS:,} are allowed")
    if not _ALPHABET.fullmatch(text):
        raise TokenMalformedError("it has characters other than A-Z, a-z, 0-9, - and _")
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise TokenMalformedError("its length is impossible, so something is missing") from error
    if _written(raw) != text:
        raise TokenMalformedError("its last character cannot be right, so something is missing")
    return raw
