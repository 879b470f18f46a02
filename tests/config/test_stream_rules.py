"""What brokers, streams, bus and gateway may not say together, and that the file's bounds are the code's own."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from dw_platform.bus import BusLimits, TopicOptions
from dw_platform.config import ConfigError, PlatformConfig
from dw_platform.config.operations import BusPartitions, RingSize
from dw_platform.config.sources import Partitions, RecordSize, StreamSection
from dw_platform.config.values import TopicName
from dw_platform.foundation import InvalidValueError
from dw_platform.log import FsyncMode, InvalidNameError, LogPolicy, check_name
from dw_platform.log.topics import MOST_PARTITIONS

Parse = Callable[..., PlatformConfig]
Refuse = Callable[..., ConfigError]

STREAM = "name: a, table: b.c"
KAFKA = "{kind: kafka, address: 'k:1'}"
JSON = f"{STREAM}, format: json"


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("gateway: {host: 0.0.0.0}", "gateway.host", "allowed: require_keys: true, or a loopback address"),
        ("gateway: {host: '::'}", "gateway.host", "lets other machines in"),
        ("gateway: {host: example.org, require_keys: false}", "gateway.host", "lets other machines in"),
        ("gateway: {tls: {certificate: a.pem}}", "gateway.tls.key", "is missing; allowed: File with the private key"),
        ("gateway: {tls: {certificate: '', key: b}}", "gateway.tls.certificate", "allowed: a file"),
        ("bus: {ring_size: 1000}", "bus.ring_size", "cannot be 1000; allowed: a power of two from 2 to 16,777,216"),
        ("bus: {ring_size: 1}", "bus.ring_size", "a power of two from 2"),
        ("bus: {ring_size: 33_554_432}", "bus.ring_size", "a power of two from 2"),
        ("bus: {partitions: 1025}", "bus.partitions", "a whole number from 1 to 1,024"),
        ("bus: {topics: [{name: x, hot: true, durable: true}]}", "bus.topics[0].hot", "one of hot and durable"),
        ("bus: {topics: [{name: x}, {name: x}]}", "bus.topics[1].name", "x is already the name of bus.topics[0]"),
        ("bus: {topics: [{name: ../x}]}", "bus.topics[0].name", "up to 200 letters, digits"),
        (f"streams: [{{{STREAM}}}]\nbus: {{topics: [{{name: a}}]}}", "bus.topics[0].name", "the topic of streams[0]"),
        (
            f"streams: [{{{STREAM}, topic: t}}]\nbus: {{topics: [{{name: t}}]}}",
            "bus.topics[0].name",
            "t is already the topic of streams[0]; allowed: a name that no stream uses",
        ),
        (f"streams: [{{{STREAM}, topic: ../t}}]", "streams[0].topic", "up to 200 letters, digits, '.', '_' and '-'"),
        (f"streams: [{{{STREAM}, topic: .hidden}}]", "streams[0].topic", "first a letter or digit"),
        (
            f"streams: [{{{JSON}, columns: {{_offset: bigint}}}}]",
            "streams[0].columns._offset",
            "any name but _partition",
        ),
        (
            f"streams: [{{{JSON}, columns: {{_Timestamp: date}}}}]",
            "streams[0].columns._Timestamp",
            "which message a row",
        ),
        (
            f"streams: [{{{JSON}, columns: {{id: int, Id: int}}}}]",
            "streams[0].columns.Id",
            "differs from id in upper and lower case only",
        ),
        (
            f"streams: [{{{JSON}, columns: {{x: int}}}}, {{name: d, table: b.c_rejected}}]",
            "streams[1].table",
            "b.c_rejected is where the unreadable messages of streams[0] go",
        ),
        (
            f"lake: {{tables: [{{name: b.c_rejected, sql: SELECT 1}}]}}\nstreams: [{{{JSON}, columns: {{x: int}}}}]",
            "lake.tables[0].name",
            "is where the unreadable messages of streams[0] go",
        ),
        (
            f"streams: [{{{STREAM}, fsync: {{mode: never}}}}]",
            "streams[0].fsync.mode",
            "allowed: always, interval or messages; or durable: false",
        ),
        (f"streams: [{{{STREAM}, fsync: {{interval: 61s}}}}]", "streams[0].fsync.interval", "at most 1m"),
        (f"streams: [{{{STREAM}, max_record: 1GiB}}]", "streams[0].max_record", "at most 512MiB"),
        (f"streams: [{{{STREAM}, partitions: 10_001}}]", "streams[0].partitions", "a whole number from 1 to 10,000"),
        (f"streams: [{{{STREAM}, max_rejected: 101%}}]", "streams[0].max_rejected", "a share from 0 to 1"),
        (
            f"streams: [{{{STREAM}, topic: t}}, {{name: d, table: b.d, topic: t, partitions: 8}}]",
            "streams[1].partitions",
            "shares its topic with streams[0], which differs in partitions; allowed: the same partitions, or a topic",
        ),
        (
            f"streams: [{{{STREAM}, topic: t, retention: {{for: 2h}}}}, {{name: d, table: b.d, topic: t}}]",
            "streams[1]",
            "which differs in retention",
        ),
        (
            f"streams: [{{{STREAM}, topic: t}}, {{name: d, table: b.d, topic: t, broker: {KAFKA}}}]",
            "streams[1].topic",
            "names a topic that streams[0] has at another broker; publishers say the topic only",
        ),
    ],
)
def test_what_does_not_fit_is_answered_with_its_key_its_line_and_what_is_allowed(
    refuse: Refuse, text: str, path: str, words: str
) -> None:
    problems = {problem.path: str(problem) for problem in refuse(f"name: demo\n{text}").problems}
    assert words in problems[path]
    assert "(line " in problems[path]


@pytest.mark.parametrize(
    "text",
    [
        "gateway: {host: 0.0.0.0, require_keys: true}",
        "gateway: {host: '0.0.0.0', require_keys: '${YES}'}",
        "gateway: {host: 127.0.0.53}",
        "gateway: {host: '[::1]'}",
        "gateway: {host: localhost}",
        f"streams: [{{{STREAM}, fsync: {{mode: messages}}}}]",
        f"streams: [{{{STREAM}, durable: false, fsync: {{mode: never}}}}]",
        f"streams: [{{{STREAM}, fsync: {{mode: interval, interval: 1m}}}}]",
        f"streams: [{{{STREAM}, max_rejected: 0}}, {{name: d, table: b.c_rejected}}]",
        # One day, written twice.
        f"streams: [{{{STREAM}, topic: t, retention: {{for: 24h}}}}, {{name: d, table: b.d, topic: t}}]",
        f"streams: [{{{STREAM}}}]\nbus: {{topics: [{{name: b, durable: true}}, {{name: c, hot: true}}]}}",
    ],
)
def test_what_fits_is_taken(parse: Parse, text: str) -> None:
    assert parse(f"name: demo\n{text}", YES="true").name == "demo"


def taken(kind: object, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@given(st.text(max_size=12) | st.from_regex(r"[A-Za-z0-9._-]{1,201}", fullmatch=True))
def test_the_file_takes_exactly_the_topic_names_that_the_log_takes(name: str) -> None:
    try:
        check_name("topic", name)
    except InvalidNameError:
        assert not taken(TopicName, name)
    else:
        assert taken(TopicName, name)


@given(st.integers(-2, 1 << 25) | st.sampled_from([1 << number for number in range(27)]))
def test_the_file_takes_exactly_the_ring_sizes_that_the_bus_takes(size: int) -> None:
    try:
        BusLimits(ring_size=size)
    except InvalidValueError:
        assert not taken(RingSize, size)
    else:
        assert taken(RingSize, size)


def test_the_files_bounds_are_those_of_the_log_and_the_bus() -> None:
    assert taken(Partitions, MOST_PARTITIONS)
    assert not taken(Partitions, MOST_PARTITIONS + 1)
    assert taken(BusPartitions, 1024)
    assert TopicOptions(partitions=1024).partitions == 1024
    with pytest.raises(InvalidValueError):
        TopicOptions(partitions=1025)
    assert taken(RecordSize, "512MiB")
    assert LogPolicy(max_record_bytes=512 * 1024**2).max_record_bytes == 512 * 1024**2
    with pytest.raises(InvalidValueError):
        LogPolicy(max_record_bytes=512 * 1024**2 + 1)


def test_a_stream_that_is_not_durable_is_not_fsynced(parse: Parse) -> None:
    loose, firm = parse(
        f"name: x\nstreams: [{{{STREAM}, durable: false}}, {{name: d, table: b.d, fsync: {{mode: interval}}}}]"
    ).streams
    assert loose.log_policy().fsync.mode is FsyncMode.NEVER
    assert (firm.log_policy().fsync.mode, firm.log_policy().fsync.interval) == ("interval", timedelta(seconds=0.1))


def test_every_fsync_mode_of_the_file_is_one_of_the_log() -> None:
    assert set(FsyncMode) == {
        StreamSection.model_validate({"name": "a", "table": "b.c", "fsync": {"mode": mode}}).log_policy().fsync.mode
        for mode in ("always", "messages", "interval", "never")
    }
