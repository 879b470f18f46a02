"""Build one table of `lake.tables`: generated rows, or the result of a Spark SQL query over other tables."""

from dw_platform.config import TableSection
from dw_platform.foundation import UserError
from dw_platform.lake.reports import CommitReport
from dw_platform.pipelines.generate import orders
from dw_platform.pipelines.platform import Platform


class UnknownTableError(UserError):
    """A name that `lake.tables` does not have."""

    def __init__(self, table: str, known: list[str]) -> None:
        self.table, self.known = table, tuple(known)
        super().__init__(f"{table} is not a table of this platform. Known: {', '.join(known) or 'none'}.")


def table_config(platform: Platform, name: str) -> TableSection:
    """Return the entry of `lake.tables` with that name."""
    tables = {table.name: table for table in platform.config.lake.tables}
    if name not in tables:
        raise UnknownTableError(name, sorted(tables))
    return tables[name]


def build_table(platform: Platform, name: str) -> CommitReport:
    """Write the table anew in one commit; readers see the old rows or the new ones, never a mixture."""
    table = table_config(platform, name)
    target = platform.lake.table(name)
    partition_by = table.partition_by or None
    if table.generate is not None:
        plan = table.generate
        rows = orders(plan.rows, days=plan.days, seed=plan.seed, now=platform.clock.now())
        return target.overwrite(rows, partition_by=partition_by)
    return target.overwrite(platform.lake.query(table.sql or ""), partition_by=partition_by)
