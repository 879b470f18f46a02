"""One use case a file, for Dagster's assets and the command line alike: build, ingest, extract, validate, maintain.

`Platform` is imported when it is asked for: tasks of Spark import modules of this package, and every worker would pay
for all that a platform can open.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dw_platform.pipelines.platform import Platform

__all__ = ["Platform"]


def __getattr__(name: str) -> Any:
    if name != "Platform":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dw_platform.pipelines.platform import Platform  # noqa: PLC0415  see above

    return Platform
