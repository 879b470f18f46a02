"""Upkeep of every table in the lake: small files joined, unreferenced ones removed after their retention."""

from collections.abc import Iterator

from dw_platform.foundation import TransientError
from dw_platform.lake.reports import MaintenanceReport
from dw_platform.pipelines.platform import Platform


def maintain_tables(platform: Platform) -> Iterator[MaintenanceReport | TransientError]:
    """Yield a report a table; a table that another writer keeps busy yields its error and the next one follows."""
    policy = platform.config.lake.maintenance.policy()
    for name in platform.lake.table_names():
        try:
            yield platform.lake.table(name).maintain(policy)
        except TransientError as error:
            yield error
