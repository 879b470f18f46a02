"""The databases of a platform: from their sections in platform.yaml to sources, and the manager that pages them."""

from collections.abc import Sequence

from dw_platform.config import DatabaseSection, PlatformConfig
from dw_platform.extract.manager import DatabaseStorageScalingManager
from dw_platform.extract.source import DatabaseSource
from dw_platform.foundation import UserError
from dw_platform.pipelines.limits import effective_database_limits
from dw_platform.pipelines.platform import Platform


class UnknownDatabaseError(UserError):
    """platform.yaml describes no database of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        listed = f"There are: {', '.join(known)}" if known else "Describe it in the section `databases`"
        super().__init__(f"platform.yaml has no database {name!r}. {listed}.")


class TableNotNamedError(UserError):
    """A database is named, but no table of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} names no table. Write DATABASE.TABLE or DATABASE.SCHEMA.TABLE.")


def database_source(section: DatabaseSection) -> DatabaseSource:
    """Return the source that a section describes; nothing is opened."""
    return DatabaseSource(
        name=section.name,
        url=section.url.get_secret_value(),
        connect_timeout_s=section.connect_timeout.total_seconds(),
        statement_timeout_s=section.statement_timeout.total_seconds(),
        max_connections=section.max_connections,
        chunk_bytes=section.chunk_size,
        buffer_bytes=section.buffer_size,
    )


def database_sources(config: PlatformConfig) -> list[DatabaseSource]:
    """Return every database, in the order of the file."""
    return [database_source(section) for section in config.databases]


def find_database(config: PlatformConfig, name: str) -> DatabaseSource:
    """Return the database of that name, or raise UnknownDatabaseError."""
    for section in config.databases:
        if section.name == name:
            return database_source(section)
    raise UnknownDatabaseError(name, [section.name for section in config.databases])


def split_table(config: PlatformConfig, text: str) -> tuple[DatabaseSource, str]:
    """Return the database and the table that `shop.customers` or `shop.public.customers` names."""
    # The names of databases have no dots, and those of tables may have any.
    name, _, table = text.partition(".")
    source = find_database(config, name)
    if not table:
        raise TableNotNamedError(text)
    return source, table


def open_databases(platform: Platform) -> DatabaseStorageScalingManager:
    """Return what pages, streams and checks the platform's databases; close it after use."""
    return DatabaseStorageScalingManager(
        database_sources(platform.config),
        platform.store,
        limits=effective_database_limits(platform),
        clock=platform.clock,
    )
