"""A data platform for small teams: durable streams, resumable extracts, restorable Delta tables.

All logic lives here and nothing here imports Dagster; `assets/`, `sensors/` and `resources/` are thin
wiring around it. Importing this package does no work: no connection, no JVM, no environment lookup.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
