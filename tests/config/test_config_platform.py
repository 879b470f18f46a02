from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from dw_platform.config import PlatformConfig, Producer, load_config, produced_tables
from dw_platform.config.section import Section
from dw_platform.quality import Severity
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds

Parse = Callable[..., PlatformConfig]
FULL = Path(__file__).with_name("full.yaml").read_text()
REPOSITORY = Path(__file__).parents[2]


def test_the_shortest_platform_is_a_name(parse: Parse) -> None:
    config = parse("name: x")
    assert (config.name, config.streams, produced_tables(config)) == ("x", (), {})


def test_the_specified_numbers_are_the_defaults(parse: Parse) -> None:
    text = """\
name: x
streams: [{name: s, table: a.b}]
databases: [{name: d, url: 'sqlite:///x', tables: [{source: t, table: a.c}]}]
backups: {policies: [{name: p, tables: [a.b]}]}
"""
    config = parse(text)
    keep = config.backups.policies[0].keep
    assert (keep.last, keep.age, keep.max_size) == (30, timedelta(days=90), 100 * 10**9)
    stream = config.streams[0]
    assert (stream.retention.age, stream.retention.max_size) == (timedelta(hours=24), 1024**3)
    assert (stream.checkpoint_every, stream.durable, stream.topic_name) == (timedelta(seconds=5), True, "s")
    database = config.databases[0]
    assert (database.chunk_size, database.buffer_size) == (64 * 1024, 64 * 1024**2)
    assert config.scaling.pressure() == DEFAULT_THRESHOLDS
    assert config.scaling.alpha == 0.3
    fabric = config.fabric
    assert (fabric.heartbeat, fabric.missed, fabric.topology) == (timedelta(seconds=15), 3, "auto")
    assert (fabric.limits.star, fabric.limits.mesh, fabric.limits.federated) == (1000, 500, 10_000)
    assert (fabric.limits.star_switch, fabric.limits.mesh_switch) == (800, 400)
    gateway = config.gateway
    assert (gateway.enabled, gateway.host, gateway.max_request) == (False, "127.0.0.1", 8 * 1024**2)
    bus = config.bus
    assert (bus.max_topics, bus.max_subscribers, bus.max_queued, bus.ring_size) == (1000, 1000, 1_000_000, 65_536)
    assert (config.dagster.host, config.dagster.port) == ("127.0.0.1", 3000)


def test_every_table_has_one_producer(parse: Parse) -> None:
    assert produced_tables(parse(FULL)) == {
        "shop.orders": Producer(table="shop.orders", kind="generate", path="lake.tables[0]"),
        "shop.daily": Producer(table="shop.daily", kind="sql", path="lake.tables[1]"),
        "web.clicks": Producer(table="web.clicks", kind="stream", path="streams[0]"),
        "crm.customers": Producer(table="crm.customers", kind="extract", path="databases[0].tables[0]"),
        "crm.invoices": Producer(table="crm.invoices", kind="extract", path="databases[0].tables[1]"),
    }


def test_inputs_are_the_tables_in_braces_each_once(parse: Parse) -> None:
    daily = parse(FULL).lake.tables[1]
    assert daily.inputs == ("shop.orders", "crm.customers")
    sql = "SELECT '{\"a\": 1}', {A.b}, {1.2}, {a.b} FROM {shop.orders} JOIN {shop.orders}"
    tables = [
        {"name": "shop.orders", "generate": {"kind": "orders"}},
        {"name": "a.b", "sql": "x"},
        {"name": "a.c", "sql": sql},
    ]
    assert parse(yaml.safe_dump({"name": "x", "lake": {"tables": tables}})).lake.tables[2].inputs == (
        "a.b",
        "shop.orders",
    )


def test_a_table_is_shown_in_the_group_of_its_schema_unless_told_otherwise(parse: Parse) -> None:
    orders, daily = parse(FULL).lake.tables
    assert (orders.group_name, daily.group_name) == ("sales", "shop")


def test_settings_of_the_lake_are_what_the_file_says(parse: Parse) -> None:
    config = parse(FULL)
    assert config.lake_settings.is_s3
    assert (config.lake_settings.s3.endpoint, config.lake_settings.s3.path_style) == ("http://127.0.0.1:9000", False)
    assert (config.spark_settings.app_name, config.spark_settings.master) == ("full", "local[2]")
    assert config.spark_settings.driver_memory_mib == 2048
    policy = config.lake.maintenance.policy()
    assert (policy.target_file_bytes, policy.retention) == (256 * 1024**2, timedelta(days=14))
    expected = PressureThresholds(
        warning=0.6, critical=0.8, shedding=0.9, warning_exit=0.5, critical_exit=0.7, shedding_exit=0.85
    )
    assert config.scaling.pressure() == expected


def test_checks_become_expectations(parse: Parse) -> None:
    config = parse(FULL)
    quality = config.quality_of("shop.orders")
    assert quality is not None
    between, unique = quality.expectations()
    assert (between.name, between.severity) == ("amounts_are_positive", Severity.WARNING)
    assert between.parameters == {"min_value": 0, "mostly": 0.99}
    assert (unique.columns, unique.severity) == (("order_id", "country"), Severity.CRITICAL)
    assert config.quality_of("shop.daily") is None


def test_a_config_cannot_be_changed(parse: Parse) -> None:
    config = parse("name: x")
    with pytest.raises(ValidationError):
        config.name = "y"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.gateway.port = 1  # type: ignore[misc]


def sections(model: type[BaseModel] = Section) -> Iterator[type[BaseModel]]:
    for child in model.__subclasses__():
        yield child
        yield from sections(child)


def test_every_key_is_documented() -> None:
    undocumented = [
        f"{model.__name__}.{name}"
        for model in sections()
        for name, field in model.model_fields.items()
        if not (field.description or "").endswith(".")
    ]
    assert undocumented == []


def keys(value: Any) -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from [key] if isinstance(key, str) else []
        yield from keys(item)


def test_the_full_example_uses_every_key_and_no_default() -> None:
    written = set(keys(yaml.safe_load(FULL)))
    known = {field.alias or name for model in sections() for name, field in model.model_fields.items()}
    assert known - written == set()


def test_describing_a_config_fills_in_what_was_left_out(parse: Parse, tmp_path: Path) -> None:
    shown = parse("name: x\nstreams: [{name: s, table: a.b}]").describe()
    assert shown["lake"]["root"] == str(tmp_path / ".dw/lake")
    assert shown["store"]["url"] == f"sqlite:///{tmp_path}/.dw/control.db"
    assert shown["streams"][0]["retention"] == {
        "for": "1d",
        "max_size": "1GiB",
        "when_read": False,
        "keep_unread": True,
    }
    assert shown["fabric"]["heartbeat"] == "15s"


def test_what_is_described_is_a_file_that_means_the_same(parse: Parse) -> None:
    shown = parse(FULL).describe()
    assert parse(yaml.safe_dump(shown)).describe() == shown


def test_the_repositorys_own_platform_loads_and_is_the_demo() -> None:
    config = load_config(REPOSITORY / "platform.yaml", environ={})
    kinds = {name: producer.kind for name, producer in produced_tables(config).items()}
    assert list(kinds) == [
        "shop.orders", "shop.daily_revenue", "web.popular_pages", "web.clicks", "crm.customers"
    ]  # fmt: skip
    assert kinds["web.clicks"] == "stream"
    assert config.lake.tables[0].generate is not None
    assert config.lake.tables[0].generate.rows == 200_000
    assert config.lake.tables[1].inputs == ("shop.orders",)
    assert {check.severity for entry in config.quality for check in entry.checks} == {"critical", "warning"}
    assert len((REPOSITORY / "platform.yaml").read_text().splitlines()) <= 110
