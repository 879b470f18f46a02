"""Opening a table's log with deltalake, and what each way of failing means."""

import re

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from dw_platform.foundation import PermanentError, PlatformError, TransientError, UserError
from dw_platform.lake.location import TableLocation

_UNSUPPORTED = re.compile(r"Unsupported:? (.+)", re.IGNORECASE)
_DAMAGED = re.compile(r"Json error|Parquet error|Invalid protocol|Missing (?:metadata|protocol)", re.IGNORECASE)


class TableMissingError(UserError):
    """There is no Delta table at the path."""

    def __init__(self, table: str, path: str) -> None:
        self.table, self.path = table, path
        super().__init__(
            f"{table}: there is no Delta table at {path}. Write to it first, or correct `lake.root` in platform.yaml."
        )


class VersionMissingError(UserError):
    """The table has no such version, or no longer."""

    def __init__(self, table: str, version: int) -> None:
        self.table, self.version = table, version
        super().__init__(f"{table}: there is no version {version}; the table's history shows which there are.")


class NewerProtocolError(PermanentError):
    """The table demands something that these versions of the engines do not know."""

    def __init__(self, table: str, demand: str) -> None:
        self.table, self.demand = table, demand
        super().__init__(
            f"{table}: written by a newer Delta protocol than this platform knows ({demand}). Upgrade dw_platform, "
            "or drop the table feature with the program that added it."
        )


class DamagedLogError(PermanentError):
    """The table's log cannot be understood."""

    def __init__(self, table: str, path: str, cause: str) -> None:
        self.table, self.path, self.cause = table, path, cause
        super().__init__(
            f"{table}: the log in {path}/_delta_log is damaged ({cause}). Restore the table from a backup."
        )


class StorageUnreachableError(TransientError):
    """The storage did not answer, or could not do what was asked."""

    def __init__(self, table: str, cause: str) -> None:
        self.table, self.cause = table, cause
        super().__init__(
            f"{table}: the storage failed: {cause}. Check `lake` in platform.yaml, the server and its free space, "
            "and try again."
        )


def open_delta(table: str, location: TableLocation, *, version: int | None = None) -> DeltaTable:
    """Open the table, translating every failure into what it means."""
    try:
        return DeltaTable(location.uri, version=version, storage_options=location.delta_options())
    except TableNotFoundError as error:
        raise TableMissingError(table, location.uri) from error
    except (DeltaError, OSError) as error:
        raise _meaning(table, location, version, str(error)) from error


def _meaning(table: str, location: TableLocation, version: int | None, text: str) -> PlatformError:
    if unsupported := _UNSUPPORTED.search(text):
        return NewerProtocolError(table, unsupported[1])
    if "Invalid table location" in text:
        return TableMissingError(table, location.uri)
    if version is not None and "end version" in text:
        return VersionMissingError(table, version)
    first_line = text.splitlines()[0]
    if _DAMAGED.search(text):
        return DamagedLogError(table, location.uri, first_line)
    return StorageUnreachableError(table, first_line)
