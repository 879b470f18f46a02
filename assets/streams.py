"""One asset for each stream: a run of it brings everything that is waiting into the table, and ends."""

import dagster as dg

from assets.tables import asset_key, place_metadata, retried_when_transient
from dw_platform.config import PlatformConfig, StreamSection
from dw_platform.pipelines.ingest import IngestReport, ingest_stream
from dw_platform.pipelines.lag import StreamLag, stream_lag
from resources import PlatformResource

POOL = "ingest"
STREAM_TAG = "dw/stream"


def stream_tables(config: PlatformConfig) -> list[dg.AssetsDefinition]:
    """Return the assets of `streams`."""
    return [_stream_asset(stream, config.broker_of(stream).kind) for stream in config.streams]


def rejected_tables(config: PlatformConfig) -> list[dg.AssetSpec]:
    """Return what streams of JSON could not read, as tables beside their own."""
    return [
        dg.AssetSpec(
            asset_key(stream.rejected_table),
            deps=[asset_key(stream.table)],
            description=f"Messages of {stream.topic_name} that do not fit {stream.table}: position, reason and bytes.",
            group_name=stream.table.partition(".")[0],
            kinds={"delta"},
            metadata={"dagster/table_name": stream.rejected_table},
        )
        for stream in config.streams
        if stream.format == "json"
    ]


def stream_tags(stream: StreamSection, priority: int) -> dict[str, str]:
    """Return the tags of a run that ingests `stream`, by which the sensor finds it again."""
    return {STREAM_TAG: stream.name, "dagster/priority": str(priority)}


def _stream_asset(stream: StreamSection, broker: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(stream.table),
        description=stream.description or f"Messages of the topic {stream.topic_name}, each exactly once.",
        group_name=stream.table.partition(".")[0],
        owners=list(stream.owners),
        kinds={"delta", "kafka" if broker == "kafka" else "stream"},
        metadata={"dagster/table_name": stream.table, "topic": stream.topic_name, "broker": broker},
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=stream.freshness) if stream.freshness else None,
        pool=POOL,
    )
    def ingest(context: dg.AssetExecutionContext, platform: PlatformResource) -> dg.MaterializeResult[None]:
        opened = platform.open()
        with retried_when_transient():
            report = ingest_stream(
                opened,
                stream.name,
                on_commit=lambda commit: context.log.info(
                    f"version {commit.version}: {commit.rows:,} rows, {commit.rejected:,} rejected, {commit.lag:,} left"
                ),
            )
        table = opened.lake.table(stream.table)
        lag = stream_lag(opened, stream)
        return dg.MaterializeResult(metadata=_metadata(report, lag) | place_metadata(table))

    return ingest


def _metadata(report: IngestReport, lag: StreamLag) -> dict[str, dg.MetadataValue]:
    """Return what the catalog shows of a run; the numbers are plotted over time."""
    numbers = {
        "rows": report.rows,
        "rejected": report.rejected,
        "commits": report.commits,
        "bytes": report.bytes,
        "lag": lag.records,
        "lost": sum(len(entry.range) for entry in report.lost),
    }
    rate = report.rows / report.duration_s if report.duration_s else 0.0
    return {
        **{name: dg.MetadataValue.int(value) for name, value in numbers.items()},
        "rows_per_second": dg.MetadataValue.float(round(rate, 1)),
        "seconds": dg.MetadataValue.float(round(report.duration_s, 3)),
        "offsets": dg.MetadataValue.table(
            [
                dg.TableRecord({"partition": partition, "next_offset": each.position, "end": each.end})
                for partition, each in sorted(lag.partitions.items())
            ]
        ),
    }
