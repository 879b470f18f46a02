"""How the gateway is run: frozen values, made from `platform.yaml` by `GatewaySettings.of`."""

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dw_platform.config import PlatformConfig
from dw_platform.foundation import UserError

_MIB = 1024 * 1024


class OpenToOthersError(UserError):
    """The gateway would take records from anybody who can reach this machine."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"The gateway would listen on {host} for everybody, without asking for a key. Set `gateway.require_keys: "
            "true` in platform.yaml and make keys with `dw keys create`, or listen on 127.0.0.1."
        )


class CertificateUnusableError(UserError):
    """HTTPS was asked for, but there is nothing to prove who we are."""

    def __init__(self, certificate: Path, key: Path, reason: str) -> None:
        self.certificate, self.key, self.reason = certificate, key, reason
        super().__init__(
            f"The certificate {certificate} and the key {key} cannot be used: {reason}. `gateway.tls` needs two files "
            "in PEM that belong together."
        )


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the gateway needs to know of a topic beyond what its broker says."""

    key_field: str | None = None
    """Top-level field whose value is a record's key, unless the request names another."""

    max_record_bytes: int = 8 * _MIB
    """Key, value and headers of one record together."""


_PLAIN = TopicRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes any free one."""

    require_keys: bool = False
    certificate: Path | None = None
    private_key: Path | None = None

    max_request_bytes: int = 8 * _MIB
    request_timeout_s: float = 30.0
    """From the first byte of a request to the last of its answer, with all waits under pressure."""

    head_timeout_s: float = 10.0
    """How long a client may take to send the head of a request."""

    max_requests: int = 512
    """Requests served at once; the next ones are told to come back."""

    max_buffered_bytes: int = 256 * _MIB
    """Bodies held at once, of all requests together: what many slow or large senders can cost at most."""

    stop_limit_s: float = 15.0
    """How long accepted requests may take to finish when the gateway stops."""

    topics: Mapping[str, TopicRules] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PlatformConfig, *, host: str | None = None, port: int | None = None) -> "GatewaySettings":
        """Return what the file says; `host` and `port` win over it."""
        section = config.gateway
        return cls(
            host=host or section.host,
            port=section.port if port is None else port,
            require_keys=section.require_keys,
            certificate=section.tls.certificate if section.tls else None,
            private_key=section.tls.key if section.tls else None,
            max_request_bytes=section.max_request,
            request_timeout_s=section.request_timeout.total_seconds(),
            topics={stream.topic_name: TopicRules(stream.key, stream.max_record) for stream in config.streams},
        )

    @property
    def scheme(self) -> str:
        """The first part of its address."""
        return "http" if self.certificate is None else "https"

    def rules(self, topic: str) -> TopicRules:
        """Return the rules of a topic, which may not be in the file."""
        return self.topics.get(topic, _PLAIN)

    def check(self) -> None:
        """Raise for settings that would leave the door open, or that cannot work."""
        if not self.require_keys and not is_loopback(self.host):
            raise OpenToOthersError(self.host)
        if self.certificate is not None and self.private_key is not None:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.private_key)
            except OSError as error:  # ssl.SSLError is one
                reason = error.strerror or type(error).__name__
                raise CertificateUnusableError(self.certificate, self.private_key, reason) from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address; a name counts as open, because it can change."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
