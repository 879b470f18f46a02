"""The keys of an encrypted repository, all derived from the one secret that its owner keeps.

    secret --scrypt with the repository's salt--> master --HMAC with a label--> one key for each purpose

One purpose, one key: contents, names of objects and checks of documents cannot be played off against each other.
The secret may be a phrase, so scrypt makes guessing it expensive: a tenth of a second and 32 MiB for each try.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Self

from dw_platform.foundation import InvalidValueError

SALT_BYTES = 16
KEY_ID_BYTES = 8
_KEY_BYTES = 32
# What OWASP recommends for scrypt is of this order; a repository is opened rarely.
_SCRYPT_N, _SCRYPT_R = 2**15, 8
# Below this, a phrase is found by trying, whatever the derivation costs.
_SHORTEST_SECRET = 12


@dataclass(frozen=True, slots=True)
class RepositoryKeys:
    """The derived keys; picklable for tasks, shown by nothing but their id."""

    id: bytes
    """Tells keys apart; says nothing about them."""

    contents: bytes = field(repr=False)
    names: bytes = field(repr=False)
    documents: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: str, salt: bytes) -> Self:
        """Return the keys that `secret` gives with a repository's salt."""
        if len(secret) < _SHORTEST_SECRET:
            raise InvalidValueError("key", "(hidden)", f"at least {_SHORTEST_SECRET} characters; longer is better")
        master = hashlib.scrypt(
            secret.encode(), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=256 * _SCRYPT_N * _SCRYPT_R
        )
        named = {
            name: hmac.digest(master, name.encode(), "sha256") for name in ("id", "contents", "names", "documents")
        }
        return cls(named["id"][:KEY_ID_BYTES], named["contents"], named["names"], named["documents"])

    def name_of(self, sha256: str) -> str:
        """Return the name that an object with this content has, which says nothing about the content."""
        return hmac.new(self.names, bytes.fromhex(sha256), hashlib.sha256).hexdigest()

    def content_key(self, salt: bytes) -> bytes:
        """Return the key of one object: with a key of its own, its nonces may simply count."""
        return hmac.digest(self.contents, salt, "sha256")[:_KEY_BYTES]

    def check_of(self, document: bytes) -> str:
        """Return what only an owner of the key can put beside a document."""
        return hmac.new(self.documents, document, hashlib.sha256).hexdigest()


def new_salt() -> bytes:
    """Return a salt for a new repository."""
    return secrets.token_bytes(SALT_BYTES)
