"""`dw publish`: records from standard input or a file, durable before they are counted."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dw_platform.cli.children import stop_signals
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, complain, emit_json, emit_table, many, say
from dw_platform.cli.publish_lines import ByteSource, LineReader, Lines, Parsed, line_ranges, parse_lines
from dw_platform.cli.publish_sinks import PatientSink, StoppedError, open_sink
from dw_platform.cli.steady import steady_progress
from dw_platform.foundation import PermanentError, UserError
from dw_platform.gateway.settings import TopicRules
from dw_platform.pipelines import Platform
from dw_platform.pipelines.topics import stream_of
from dw_platform.streaming.publishing import PartitionReceipt

INTERRUPTED = 130
# The reasons of the first bad lines explain the others; the numbers of all of them follow.
REASONS_LISTED = 20
_MOST_BATCH_BYTES = 4 * 1024 * 1024


class Format(StrEnum):
    """What a line is."""

    NDJSON = "ndjson"
    RAW_LINES = "raw-lines"


class KeyInRawLinesError(UserError):
    """Raw lines have no fields, so none of them can be the key."""

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(f"--key-field {field} needs fields, which raw lines do not have. Leave one of the two out.")


class BadLineError(PermanentError):
    """A line is no record, and --strict was asked for; its batch was not published."""

    def __init__(self, line: int, reason: str) -> None:
        self.line, self.reason = line, reason
        super().__init__(f"line {line}: {reason}. It and the lines of its batch were not published, as --strict says.")


class UnreadableFileError(UserError):
    """The file to publish cannot be opened; nothing was published."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path} cannot be read: {cause}. Nothing was published.")


@dataclass(slots=True)
class Outcome:
    """What became of the lines so far."""

    accepted: int = 0
    bad: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    partitions: dict[int, tuple[int, int]] = field(default_factory=dict)
    unsure: list[int] = field(default_factory=list)
    """Lines that were sent and not acknowledged yet."""

    def refuse(self, bad: Sequence[tuple[int, str]]) -> None:
        """Note lines that are no records."""
        self.bad += [line for line, _ in bad]
        room = REASONS_LISTED - len(self.reasons)
        self.reasons += [f"line {line}: {reason}" for line, reason in bad[:room]]

    def acknowledge(self, records: int, receipts: Sequence[PartitionReceipt]) -> None:
        """Note records that are durable, and where."""
        self.accepted += records
        self.unsure = []
        for receipt in receipts:
            first, _ = self.partitions.get(receipt.partition, (receipt.base_offset, 0))
            self.partitions[receipt.partition] = (first, receipt.next_offset)

    def as_json(self, topic: str, through: str) -> dict[str, Any]:
        return {
            "topic": topic,
            "through": through,
            "accepted": self.accepted,
            "rejected": len(self.bad),
            "rejected_lines": self.bad,
            "partitions": [
                {"partition": number, "base_offset": first, "next_offset": after}
                for number, (first, after) in sorted(self.partitions.items())
            ],
        }


def publish(
    topic: Annotated[str, typer.Argument(help="The topic; that of a stream is made if it is not there.")],
    *,
    key_field: Annotated[
        str | None, typer.Option("--key-field", help="Field that chooses the partition; that of the stream by default.")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="ndjson: a JSON object a line. raw-lines: each line as it is.")
    ] = Format.NDJSON,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most lines made durable together.")] = 5_000,
    file: Annotated[Path | None, typer.Option(help="Read this file instead of standard input.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Most seconds to wait for room or for another writer.")] = 60.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="DW_API_KEY", help="For a gateway that wants one.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad line, before its batch.")] = False,
    json: JsonOption = False,
) -> None:
    """Publish each line of standard input as a record; the good lines go in and the bad ones are listed.

    A record counts when it is durable. While a gateway runs, records go through it. Ctrl-C ends after the batch under
    way and says how many were acknowledged. The exit code is 0 only if every line was.
    """
    if key_field and form is Format.RAW_LINES:
        raise KeyInRawLinesError(key_field)
    outcome = Outcome()
    with open_platform(config) as platform, _opened(file) as source, stop_signals() as stop:
        rules = _rules(platform, topic, key_field)
        with (
            contextlib.suppress(StoppedError),
            open_sink(platform, topic, api_key=api_key, patience_s=wait, stop=stop) as sink,
        ):
            most_bytes = min(_MOST_BATCH_BYTES, platform.config.gateway.max_request // 2)
            batches = LineReader(source, stop=stop, max_line=rules.max_record_bytes).batches(batch, most_bytes)
            try:
                _publish(batches, lambda lines: parse_lines(lines, rules, raw=form is Format.RAW_LINES), sink, outcome,
                         strict=strict)  # fmt: skip
            finally:
                _tell(outcome, topic, sink.through, json=json)
        if stop.is_set():
            raise typer.Exit(INTERRUPTED)
    if outcome.bad:
        raise typer.Exit(1)


def _publish(
    batches: Iterator[Lines], parse: Callable[[Lines], Parsed], sink: PatientSink, outcome: Outcome, *, strict: bool
) -> None:
    with steady_progress("publishing", None, "records") as advance:
        for lines in batches:
            parsed = parse(lines)
            if strict and parsed.bad:
                raise BadLineError(*parsed.bad[0])
            outcome.refuse(parsed.bad)
            if parsed.records is not None:
                outcome.unsure = lines.numbers
                outcome.acknowledge(parsed.count, sink.publish(parsed.records))
                advance(parsed.count)


def _tell(outcome: Outcome, topic: str, through: str, *, json: bool) -> None:
    if json:
        emit_json(outcome.as_json(topic, through))
    else:
        say(f"{topic}: {many(outcome.accepted, 'record')} acknowledged by {through}.")
        if outcome.partitions:
            rows = [(number, first, after) for number, (first, after) in sorted(outcome.partitions.items())]
            emit_table("", ["partition", "from offset", "up to, not included"], rows)
    sys.stdout.flush()
    for reason in outcome.reasons:
        complain(reason)
    if outcome.bad:
        complain(f"{many(len(outcome.bad), 'line')} not published: {line_ranges(outcome.bad)}")
    if outcome.unsure:
        complain(f"Lines {line_ranges(outcome.unsure)} were sent and not acknowledged; they may be there in part.")


def _rules(platform: Platform, topic: str, key_field: str | None) -> TopicRules:
    stream = stream_of(platform.config, topic)
    if stream is None:
        return TopicRules(key_field)
    return TopicRules(key_field or stream.key, stream.max_record)


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[ByteSource]:
    if file is None:
        if sys.stdin is None:
            raise UnreadableFileError(Path("standard input"), "it is closed")
        yield cast(ByteSource, sys.stdin.buffer)  # a BufferedReader, which BinaryIO does not say
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise UnreadableFileError(file, error.strerror or str(error)) from error
    with opened:
        yield opened
