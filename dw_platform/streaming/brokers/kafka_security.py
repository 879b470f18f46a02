"""Signing in at a Kafka server and talking to it in secret, by the client library's own settings.

Known here are TLS with files, and SASL by PLAIN and SCRAM. `Security.of` returns None for anything else, and fetching
then goes through the client library, which knows the rest.
"""

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

_PROTOCOLS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_KNOWN = {
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location",
    "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}  # fmt: skip


class SignInError(Exception):
    """The server does not let us in, or is not who it says it is."""


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is protected and who uses it."""

    tls: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> "Security | None":
        """Return what the settings ask for; None if that is more than is known here."""
        special = {
            name for name in chosen if name.startswith(("ssl.", "sasl.", "security.", "enable.ssl", "enable.sasl"))
        }
        protocol = str(chosen.get("security.protocol", "PLAINTEXT")).upper()
        mechanism = str(chosen.get("sasl.mechanisms", chosen.get("sasl.mechanism", "GSSAPI"))).upper()
        signs_in = protocol.startswith("SASL")
        if special - _KNOWN or protocol not in _PROTOCOLS or (signs_in and mechanism not in {"PLAIN", *_SCRAM}):
            return None
        return cls(
            tls=protocol.endswith("SSL"),
            mechanism=mechanism if signs_in else None,
            username=str(chosen.get("sasl.username", "")),
            password=str(chosen.get("sasl.password", "")),
            settings={name: str(chosen[name]) for name in special},
        )

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings; certificates are verified and names compared unless the settings say otherwise."""
        context = ssl.create_default_context(cafile=self.settings.get("ssl.ca.location"))
        if self.settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if self.settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate := self.settings.get("ssl.certificate.location"):
            key, password = self.settings.get("ssl.key.location"), self.settings.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
        return context

    def steps(self) -> Generator[bytes, bytes, None]:
        """Yield what to send in each step of signing in; the server's answer is sent in."""
        if self.mechanism == "PLAIN":
            yield f"\0{self.username}\0{self.password}".encode()
        elif self.mechanism is not None:
            yield from self._scram(_SCRAM[self.mechanism])

    def _scram(self, digest: str) -> Generator[bytes, bytes, None]:
        """Prove that the password is known without sending it, and that the server knows it, too (RFC 5802)."""
        nonce, name = secrets.token_hex(16), self.username.replace("=", "=3D").replace(",", "=2C")
        opening = f"n={name},r={nonce}"
        challenge = (yield f"n,,{opening}".encode()).decode()
        fields = _fields(challenge)
        if not fields.get("r", "").startswith(nonce):
            raise SignInError("the server answered somebody else")
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        closing = f"c=biws,r={fields['r']}"
        spoken = f"{opening},{challenge},{closing}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), spoken, digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        verdict = _fields((yield f"{closing},p={base64.b64encode(proof).decode()}".encode()).decode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), spoken, digest)
        if not hmac.compare_digest(base64.b64decode(verdict.get("v", "")), expected):
            raise SignInError(verdict.get("e", "the server does not know the password"))


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
