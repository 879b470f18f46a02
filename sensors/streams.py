"""Requests a run for every stream whose table is behind its topic; reads offsets and Delta logs, never a JVM.

The cursor holds the lag of each stream at the last tick, for the plot in the catalog only. What was ingested is told
by the tables themselves, so a run that fails leaves its lag where it was, and the next tick requests another.
"""

import json
from collections.abc import Iterator

import dagster as dg

from assets.streams import STREAM_TAG, stream_tags
from assets.tables import asset_key
from dw_platform.config import BrokerSection, PlatformConfig, StreamSection
from dw_platform.foundation import PlatformError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.follow import followed_streams
from dw_platform.pipelines.lag import StreamLag, stream_lag
from dw_platform.scaling.runs import RunDecision, decide_ingest_run
from dw_platform.streaming import BrokerUnavailableError
from resources import PlatformResource

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def stream_sensors(config: PlatformConfig) -> list[dg.SensorDefinition]:
    """Return the sensor of all streams that no schedule ingests; none if there are no such streams."""
    streams = [stream for stream in config.streams if stream.schedule is None]
    return [_sensor(streams)] if streams else []


def _sensor(streams: list[StreamSection]) -> dg.SensorDefinition:
    @dg.sensor(
        name="stream_lag",
        target=dg.AssetSelection.assets(*(asset_key(stream.table) for stream in streams)),
        # A run takes ten seconds to start its JVM; looking more often would not make it earlier.
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Ingests streams whose tables are behind, one run a stream at a time.",
    )
    def stream_lag_sensor(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult:
        before: dict[str, int] = json.loads(context.cursor or "{}")
        lags, requests, told = dict[str, int](), list[dg.RunRequest](), list[str]()
        for stream, lag, decision in _decisions(context.instance, platform.open(), streams, told):
            lags[stream.name] = lag.records
            told.append(f"{stream.name}: {decision.reason}")
            if decision.request:
                tags = stream_tags(stream, decision.priority) | {"dw/reason": decision.reason}
                requests.append(dg.RunRequest(asset_selection=[asset_key(stream.table)], tags=tags))
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else "; ".join(told),
            cursor=json.dumps(before | lags),
            asset_events=[
                dg.AssetObservation(asset_key(stream.table), metadata={"lag": lags[stream.name]})
                for stream in streams
                if stream.name in lags and lags[stream.name] != before.get(stream.name)
            ],
        )

    return stream_lag_sensor


def _decisions(
    instance: dg.DagsterInstance, platform: Platform, streams: list[StreamSection], told: list[str]
) -> Iterator[tuple[StreamSection, StreamLag, RunDecision]]:
    """Yield what to do about each stream; one that cannot be read now is told about and does not stop the others."""
    live, down = followed_streams(platform), dict[BrokerSection, str]()
    for stream in streams:
        broker = platform.config.broker_of(stream)
        try:
            if broker in down:  # asking each of its streams would take longer than a tick may
                told.append(f"{stream.name}: its broker is that of {down[broker]}")
                continue
            lag = stream_lag(platform, stream)
        except PlatformError as error:
            if isinstance(error, BrokerUnavailableError):
                down[broker] = stream.name
            told.append(f"{stream.name}: {error}")
            continue
        yield (
            stream,
            lag,
            decide_ingest_run(
                lag=lag.records,
                oldest=lag.oldest,
                capacity=stream.capacity,
                under_way=_under_way(instance, stream),
                live=stream.name in live,
            ),
        )


def _under_way(instance: dg.DagsterInstance, stream: StreamSection) -> int:
    found = dg.RunsFilter(tags={STREAM_TAG: stream.name}, statuses=_UNDER_WAY)
    return len(instance.get_run_records(found, limit=1))
