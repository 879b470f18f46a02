"""Every extract in one line: how its table is filled, how far it is, and how its database is; no JVM, no connection."""

from dataclasses import asdict, dataclass
from typing import Any

from dw_platform.extract.health_record import read_record
from dw_platform.foundation import PlatformError
from dw_platform.lake.opening import TableMissingError
from dw_platform.pipelines.extract import find_extract
from dw_platform.pipelines.extract_state import ExtractState, shown_position
from dw_platform.pipelines.platform import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOverview:
    """One extract, by what its table and the control store say."""

    name: str
    table: str
    mode: str
    state: str
    """`never`, `unfinished`, `up to` its position, or why it cannot be read."""

    position: str | None
    failures: int
    """How often the database failed since it last answered."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def extracts_overview(platform: Platform) -> list[ExtractOverview]:
    """Return all extracts, in the order of the file; one that cannot be read does not hide the others."""
    found = []
    for database in platform.config.databases:
        record = read_record(platform.store, database.name)
        for section in database.tables:
            told, position = _state(platform, f"{database.name}.{section.source}")
            found.append(
                ExtractOverview(
                    name=f"{database.name}.{section.source}",
                    table=section.table,
                    mode=section.mode,
                    state=told,
                    position=position,
                    failures=record.failures if record else 0,
                )
            )
    return found


def _state(platform: Platform, name: str) -> tuple[str, str | None]:
    extract = find_extract(platform, name)
    try:
        details = platform.lake.table(extract.section.table).load(extract.app_id).state().details
    except TableMissingError:
        return "never", None
    except PlatformError as error:
        return str(error), None
    state = ExtractState.from_json(details)
    if state is None:
        return "never", None
    position = shown_position(state)
    # An incremental run that stopped in between is merely not up to date; a copy that did is not visible yet.
    return ("unfinished" if state.mode == "full" and not state.finished else "done"), position
