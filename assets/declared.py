"""Tables that `platform.yaml` declares and that something outside this code location writes.

They appear in the catalog with their lineage, and queries may depend on them.
"""

import dagster as dg

from assets.tables import asset_key
from dw_platform.config import PlatformConfig, produced_tables


def declared_tables(config: PlatformConfig) -> list[dg.AssetSpec]:
    """Return a spec for every produced table that no asset here makes."""
    own = {table.name for table in config.lake.tables} | {stream.table for stream in config.streams}
    return [
        dg.AssetSpec(
            asset_key(name),
            description=f"Written by {producer.path} of platform.yaml.",
            group_name=producer.kind,
            kinds={"delta"},
            metadata={"dagster/table_name": name},
        )
        for name, producer in produced_tables(config).items()
        if name not in own
    ]
