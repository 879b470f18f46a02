"""Bring a stream into its table, each record exactly once.

One round: take a snapshot of the table, plan ranges from the positions in it, let Spark tasks read them and write
Parquet, and commit rows and new positions together, on that same snapshot. If somebody else has moved a position
meanwhile, nothing is committed, the files are removed, and the next round plans again from what is there now. So a
crash at any line, or any number of ingests of one stream at once, neither loses nor repeats a record.

Bad records of a typed stream are committed to the rejected table first, with positions of its own; after a crash
between the two commits, what is read again is not written there twice.

The broker's group is told afterwards. It serves lag displays and retention; nothing is planned from it.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from dw_platform.config import StreamSection
from dw_platform.log import UnknownTopicError
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest_errors import TopicNotThereError, UnknownStreamError
from dw_platform.pipelines.ingest_report import IngestCommit, IngestReport
from dw_platform.pipelines.ingest_round import IngestRounds
from dw_platform.pipelines.ingest_tables import prepare_rejected, prepare_table
from dw_platform.pipelines.platform import Platform
from dw_platform.streaming import ingest_group

OnCommit = Callable[[IngestCommit], None]

__all__ = ["IngestCommit", "IngestReport", "StreamIngest", "find_stream", "ingest_stream"]


def find_stream(platform: Platform, name: str) -> StreamSection:
    """Return the stream of that name."""
    stream = platform.config.stream(name)
    if stream is None:
        raise UnknownStreamError(name, [each.name for each in platform.config.streams])
    return stream


def ingest_stream(
    platform: Platform,
    stream_name: str,
    *,
    limit: int | None = None,
    accept_loss: bool = False,
    on_commit: OnCommit = lambda _: None,
) -> IngestReport:
    """Bring everything that is waiting now into the table, and end; at most `limit` records if it is given.

    LostRangesError if records are gone that were never ingested, unless `accept_loss`; a stream that is not durable
    always goes on. TooManyRejectedError if too large a share does not fit the columns. Whatever is raised, what was
    committed before is complete, and the next run goes on from there.
    """
    with StreamIngest(platform, find_stream(platform, stream_name)) as ingest:
        return ingest.catch_up(limit=limit, accept_loss=accept_loss, on_commit=on_commit)


class StreamIngest:
    """The ingest of one stream, with its broker open; used by one thread at a time."""

    def __init__(self, platform: Platform, stream: StreamSection) -> None:
        self.stream = stream
        self._platform = platform
        self._broker = open_stream_broker(platform, stream)
        self._rounds = IngestRounds(platform, stream, self._broker)
        self._made = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the broker."""
        self._broker.close()

    def create_tables(self) -> None:
        """Make the tables unless they are there, so that readers find them before the first record."""
        if self._made:
            return
        prepare_table(self._platform, self.stream)
        if self.stream.format == "json":
            prepare_rejected(self._platform, self.stream)
        self._made = True

    def ends(self) -> dict[int, int]:
        """Return where each partition ends now.

        In the platform's own log nobody else makes a stream's topic, so it is made here; on a server's broker a topic
        that is missing may be one that is misspelt.
        """
        topic = self.stream.topic_name
        try:
            return self._broker.end_offsets(topic)
        except UnknownTopicError as error:
            if self._broker.capabilities.shared_by_processes:
                raise TopicNotThereError(self.stream.name, topic, self._broker.kind) from error
        self._broker.ensure_topic(topic, topic_settings(self.stream))
        self._broker.commit(topic, ingest_group(self.stream.name), {})
        return self._broker.end_offsets(topic)

    def catch_up(
        self,
        *,
        limit: int | None = None,
        accept_loss: bool = False,
        max_rows: int | None = None,
        on_commit: OnCommit = lambda _: None,
        stop: threading.Event | None = None,
        wait_for_spark: bool = True,
    ) -> IngestReport:
        """Commit round after round until what is there now is in the table, `limit` records are, or `stop` is set.

        `max_rows` replaces the most rows of a commit that the stream's configuration allows. Without `wait_for_spark`
        nothing waits for a session to start; commits are small until it is there.
        """
        clock = self._platform.clock
        started = clock.monotonic()
        self.create_tables()
        targets = self.ends()
        report = IngestReport(stream=self.stream.name, table=self.stream.table)
        while (left := None if limit is None else limit - report.rows - report.rejected) is None or left > 0:
            rows = max_rows or self.stream.commit.rows
            commit = self._rounds.commit_next(
                targets,
                max_rows=rows if left is None else min(left, rows),
                accept_loss=accept_loss,
                wait_for_spark=wait_for_spark,
            )
            if commit is None:
                break
            report = _with(report, commit)
            on_commit(commit)
            if stop is not None and stop.is_set():
                break
        positions = self._rounds.positions(targets)
        return replace(
            report,
            positions=positions,
            lag=sum(max(0, end - positions[partition]) for partition, end in targets.items()),
            duration_s=clock.monotonic() - started,
        )


def _with(report: IngestReport, commit: IngestCommit) -> IngestReport:
    return replace(
        report,
        rows=report.rows + commit.rows,
        rejected=report.rejected + commit.rejected,
        bytes=report.bytes + commit.bytes,
        commits=report.commits + 1,
        version=commit.version,
        lost=report.lost + commit.lost,
    )
