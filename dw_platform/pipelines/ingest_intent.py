"""A reset that was begun is finished, whoever dies meanwhile: its intent is kept in the control store until it is done.

Steps: the intent; bad records beyond the new positions leave the rejected table; rows beyond them leave the table, and
its positions move; skipped ranges are recorded in ops.lost_ranges; the intent goes. Each step finds out by itself
whether it was done before, so any ingest that finds an intent can do all of them again.

Beside an ingest: it looks for an intent after it took its snapshots. If it saw none, its snapshots are older than every
step, and each step moves positions that the ingest would move too. So whichever of them commits second gets a conflict
and plans again: the ingest finds the intent then, the reset removes what the ingest had written.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from dw_platform.config import StreamSection
from dw_platform.lake.commit import CommitConflictError, PositionConflictError
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.snapshot import Snapshot
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.ingest_tables import prepare_table
from dw_platform.pipelines.lost import SKIPPED, LostRange, record_lost
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import PositionNames, read_generation, read_positions
from dw_platform.store import Entry, StaleVersionError
from dw_platform.store.keys import internal_key

# Every conflict is a commit that an ingest made; none that begins after the intent makes one.
MOST_CONFLICTS = 50


@dataclass(frozen=True, slots=True)
class ResetIntent:
    """What somebody asked for, and what was found when it was last tried."""

    topic: str
    number: int
    """Which reset of the stream this is, counted in its table; once the table has the number, positions have moved."""

    to: Mapping[int, int]
    """Where partitions are to be read next; one that is not named stays where it is."""

    found: Mapping[int, int]
    """Where all partitions stood when positions were about to move, or when it was asked for."""

    generation: int = 0
    """The generation that begins with it."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> "ResetIntent":
        read = json.loads(value)
        offsets = {name: {int(key): offset for key, offset in read[name].items()} for name in ("to", "found")}
        return cls(**{**read, **offsets})


def intent_key(stream: str) -> str:
    """Return where the intent of a stream is kept."""
    return internal_key("ingest", "reset", stream)


def finish_reset(platform: Platform, stream: StreamSection) -> bool:
    """Finish the reset that somebody began, if there is one, and return whether there was."""
    if (entry := platform.store.get(intent_key(stream.name))) is None:
        return False
    for _ in range(MOST_CONFLICTS):
        try:
            _finish(platform, stream, entry)
        except (PositionConflictError, CommitConflictError, StaleVersionError):
            # An ingest that began earlier was first, or somebody else is finishing the same reset.
            if (entry := platform.store.get(intent_key(stream.name))) is None:
                return True
        else:
            return True
    _finish(platform, stream, entry)
    return True


def _finish(platform: Platform, stream: StreamSection, entry: Entry) -> None:
    intent = ResetIntent.decode(entry.value)
    names = replace(PositionNames.of(stream), topic=intent.topic)
    snapshot = prepare_table(platform, stream).snapshot
    if (snapshot.position(names.resets) or 0) < intent.number:
        positions = dict.fromkeys(intent.found, 0) | read_positions(snapshot, names, intent.found)
        back = any(offset < positions[each] for each, offset in intent.to.items())
        generation = read_generation(snapshot, names) + (1 if back else 0)
        intent = replace(intent, found=positions, generation=generation)
        entry = platform.store.compare_and_set(entry.key, intent.encode(), expected=entry.version)
        if back:
            _clear_rejected(platform, stream, names, intent)
        _move(platform, stream, names, intent, snapshot)
    skipped = [
        LostRange(OffsetRange(each, intent.found[each], offset), SKIPPED)
        for each, offset in intent.to.items()
        if offset > intent.found[each]
    ]
    record_lost(platform, names, intent.generation, skipped)
    platform.store.delete(entry.key, expected=entry.version)


def _clear_rejected(platform: Platform, stream: StreamSection, names: PositionNames, intent: ResetIntent) -> None:
    """Take out what is going to be read again; also what an ingest that died had written ahead of its table."""
    table = platform.lake.table(stream.rejected_table)
    try:
        snapshot = table.snapshot()
    except TableMissingError:
        return
    if (snapshot.position(names.generation) or 0) >= intent.generation:
        return
    # The positions of the old generation are not used again; moving them makes a conflict for whoever still would.
    after = {**intent.found, **intent.to}
    old = {names.rejected(each, intent.generation - 1): offset for each, offset in after.items()}
    beyond = _beyond("partition", "offset", after)
    predicate = f"topic = {_quoted(intent.topic)} AND ({beyond})"
    table.rewind(predicate, {**old, names.generation: intent.generation}, snapshot=snapshot)


def _move(
    platform: Platform, stream: StreamSection, names: PositionNames, intent: ResetIntent, snapshot: Snapshot
) -> None:
    table = platform.lake.table(stream.table)
    moved = {each: offset for each, offset in intent.to.items() if offset != intent.found[each]}
    positions = {names.partition(each): offset for each, offset in moved.items()} | {names.resets: intent.number}
    back = {each: offset for each, offset in moved.items() if offset < intent.found[each]}
    if not back:
        table.append(snapshot.schema.empty_table(), positions=positions, snapshot=snapshot)
        return
    positions[names.generation] = intent.generation
    predicate = _beyond("_partition", "_offset", back)
    if stream.format == "raw":
        predicate = f"topic = {_quoted(intent.topic)} AND ({_beyond('partition', 'offset', back)})"
    table.rewind(predicate, positions, snapshot=snapshot)


def _beyond(partition: str, offset: str, positions: Mapping[int, int]) -> str:
    return " OR ".join(
        f"(`{partition}` = {number} AND `{offset}` >= {position})" for number, position in sorted(positions.items())
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
