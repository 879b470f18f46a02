"""Move a stream: forwards, which leaves records out and records that, or back, which reads records again.

Backwards, the rows at and beyond the new position are deleted before it is lowered, so nothing is ever twice in the
table; between the two, readers see fewer rows. A reset that was begun is finished by the next ingest, see
ingest_intent.py. Nothing outside [start, end] of a partition can be asked for: what the broker has lost cannot be read
again, and what is not there yet cannot be skipped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dw_platform.config import StreamSection
from dw_platform.foundation import InvalidValueError, UserError
from dw_platform.lake.opening import TableMissingError
from dw_platform.log import UnknownTopicError
from dw_platform.pipelines.brokers import open_stream_broker
from dw_platform.pipelines.ingest import find_stream
from dw_platform.pipelines.ingest_errors import TopicNotThereError
from dw_platform.pipelines.ingest_intent import ResetIntent, finish_reset, intent_key
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.ingest_tables import TOPIC_PROPERTY
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import PositionNames, table_positions
from dw_platform.store import StaleVersionError
from dw_platform.streaming import Broker

_OFFSETS = re.compile(r"\d+:\d+(,\d+:\d+)*")
_ALLOWED = "earliest, latest, a time such as 2026-05-04T12:00:00Z, an offset, or PARTITION:OFFSET,..."

ResetTarget = str | datetime | int | Mapping[int, int]
"""`earliest`, `latest`, a time, one offset for every partition, or an offset for each."""


class ResetRefusedError(UserError):
    """A place that the stream cannot be moved to; nothing was changed."""

    def __init__(self, stream: str, reason: str) -> None:
        self.stream, self.reason = stream, reason
        super().__init__(f"{stream} cannot be moved: {reason}. Nothing was changed.")


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What moving a stream means; both empty if it stands there already."""

    stream: str
    to: Mapping[int, int]
    """Where partitions are read next; one that is not named stays where it is."""

    found: Mapping[int, int]
    """Where all partitions stand."""

    skipped: tuple[OffsetRange, ...]
    """Left out, and recorded in ops.lost_ranges."""

    repeated: tuple[OffsetRange, ...]
    """Deleted from the table and read again."""

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.skipped or self.repeated)


def parse_target(text: str) -> ResetTarget:
    """Return what `--from` was given; a time without a zone is UTC."""
    if text in {"earliest", "latest"}:
        return text
    if text.isdecimal():
        return int(text)
    if _OFFSETS.fullmatch(text):
        pairs = [part.split(":") for part in text.split(",")]
        return {int(partition): int(offset) for partition, offset in pairs}
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValueError("from", text, _ALLOWED) from error
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def plan_reset(platform: Platform, stream_name: str, to: ResetTarget) -> ResetPlan:
    """Return what moving the stream to `to` means now; changes nothing except to finish a reset that was begun."""
    stream = find_stream(platform, stream_name)
    finish_reset(platform, stream)
    with open_stream_broker(platform, stream) as broker:
        wanted, partitions = _resolved(broker, stream, to)
    found = dict.fromkeys(partitions, 0) | table_positions(platform, stream, partitions)
    moves = [(each, found[each], offset) for each, offset in sorted(wanted.items())]
    plan = ResetPlan(
        stream_name,
        wanted,
        found,
        skipped=tuple(OffsetRange(each, position, offset) for each, position, offset in moves if offset > position),
        repeated=tuple(OffsetRange(each, offset, position) for each, position, offset in moves if offset < position),
    )
    if plan.repeated and stream.format == "json":
        _require_one_topic(platform, stream)
    return plan


def reset_stream(platform: Platform, stream_name: str, to: ResetTarget) -> ResetPlan:
    """Move the stream and return what that meant; a crash in the middle is finished by the next ingest.

    An ingest of the stream that runs meanwhile plans again. ResetRefusedError for a place that cannot be reached.
    """
    stream = find_stream(platform, stream_name)
    while True:
        plan = plan_reset(platform, stream_name, to)
        if plan.empty:
            return plan
        number = _resets(platform, stream) + 1
        intent = ResetIntent(stream.topic_name, number, plan.to, plan.found)
        try:
            platform.store.compare_and_set(intent_key(stream_name), intent.encode(), expected=None)
        except StaleVersionError:
            continue  # somebody else moves it at this moment: they are finished first
        finish_reset(platform, stream)
        return plan


def _resets(platform: Platform, stream: StreamSection) -> int:
    try:
        snapshot = platform.lake.table(stream.table).snapshot()
    except TableMissingError:
        return 0
    return snapshot.position(PositionNames.of(stream).resets) or 0


def _resolved(broker: Broker, stream: StreamSection, to: ResetTarget) -> tuple[dict[int, int], list[int]]:
    """Return the wanted offsets, and all partitions."""
    topic = stream.topic_name
    try:
        starts, ends = broker.start_offsets(topic), broker.end_offsets(topic)
        match to:
            case "earliest":
                wanted = starts
            case "latest":
                wanted = ends
            case datetime():
                wanted = broker.offsets_at(topic, to)
            case int():
                wanted = dict.fromkeys(ends, to)
            case Mapping():
                wanted = dict(to)
            case _:
                raise InvalidValueError("from", to, _ALLOWED)
    except UnknownTopicError as error:
        raise TopicNotThereError(stream.name, topic, broker.kind) from error
    for partition, offset in wanted.items():
        if partition not in ends:
            raise ResetRefusedError(stream.name, f"{topic} has no partition {partition}")
        if not starts[partition] <= offset <= ends[partition]:
            has = f"the broker has {starts[partition]} to {ends[partition]} of partition {partition}"
            raise ResetRefusedError(stream.name, f"{has}, not {offset}")
    return wanted, sorted(ends)


def _require_one_topic(platform: Platform, stream: StreamSection) -> None:
    """Refuse where rows of another topic could be among those that would be deleted: typed rows do not name theirs."""
    made_for = platform.lake.table(stream.table).snapshot().configuration.get(TOPIC_PROPERTY, stream.topic_name)
    if made_for != stream.topic_name:
        reason = f"{stream.table} also has rows of the topic {made_for}, which it could not tell from those to delete"
        raise ResetRefusedError(stream.name, reason)
