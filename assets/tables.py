"""One asset for each table that the platform builds itself."""

import contextlib
from collections.abc import Iterator

import dagster as dg

from dw_platform.config import PlatformConfig, TableSection
from dw_platform.foundation import TransientError
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.table import LakeTable
from dw_platform.pipelines.build import build_table
from resources import PlatformResource

POOL = "lake"


def asset_key(table: str) -> dg.AssetKey:
    """Return the key of a table: `shop.orders` is `shop/orders` in the catalog."""
    return dg.AssetKey(table.split("."))


def lake_tables(config: PlatformConfig) -> list[dg.AssetsDefinition]:
    """Return the assets of `lake.tables`."""
    return [_table_asset(table) for table in config.lake.tables]


def _table_asset(table: TableSection) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(table.name),
        deps=[asset_key(name) for name in table.inputs],
        description=table.description,
        group_name=table.group_name,
        owners=list(table.owners),
        kinds={"delta", "spark"} if table.sql else {"delta", "arrow"},
        metadata={"dagster/table_name": table.name}
        | ({"query": dg.MetadataValue.md(_as_code(table.sql))} if table.sql else {}),
        automation_condition=_follow_inputs() if table.inputs else None,
        pool=POOL,
    )
    def build(platform: PlatformResource) -> dg.MaterializeResult[None]:
        opened = platform.open()
        with retried_when_transient():
            report = build_table(opened, table.name)
        metadata = _commit_metadata(report) | place_metadata(opened.lake.table(table.name))
        return dg.MaterializeResult(metadata=metadata)

    return build


def _follow_inputs() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    # `eager` alone starts a run although a blocking check of an input has failed in another run.
    return dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


@contextlib.contextmanager
def retried_when_transient() -> Iterator[None]:
    """Let Dagster run the step again only if waiting can help; a permanent error or a Ctrl-C ends it at once."""
    try:
        yield
    except TransientError as error:
        raise dg.RetryRequested(max_retries=2, seconds_to_wait=10) from error


def _commit_metadata(report: CommitReport) -> dict[str, dg.MetadataValue]:
    """Return what the catalog shows of a commit; the numbers are plotted over time."""
    numbers = {"dagster/row_count": report.rows, "files": report.files, "bytes": report.bytes}
    return {
        **{name: dg.MetadataValue.int(value) for name, value in numbers.items() if value is not None},
        "delta_version": dg.MetadataValue.int(report.version),
        "writer": dg.MetadataValue.text(report.engine.value),
        "writer_reason": dg.MetadataValue.text(report.reason),
        "seconds": dg.MetadataValue.float(round(report.duration_s, 3)),
    }


def place_metadata(table: LakeTable) -> dict[str, dg.MetadataValue]:
    """Return where a table is and which columns it has now."""
    columns = [
        dg.TableColumn(field.name, str(field.type), constraints=dg.TableColumnConstraints(nullable=field.nullable))
        for field in table.snapshot().schema
    ]
    return {
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
        "dagster/uri": dg.MetadataValue.text(table.location.uri),
    }


def _as_code(statement: str) -> str:
    return f"```sql\n{statement.strip()}\n```"
