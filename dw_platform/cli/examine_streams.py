"""What `dw doctor` finds about brokers, the platform's own log, topics of streams and the gateway."""

import importlib.util
import os
from collections.abc import Iterator

from dw_platform.cli.findings import Finding, Health, dialled, tried
from dw_platform.cli.up import PortInUseError, require_free_port
from dw_platform.config import BrokerSection, StreamSection
from dw_platform.foundation import PlatformError, UserError
from dw_platform.gateway.address import gateway_address
from dw_platform.gateway.settings import GatewaySettings, is_loopback
from dw_platform.log import Log, UnknownTopicError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.topics import PlatformBrokers
from dw_platform.streaming.settings import CLIENTS


class LogNotWritableError(UserError):
    """The folder of the platform's own log cannot be used."""

    def __init__(self, path: str, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path} cannot be written: {cause}. Publishing needs it; correct its owner, or set `home`.")


def examine_streams(platform: Platform) -> Iterator[Finding]:
    """Yield a finding for each broker, for the own log, each topic of a stream, and the gateway."""
    with PlatformBrokers(platform) as brokers:
        healthy = set[BrokerSection]()
        for section in brokers.sections():
            findings = [_broker(platform, section)]
            findings += [tried("log", lambda: _log(platform))] if section.kind == "embedded" else []
            healthy |= {section} if all(finding.health is Health.OK for finding in findings) else set()
            yield from findings
        for stream in platform.config.streams:
            if brokers.section_of(stream.topic_name) in healthy:
                yield _topic(platform, brokers, stream)
    if platform.config.gateway.enabled:
        yield _gateway(platform)


def _broker(platform: Platform, section: BrokerSection) -> Finding:
    users = [stream.name for stream in platform.config.streams if platform.config.broker_of(stream) == section]
    part = "broker" if section == platform.config.broker or not users else f"broker of {', '.join(users)}"
    if section.kind not in CLIENTS:
        known = " and ".join(CLIENTS)
        return Finding(part, Health.FAILED, f"{section.kind} is not supported by this version, which knows {known}")
    client = CLIENTS[section.kind]
    if client is None:
        return Finding(part, Health.OK, section.kind)
    if importlib.util.find_spec(client) is None:
        return Finding(part, Health.FAILED, f"{section.kind} needs: pip install 'dw-platform[{section.kind}]'")
    # The first of several servers is asked; its client finds the others.
    first = (section.address.get_secret_value() if section.address else "").split(",")[0]
    address = first if "://" in first else f"{section.kind}://{first}"
    return dialled(part, address, f"{section.kind} at {section.address}")


def _log(platform: Platform) -> str:
    folder = platform.home / "log"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise LogNotWritableError(str(folder), error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LogNotWritableError(str(folder), "permission denied")
    return str(folder)


def _topic(platform: Platform, brokers: PlatformBrokers, stream: StreamSection) -> Finding:
    part, topic = f"topic {stream.topic_name}", stream.topic_name
    try:
        broker = brokers.of(topic)
        found = broker.topic(topic).partitions
    except UnknownTopicError:
        return Finding(part, Health.OK, "not there yet; the first record makes it")
    except PlatformError as error:
        return Finding(part, Health.FAILED, str(error))
    if stream.partitions and found < stream.partitions:
        advice = f"`dw topics grow {topic} --partitions {stream.partitions}`"
        return Finding(part, Health.WARNING, f"has {found} partitions, the file says {stream.partitions}: {advice}")
    if broker.kind == "embedded" and Log(platform.config.log_directory).describe(topic).policy != stream.log_policy():
        advice = f"`dw topics show {topic}` shows them"
        return Finding(part, Health.WARNING, f"keeps the settings with which it was made, not the file's; {advice}")
    return Finding(part, Health.OK, f"{found} partitions")


def _gateway(platform: Platform) -> Finding:
    section = platform.config.gateway
    where = f"port {section.port} on {section.host}"
    try:
        GatewaySettings.of(platform.config).check()
        require_free_port(section.host, section.port, "gateway")
    except PortInUseError:
        runs = _running(platform)
        told = f"runs at {runs}" if runs else f"{where} is in use by something else; set `gateway.port` to another"
        return Finding("gateway", Health.OK if runs else Health.WARNING, told)
    except PlatformError as error:
        return Finding("gateway", Health.FAILED, str(error))
    if section.tls is None and not is_loopback(section.host):
        return Finding("gateway", Health.WARNING, f"{where} is free, but keys travel unencrypted without `gateway.tls`")
    return Finding("gateway", Health.OK, f"{where} is free")


def _running(platform: Platform) -> str | None:
    try:
        return gateway_address(platform.store)
    except PlatformError:  # the store has a finding of its own
        return None
