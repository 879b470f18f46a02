"""What has to fit together in brokers, streams, bus and gateway; rules.py says how rules work."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from dw_platform.config.problems import Place, Problem, path_text
from dw_platform.config.references import producers
from dw_platform.config.sources import BrokerSection, StreamSection
from dw_platform.config.walk import entries, shown, text_at

# Added to the columns of every stream, so that each row says which message it was.
POSITION_COLUMNS = ("_partition", "_offset", "_timestamp")
# What a topic has once, however many streams read it.
_OF_THE_TOPIC = ("partitions", "key", "durable", "max_record", "compacted", "retention", "fsync", "backpressure")


def _brokers(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, broker in [*entries(values, "broker"), *entries(values, "streams", "*", "broker")]:
        kind = text_at(broker.get("kind", "embedded"))
        if kind in {"kafka", "pulsar", "nats", "rabbitmq"} and "address" not in broker:
            yield Problem(place=(*place, "address"), message=f"is needed for {kind}", allowed="HOST:PORT or a URL")
        if kind == "embedded" and "address" in broker:
            message = "does not belong to the embedded broker, which runs in this process"
            yield Problem(place=(*place, "address"), message=message, allowed="another kind, or no address")


def _columns(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, stream in entries(values, "streams", "*"):
        here, form, columns = (*place, "columns"), stream.get("format", "raw"), stream.get("columns")
        if form == "json" and not columns:
            yield Problem(place=here, message="is needed for json", allowed="fields and their types")
        if form == "raw" and columns:
            yield Problem(place=here, message="does not belong to raw", allowed="format: json")
        if isinstance(columns, Mapping):
            yield from _column_names(here, list(columns))


def _column_names(place: Place, names: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with the names; to Delta, names that differ in case only are the same."""
    first: dict[str, str] = {}
    for name in names:
        if name.lower() in POSITION_COLUMNS:
            message = "is where the platform writes which message a row was"
            yield Problem(place=(*place, name), message=message, allowed="any name but " + ", ".join(POSITION_COLUMNS))
        elif name.lower() in first:
            message = f"differs from {first[name.lower()]} in upper and lower case only"
            yield Problem(place=(*place, name), message=message, allowed="names that differ otherwise")
        first.setdefault(name.lower(), name)


def _durability(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, stream in entries(values, "streams", "*"):
        if not _is(stream.get("durable", True), default=True):
            continue
        if stream.get("backpressure") == "drop_oldest":
            message = "cannot be drop_oldest on a durable stream, whose acknowledged messages are never dropped"
            allowed = "block, shed_load, degrade or adaptive; or durable: false"
            yield Problem(place=(*place, "backpressure"), message=message, allowed=allowed)
        for here, fsync in entries(stream, "fsync"):
            if text_at(fsync.get("mode")) == "never":
                message = "cannot be never on a durable stream: a crash of the machine would take what was acknowledged"
                allowed = "always, interval or messages; or durable: false"
                yield Problem(place=(*place, *here, "mode"), message=message, allowed=allowed)


def _shared_topics(values: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, tuple[Place, StreamSection, BrokerSection]] = {}
    platform = next((broker for _, broker in entries(values, "broker")), {})
    for place, written in entries(values, "streams", "*"):
        try:
            stream = StreamSection.model_validate(written)
            broker = stream.broker or BrokerSection.model_validate(platform)
        except ValidationError:
            continue
        other, known, at = first.setdefault(stream.topic_name, (place, stream, broker))
        if broker != at:
            message = f"names a topic that {path_text(other)} has at another broker; publishers say the topic only"
            here = (*place, "topic") if "topic" in written else place
            yield Problem(place=here, message=message, allowed="a topic of another name")
            continue
        for key in _OF_THE_TOPIC:
            if getattr(stream, key) != getattr(known, key):
                here = (*place, key) if key in written else place
                message = f"shares its topic with {path_text(other)}, which differs in {key}"
                yield Problem(place=here, message=message, allowed=f"the same {key}, or a topic of its own")


def _rejected_tables(values: Mapping[str, Any]) -> Iterator[Problem]:
    rejected = {
        f"{table}_rejected": place
        for place, stream in entries(values, "streams", "*")
        if stream.get("format") == "json" and (table := text_at(stream.get("table")))
    }
    for place, table in producers(values):
        if (stream := rejected.get(text_at(table) or "")) is not None:
            message = f"{shown(table)} is where the unreadable messages of {path_text(stream)} go"
            yield Problem(place=place, message=message, allowed="a name of its own")


def _bus(values: Mapping[str, Any]) -> Iterator[Problem]:
    streams = {
        topic: place
        for place, stream in entries(values, "streams", "*")
        if (topic := text_at(stream.get("topic") or stream.get("name")))
    }
    for place, entry in entries(values, "bus", "topics", "*"):
        if _is(entry.get("hot")) and _is(entry.get("durable")):
            message = "does not go with durable: readers of a durable topic wait for its log, not for a ring"
            yield Problem(place=(*place, "hot"), message=message, allowed="one of hot and durable")
        if (used := streams.get(text_at(entry.get("name")) or "")) is not None:
            message = f"{shown(entry['name'])} is already the topic of {path_text(used)}"
            yield Problem(place=(*place, "name"), message=message, allowed="a name that no stream uses")


def _open_gateway(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, gateway in entries(values, "gateway"):
        host = text_at(gateway.get("host"))
        if host and not _is_loopback(host) and not _is(gateway.get("require_keys")):
            message = "lets other machines in, so callers have to show who they are"
            allowed = "require_keys: true, or a loopback address such as 127.0.0.1"
            yield Problem(place=(*place, "host"), message=message, allowed=allowed)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is(switch: Any, *, default: bool = False) -> bool:
    """Return how a switch stands, whichever way it is written; one that is no switch is left to the models."""
    if isinstance(switch, str):
        return switch.lower() == "true"
    return default if switch is None else switch is True


STREAM_RULES: tuple[Callable[[Mapping[str, Any]], Iterator[Problem]], ...] = (
    _brokers,
    _columns,
    _durability,
    _shared_topics,
    _rejected_tables,
    _bus,
    _open_gateway,
)
"""Each takes the document's values and yields what is wrong."""
