"""Build one table of `lake.tables`: generated rows, or the result of a Spark SQL query over other tables."""

from dw_platform.config import TableSection, produced_tables
from dw_platform.foundation import UserError
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.table import LakeTable
from dw_platform.pipelines.generate import orders
from dw_platform.pipelines.platform import Platform


class UnknownTableError(UserError):
    """A name that `lake.tables` does not have."""

    def __init__(self, table: str, known: list[str], producer: str = "") -> None:
        self.table, self.known, self.producer = table, tuple(known), producer
        what = f"is filled by {producer}, not built" if producer else "is not a table that this platform builds"
        super().__init__(f"{table} {what}. Tables that it builds: {', '.join(known) or 'none'}.")


class NotBuiltError(UserError):
    """A table that must exist does not, yet."""

    def __init__(self, table: str, path: str) -> None:
        self.table, self.path = table, path
        super().__init__(
            f"{table} does not exist yet: there is no Delta table at {path}. Build it with `dw tables build {table}`, "
            "or every table with `dw demo`; if it should exist, correct `lake.root` in platform.yaml."
        )


def table_config(platform: Platform, name: str) -> TableSection:
    """Return the entry of `lake.tables` with that name."""
    tables = {table.name: table for table in platform.config.lake.tables}
    if name not in tables:
        producer = produced_tables(platform.config).get(name)
        raise UnknownTableError(name, sorted(tables), producer.path if producer else "")
    return tables[name]


def built_table(platform: Platform, name: str) -> LakeTable:
    """Return the handle of a table that exists."""
    handle = platform.lake.table(name)
    if not handle.exists():
        raise NotBuiltError(name, handle.location.uri)
    return handle


def build_table(platform: Platform, name: str) -> CommitReport:
    """Write the table anew in one commit; readers see the old rows or the new ones, never a mixture."""
    table = table_config(platform, name)
    target = platform.lake.table(name)
    partition_by = table.partition_by or None
    if table.generate is not None:
        plan = table.generate
        rows = orders(plan.rows, days=plan.days, seed=plan.seed, now=platform.clock.now())
        return target.overwrite(rows, partition_by=partition_by)
    for needed in table.inputs:  # said before Spark starts, which takes seconds
        built_table(platform, needed)
    return target.overwrite(platform.lake.query(table.sql or ""), partition_by=partition_by)
