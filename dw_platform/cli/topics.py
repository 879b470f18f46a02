"""`dw topics`: what the brokers keep, who reads it how far, and the care of the platform's own log."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, end_with, many, say
from dw_platform.cli.steady import steady_progress
from dw_platform.cli.topics_view import listed_row, overview_json, show_topic
from dw_platform.foundation import PlatformError, TransientError, UserError, format_bytes
from dw_platform.log import Finding, Severity
from dw_platform.pipelines import Platform
from dw_platform.pipelines.topic_care import (
    CareReport,
    create_topic,
    delete_topic,
    grow_topic,
    maintain_topic,
    own_topics,
    verify_partition,
)
from dw_platform.pipelines.topics import (
    PlatformBrokers,
    TopicOverview,
    stream_of,
    topic_overview,
    topics_overview,
)

app = typer.Typer(
    help="Look at topics, make and grow them, check and keep the platform's own log.", no_args_is_help=True
)

TopicArgument = Annotated[str, typer.Argument(help="The topic.")]
OptionalTopic = Annotated[str | None, typer.Argument(help="Only this topic.", show_default=False)]
Verified = tuple[str, int, Finding]


class NotConfirmedError(UserError):
    """Deleting cannot be taken back, so it has to be asked for twice; nothing was deleted."""

    def __init__(self, topic: TopicOverview) -> None:
        self.topic, self.records, self.unread = topic.name, topic.records, {g: n for g, n in topic.lags.items() if n}
        owner = f", belongs to {topic.owner}" if topic.owner else ""
        unread = "".join(f", and {group} has not read {lag:,} of them" for group, lag in self.unread.items())
        super().__init__(
            f"{topic.name} holds {many(topic.records, 'record')}{owner}{unread}. Deleting it cannot be taken back; add "
            "--yes to do it."
        )


@app.command("list", short_help="List every topic.")
def list_topics(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """List every topic with its records, size and groups; exit code 1 when a broker does not answer."""
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        found = list(topics_overview(platform, brokers))
    topics = [entry for entry in found if isinstance(entry, TopicOverview)]
    errors = [entry for entry in found if isinstance(entry, PlatformError)]
    if json:
        emit_json([overview_json(topic) for topic in topics])
    elif topics:
        columns = ["topic", "belongs to", "broker", "partitions", "records", "size", "groups and their lag"]
        emit_table("", columns, [listed_row(topic) for topic in topics])
    elif not errors:
        say("There are no topics yet. The first publish to a stream makes its topic, `dw topics create` any.")
    end_with([str(error) for error in errors])


@app.command(short_help="Show a topic's partitions, groups and policy.")
def show(topic: TopicArgument, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show a topic's partitions, how far each group has read them, and how the topic is kept."""
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        found = topic_overview(platform, brokers, topic)
    emit_json(overview_json(found)) if json else show_topic(found)


@app.command(short_help="Make a topic.")
def create(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many; 4, or what its stream says.")] = None,
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Make a topic; one that a stream reads gets the stream's retention, fsync and partitions."""
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        info = create_topic(brokers, topic, partitions)
        stream, kind = stream_of(platform.config, topic), brokers.of(topic).kind
    if json:
        made = {"topic": topic, "partitions": info.partitions, "broker": kind}
        emit_json(made | {"stream": stream.name if stream else None})
        return
    settings = f", with the settings of the stream {stream.name}" if stream else ""
    say(f"{topic} has {many(info.partitions, 'partition')} at the {kind} broker{settings}.")


@app.command(short_help="Give a topic more partitions.")
def grow(
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=1, help="How many it should have; never fewer than now.")],
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Give a topic more partitions; records stay where they are, and there is no way back.

    Publishers of a stream use the new ones as soon as every group has read what is there, so that order within a key
    holds.
    """
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        before, after = grow_topic(brokers, topic, partitions)
    if json:
        emit_json({"topic": topic, "before": before.partitions, "partitions": after.partitions})
    elif before.partitions == after.partitions:
        say(f"{topic} has {many(after.partitions, 'partition')} already.")
    else:
        say(f"{topic}: {before.partitions} -> {after.partitions} partitions.")


@app.command(short_help="Check every byte of the own log.")
def verify(topic: OptionalTopic = None, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Read every byte of the platform's own log and say what is not as it was written; nothing is changed.

    The exit code is 1 when something is torn, lost or corrupt; a note alone leaves it 0. A gateway may run meanwhile.
    """
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        names = own_topics(brokers, topic, "verify")
        found, checked = _verify(platform, brokers, names)
    if json:
        findings = [
            {"topic": name, "partition": number, "severity": finding.severity.value, "file": finding.file,
             "position": finding.position, "message": finding.message}
            for name, number, finding in found
        ]  # fmt: skip
        emit_json({"topics": names, "partitions": checked, "findings": findings})
    else:
        if found:
            rows = [(*place, one.severity, one.file, one.position, one.message) for *place, one in found]
            emit_table("", ["topic", "partition", "severity", "file", "at byte", "finding"], rows)
            say()
        say(f"{many(len(names), 'topic')}, {many(checked, 'partition')}: {_verdict(found)}.")
    if any(finding.severity is not Severity.NOTE for *_, finding in found):
        raise typer.Exit(1)


def _verify(platform: Platform, brokers: PlatformBrokers, names: Sequence[str]) -> tuple[list[Verified], int]:
    places = [(name, number) for name in names for number in range(brokers.of(name).topic(name).partitions)]
    found: list[Verified] = []
    with steady_progress("verifying", len(places), "partitions") as advance:
        for name, number in places:
            found += [(name, number, finding) for finding in verify_partition(platform, name, number)]
            advance(1)
    return found, len(places)


def _verdict(found: Sequence[Verified]) -> str:
    counts = {severity: sum(one.severity is severity for *_, one in found) for severity in Severity}
    told = [f"{count} {severity}" for severity, count in counts.items() if count]
    return f"findings: {', '.join(told)}" if told else "every record is readable"


@app.command(short_help="Delete a topic of the own log.")
def delete(
    topic: TopicArgument,
    config: ConfigOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it for good.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete a topic of the platform's own log, with its records and the places of its groups; asks for --yes."""
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        own_topics(brokers, topic, "delete")
        found = topic_overview(platform, brokers, topic)
        if not yes:
            raise NotConfirmedError(found)
        delete_topic(platform, topic)
        stream = stream_of(platform.config, topic)
    if json:
        emit_json({"topic": topic, "deleted": True, "records": found.records, "groups": sorted(found.lags)})
        return
    say(f"{topic} is deleted, with {many(found.records, 'record')} and {many(len(found.lags), 'group')}.")
    if stream:
        say(f"{stream.table} keeps its rows. `dw ingest {stream.name}` explains how to read a new topic of that name.")


@app.command(short_help="Drop what retention no longer keeps.")
def maintain(topic: OptionalTopic = None, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Apply retention and compaction to the platform's own log now; exit code 1 when a topic was left out.

    A gateway that runs does this itself for what it publishes to.
    """
    done: list[CareReport] = []
    busy: list[TransientError] = []
    with open_platform(config) as platform, PlatformBrokers(platform) as brokers:
        for name in own_topics(brokers, topic, "maintain"):
            try:
                done.append(maintain_topic(platform, brokers, name))
            except TransientError as error:
                busy.append(error)
    if json:
        fields = ("topic", "records_dropped", "bytes_before", "bytes_after")
        emit_json([{name: getattr(report, name) for name in fields} for report in done])
    elif done:
        rows = [
            (report.topic, report.records_dropped, format_bytes(report.bytes_before), format_bytes(report.bytes_after))
            for report in done
        ]
        emit_table("", ["topic", "records dropped", "size before", "after"], rows)
    elif not busy:
        say("There is no topic to maintain.")
    end_with([str(error) for error in busy])
