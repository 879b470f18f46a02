"""Limits of Dagster's pools, read and changed while everything runs.

Dagster offers no public wrapper for this yet, so the storage calls behind its own UI and command line stand here
and nowhere else. Limits are kept in the instance's storage and survive restarts.
"""

import dagster as dg


class PoolLimits:
    """The slots of one Dagster instance's pools. Lowering a limit never stops a step that runs already."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._storage = instance.event_log_storage

    def current(self, pool: str) -> int | None:
        """Return the limit of `pool`, or None if it was never set."""
        return next((limit.limit for limit in self._storage.get_pool_limits() if limit.name == pool), None)

    def set(self, pool: str, slots: int) -> None:
        """Set the limit of `pool`."""
        self._storage.set_concurrency_slots(pool, slots)
