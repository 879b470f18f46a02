"""One asset for each table that is copied from a database: a run of it brings the table up to date, and ends."""

import dagster as dg

from assets.tables import asset_key, place_metadata, retried_when_transient
from dw_platform.config import DatabaseSection, ExtractSection, PlatformConfig
from dw_platform.pipelines.extract import ExtractProgress, ExtractReport, extract_name, extract_table, reconcile_table
from dw_platform.pipelines.health import check_databases
from resources import PlatformResource

POOL = "extract"
SOURCE_CHECK = "source_reachable"
_KINDS = {"postgres": "postgresql", "mariadb": "mysql"}


class ExtractRunConfig(dg.Config):
    """What a run from the launchpad may ask for."""

    full: bool = False
    """Copy everything anew, whatever the table has."""

    reconcile: bool = False
    """Also find rows that were deleted in the database, and remove them."""


def extract_tables(config: PlatformConfig) -> list[dg.AssetsDefinition]:
    """Return the assets of `databases[].tables`."""
    return [_extract_asset(database, table) for database in config.databases for table in database.tables]


def _extract_asset(database: DatabaseSection, table: ExtractSection) -> dg.AssetsDefinition:
    name, kind = extract_name(database, table), database.url.get_secret_value().partition("://")[0].partition("+")[0]

    @dg.asset(
        key=asset_key(table.table),
        description=table.description or f"Copied from {table.source} of the database {database.name}.",
        group_name=table.table.partition(".")[0],
        owners=list(table.owners),
        kinds={"delta", _KINDS.get(kind, kind)},
        metadata={
            "dagster/table_name": table.table,
            "database": database.name,
            "source": table.source,
            "mode": table.mode,
        },
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=table.freshness) if table.freshness else None,
        pool=POOL,
    )
    def extract(
        context: dg.AssetExecutionContext, config: ExtractRunConfig, platform: PlatformResource
    ) -> dg.MaterializeResult[None]:
        opened = platform.open()

        def tell(at: ExtractProgress) -> None:
            if at.committed:
                of_all = f" of about {at.total:,}" if at.total else ""
                context.log.info(f"{at.rows:,} rows{of_all} read and committed")

        with retried_when_transient():
            if config.reconcile:
                report = reconcile_table(opened, name, on_progress=tell)
            else:
                report = extract_table(opened, name, full=config.full, on_progress=tell)
        return dg.MaterializeResult(metadata=_metadata(report) | place_metadata(opened.lake.table(table.table)))

    return extract


def source_checks(config: PlatformConfig) -> list[dg.AssetChecksDefinition]:
    """Return, for each table, the check whether its database answers; `database_health` asks every minute as well."""
    return [_source_check(database, table) for database in config.databases for table in database.tables]


def _source_check(database: DatabaseSection, table: ExtractSection) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset_key(table.table),
        name=SOURCE_CHECK,
        description=f"Whether the database {database.name} answers; asked every minute.",
    )
    def source_reachable(platform: PlatformResource) -> dg.AssetCheckResult:
        report = check_databases(platform.open())
        entry = next(each for each in report.databases if each.name == database.name)
        return dg.AssetCheckResult(
            passed=entry.result.healthy,
            severity=dg.AssetCheckSeverity.WARN,
            description=entry.result.told,
            metadata={"database": database.name, "failures": entry.record.failures},
        )

    return source_reachable


def _metadata(report: ExtractReport) -> dict[str, dg.MetadataValue]:
    """Return what the catalog shows of a run; the numbers are plotted over time."""
    numbers = {
        "rows": report.rows,
        "pages": report.pages,
        "written": report.written,
        "replaced": report.replaced,
        "deleted": report.deleted,
        "commits": report.commits,
        "delta_version": report.version,
    }
    texts = {"mode": report.mode, "position": report.position, "bound": report.bound}
    return {
        **{name: dg.MetadataValue.int(value) for name, value in numbers.items()},
        **{name: dg.MetadataValue.text(value) for name, value in texts.items() if value},
        "resumed": dg.MetadataValue.bool(report.resumed),
        "rows_per_second": dg.MetadataValue.float(round(report.rows_per_s, 1)),
        "seconds": dg.MetadataValue.float(round(report.duration_s, 3)),
    }
