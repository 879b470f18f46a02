"""Records into Delta: the platform's ingest beside Spark's Kafka source with Spark's Delta sink, on the same records.

The same values with the same partitions and offsets are in the embedded log and in a real Kafka that this starts. Every
run fills a new table; all run in one session, in turn. At the end all tables must hold the same records.

Latency: `dw ingest --follow` in a process of its own while this one publishes. A record counts from the time that the
log gave it, just before its fsync, to the time of the commit file that makes it visible.
"""

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Measure, Options, measure
from dw_platform.config import parse_config
from dw_platform.lake.jars import DELTA_JARS, Coordinate, resolve_jars
from dw_platform.lake.java import find_java
from dw_platform.lake.session import SparkProvider
from dw_platform.log import Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest import find_stream, ingest_stream
from dw_platform.streaming import Broker

NAME = "ingest"
DESCRIPTION = (
    "2 M records of 100 B into Delta: from the log and from Kafka, against Spark's Kafka source and Delta sink"
)

ROWS, QUICK_ROWS = 2_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 5, 1
PARTITIONS = 4
RECORD_BYTES = 100
BATCH = 5_000

RATE, BATCHES_A_SECOND = 20_000, 100
WARM_UP_S, MEASURED_S, QUICK_S = 25.0, 30.0, 5.0

UNTUNED, TUNED = "Spark's Kafka source and Delta sink", "the same, tuned"
BY_KAFKA, BY_LOG = "Kafka to Delta", "embedded log to Delta"
TUNING = {
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
}
# The token provider of 4.2.0 is not in every repository; an older one serves, for nobody signs in by token here.
SOURCE_JARS = (
    Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    Coordinate("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
    Coordinate("org.apache.commons", "commons-pool2", "2.12.1"),
)
PLATFORM = """
name: bench
home: home
streams:
  - {{name: from_log, table: bench.from_log, partitions: {partitions}}}
  - {{name: live, table: bench.live, partitions: {partitions}}}
  - name: from_kafka
    table: bench.from_kafka
    partitions: {partitions}
    broker: {{kind: kafka, address: "{kafka}"}}
"""


def run(options: Options) -> dict[str, Any]:
    """Measure throughput of all four, compare their tables, then measure the latency of following."""
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    assert options.directory is not None
    with contextlib.ExitStack() as opened:
        kafka = opened.enter_context(_kafka(options.directory / "kafka"))
        platform = opened.enter_context(_BenchPlatform.at(options.directory, kafka.address))
        publish(platform, rows)
        measures = measure(_measures(platform, kafka.address), repeats=repeats, units=rows, unit="records/s")
        checks = _checks(measures) | {"equal records in all tables": _equal(platform, rows)}
        platform.spark.stop()
        latency = follow_latency(platform, quick=options.quick)
    return {
        "records": rows,
        "record_bytes": RECORD_BYTES,
        "durability": "the ingest fsyncs files and folders before its commit; Spark's local writer does not",
        "measures": [*measures, *latency],
        "checks": checks,
    }


def _kafka(folder: Path) -> Any:
    """Return the server that the tests use, with the compiler that they do without."""
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.kafka_server import KafkaServer

    return KafkaServer(folder, heap="1g", java_options=())


class _BenchPlatform(Platform):
    """A platform whose Spark also has the Kafka source, for the peer."""

    @classmethod
    def at(cls, folder: Path, kafka: str) -> "_BenchPlatform":
        text = PLATFORM.format(partitions=PARTITIONS, kafka=kafka)
        (folder / "platform.yaml").write_text(text)
        platform = cls(parse_config(text, source=folder / "platform.yaml", environ={}))
        java = find_java()
        jars = [*resolve_jars(DELTA_JARS, java), *resolve_jars(SOURCE_JARS, java)]
        settings = replace(platform.config.spark_settings, conf={"spark.jars": ",".join(map(str, jars))})
        platform._spark = SparkProvider(settings, platform.config.lake_settings)
        return platform


def publish(platform: Platform, rows: int) -> None:
    """Put the same values into the same partitions of both topics, in the same order."""
    random = np.random.default_rng(7)
    with contextlib.ExitStack() as opened:
        brokers = {name: opened.enter_context(_broker(platform, name)) for name in ("from_log", "from_kafka")}
        for number, first in enumerate(range(0, rows, BATCH)):
            values = _values(random, min(BATCH, rows - first))
            for name, broker in brokers.items():
                broker.publish(name, number % PARTITIONS, Records(values))


def _broker(platform: Platform, stream: str) -> Broker:
    section = find_stream(platform, stream)
    broker = open_stream_broker(platform, section)
    broker.ensure_topic(section.topic_name, topic_settings(section))
    return broker


def _values(random: np.random.Generator, count: int) -> pa.Array:
    text = random.integers(97, 123, count * RECORD_BYTES, dtype=np.uint8).tobytes()
    offsets = np.arange(0, count * RECORD_BYTES + 1, RECORD_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _measures(platform: Platform, kafka: str) -> list[Measure]:
    return [
        Measure(name=UNTUNED, run=_by_spark(platform, kafka, "spark", {})),
        Measure(name=TUNED, run=_by_spark(platform, kafka, "spark_tuned", TUNING), peer=UNTUNED),
        Measure(name=BY_KAFKA, run=_by_ingest(platform, "from_kafka"), peer=UNTUNED),
        Measure(name=BY_LOG, run=_by_ingest(platform, "from_log"), peer=UNTUNED),
    ]


def _by_spark(platform: Platform, kafka: str, table: str, tuning: dict[str, str]) -> Callable[[], None]:
    def read_and_write() -> None:
        place = platform.lake.location(f"bench.{table}").uri
        shutil.rmtree(place, ignore_errors=True)
        source = platform.spark.get().read.format("kafka").option("kafka.bootstrap.servers", kafka)
        rows = source.option("subscribe", "from_kafka").options(**tuning).load()
        columns = ["key", "value", "topic", "partition", "offset", "timestamp", "current_timestamp() AS ingested_at"]
        rows.selectExpr(*columns).write.format("delta").save(place)

    return read_and_write


def _by_ingest(platform: Platform, stream: str) -> Callable[[], None]:
    def ingest() -> None:
        shutil.rmtree(platform.lake.location(f"bench.{stream}").uri, ignore_errors=True)
        assert ingest_stream(platform, stream).lag == 0

    return ingest


def _checks(measures: list[dict[str, Any]]) -> dict[str, Any]:
    runs = {each["name"]: each["runs"] for each in measures}
    tuned = statistics.median(mine / peer for mine, peer in zip(runs[BY_KAFKA], runs[TUNED], strict=True))
    ratios = {each["name"]: each.get("ratio") for each in measures}
    return {
        f"{BY_LOG}: at least 5 x": ratios[BY_LOG] >= 5,
        f"{BY_KAFKA}: at least 1.5 x": ratios[BY_KAFKA] >= 1.5,
        f"{BY_KAFKA}: ratio to tuned, at least 1.25": round(tuned, 2),
    }


def _equal(platform: Platform, rows: int) -> bool:
    query = "SELECT count(*), sum(offset), bit_xor(xxhash64(partition, offset, value)) FROM {{bench.{}}}"
    found = [
        tuple(platform.lake.query(query.format(table)).collect()[0])
        for table in ("spark", "spark_tuned", "from_kafka", "from_log")
    ]
    return found[0][0] == rows and all(each == found[0] for each in found)


def follow_latency(platform: Platform, *, quick: bool) -> list[dict[str, Any]]:
    """Publish at a steady rate while another process follows; return percentiles of publish-to-visible."""
    with _broker(platform, "live") as broker, _following(platform):
        _publish_steadily(broker, QUICK_S if quick else WARM_UP_S)
        begins = time.time()
        _publish_steadily(broker, QUICK_S if quick else MEASURED_S)
        ends = time.time()
        _wait_until_followed(platform, broker)
    latencies = np.concatenate([part for part, _ in _commits(platform)])
    published = np.concatenate([part for _, part in _commits(platform)])
    counted = latencies[(published >= begins) & (published <= ends)]
    return [
        {
            "name": f"publish to visible, {RATE:,} records/s, {share} %",
            "unit": "s",
            "median": round(float(np.percentile(counted, share)), 2),
            "samples": len(counted),
        }
        for share in (50, 95, 99)
    ]


@contextlib.contextmanager
def _following(platform: Platform) -> Iterator[None]:
    command = [str(Path(sys.executable).with_name("dw")), "ingest", "live", "--follow"]
    log = platform.home / "follow.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--config", str(platform.config.source)], stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _publish_steadily(broker: Broker, seconds: float) -> None:
    size = RATE // BATCHES_A_SECOND
    values = _values(np.random.default_rng(1), size)
    started = time.monotonic()
    for number in range(int(seconds * BATCHES_A_SECOND)):
        broker.publish("live", number % PARTITIONS, Records(values))
        time.sleep(max(0.0, started + (number + 1) / BATCHES_A_SECOND - time.monotonic()))


def _wait_until_followed(platform: Platform, broker: Broker) -> None:
    wanted, deadline = sum(broker.end_offsets("live").values()), time.monotonic() + 60
    while (platform.lake.table("bench.live").snapshot().row_count or 0) < wanted:
        assert time.monotonic() < deadline, "the following ingest does not catch up"
        time.sleep(0.2)


def _commits(platform: Platform) -> Iterator[tuple[Any, Any]]:
    """Yield, for each commit, the latency of its records and when they were published, in seconds."""
    folder = platform.lake.table("bench.live").location.local
    for path in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        files = [folder / action["add"]["path"] for action in actions if "add" in action]
        for file in files:
            micros = pq.read_table(file, columns=["timestamp"])["timestamp"].cast(pa.int64()).to_numpy()
            yield path.stat().st_mtime - micros / 1e6, micros / 1e6
