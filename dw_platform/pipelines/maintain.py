"""Upkeep of every table in the lake: small files joined, unreferenced ones removed after their retention."""

from collections.abc import Iterator, Sequence

from dw_platform.foundation import PermanentError, TransientError
from dw_platform.lake.reports import MaintenanceReport
from dw_platform.pipelines.platform import Platform


class MaintenanceFailedError(PermanentError):
    """Some tables need somebody's attention before they can be kept small; the others were."""

    def __init__(self, errors: Sequence[PermanentError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, errors)))


def maintain_tables(platform: Platform) -> Iterator[MaintenanceReport | TransientError]:
    """Yield a report a table; a table that another writer keeps busy yields its error and the next one follows.

    A table that cannot be worked with at all does not stop the others either; it is raised after them.
    """
    policy = platform.config.lake.maintenance.policy()
    failed: list[PermanentError] = []
    for name in platform.table_names():
        try:
            yield platform.lake.table(name).maintain(policy)
        except TransientError as error:
            yield error
        except PermanentError as error:
            failed.append(error)
    if failed:
        raise MaintenanceFailedError(failed)
