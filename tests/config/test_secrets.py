import json
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.config import ConfigError, PlatformConfig, parse_config
from dw_platform.config.secrets import Options, SecretText, SecretUrl, masked_url

Parse = Callable[..., PlatformConfig]
FULL = Path(__file__).with_name("full.yaml").read_text()
SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:hunter2@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("postgresql://app:hun@ter2/x#y@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app@db/shop", "postgresql://***@db/shop"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("nats://hunter2@h:4222", "nats://***@h:4222"),
        ("sc://h:15002/;use_ssl=true;token=hunter2", "sc://h:15002/;use_ssl=true;token=***"),
        ("https://h/?user=a&password=hunter2&x=1", "https://h/?user=a&password=***&x=1"),
        ("postgresql://[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql://a:1,b:2/x", "postgresql://a:1,b:2/x"),
        ("postgresql://app:hunter2/shop", "***"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
        ("k1:9092,k2:9092", "k1:9092,k2:9092"),
        ("hunter2 and words", "***"),
        ("app:hunter2@host", "***"),
        ("", "***"),
    ],
)
def test_addresses_are_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert SECRET not in shown


passwords = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(passwords)
def test_no_password_is_shown_whatever_characters_it_has(password: str) -> None:
    marked = f"<<{password}>>"
    shown = masked_url(f"postgresql://app:{marked}@db:5432/shop")
    assert marked not in shown
    assert shown in {"postgresql://app:***@db:5432/shop", "***"}


def representations(config: PlatformConfig) -> list[str]:
    dumps = [config.model_dump(), config.model_dump(mode="json"), config.describe()]
    return [
        repr(config),
        str(config),
        config.model_dump_json(),
        json.dumps(config.describe()),
        f"{config.databases[0].url} {config.store.url} {config.broker.password} {config.spark.conf}",
        *map(repr, dumps),
        *map(str, dumps),
        repr(config.lake_settings),
    ]


def test_no_secret_is_in_any_representation_of_a_config(parse: Parse) -> None:
    config = parse(FULL)
    assert [text for text in representations(config) if SECRET in text] == []
    assert "postgresql://dw:***@db:5432/control" in json.dumps(config.describe())


def test_secrets_are_there_for_whoever_needs_them(parse: Parse) -> None:
    config = parse(FULL)
    assert config.store_url == "postgresql://dw:hunter2@db:5432/control"
    assert config.databases[0].url.get_secret_value() == "postgresql+psycopg://app:hunter2@crm/db"
    assert config.lake_settings.s3.secret_key == SECRET
    assert config.spark_settings.remote == "sc://spark:15002/;token=hunter2"
    assert config.spark_settings.conf == {"spark.sql.ansi.enabled": "false", "spark.my.password": SECRET}
    assert config.broker.options["sasl.jaas.config"] == SECRET


def test_secrets_survive_pickling_and_stay_masked(parse: Parse) -> None:
    config = pickle.loads(pickle.dumps(parse(FULL)))
    assert config.store_url == "postgresql://dw:hunter2@db:5432/control"
    assert [text for text in representations(config) if SECRET in text] == []


@pytest.mark.parametrize(
    "text",
    [
        "store: postgresql://u:hunter2@h/db",
        "store: {url: 'postgres:/u:hunter2@h'}",
        "store: {url: [hunter2]}",
        "store: {ulr: 'postgresql://u:hunter2@h/db'}",
        "lake: {root: 'https://u:hunter2@h'}",
        "lake: {s3: {secret_key: {hunter2: 1}}}",
        "lake: {s3: {secret_key: [hunter2]}}",
        "lake: {s3: {endpoint: 'hunter2'}}",
        "spark: {remote: hunter2}",
        "spark: {conf: {my.password: [hunter2]}}",
        "spark: {conf: hunter2}",
        "broker: {kind: 'amqp://u:hunter2@h'}",
        "broker: {kind: kafka, password: hunter2}",
        "broker: {kind: rabbitmq, address: 'amqp://u:hunter2@h with space'}",
        "databases: ['postgresql://u:hunter2@h/db']",
        "databases: [{name: a, url: 'postgresql//u:hunter2@h'}]",
        "databases: [{name: a, url: 'postgresql://u:hunter2@h', tables: 5}]",
        "databases: {crm: 'postgresql://u:hunter2@h'}",
        "gateway: {port: '${SECRET}'}",
        "name: '${SECRET}'",
        "streams: [{name: a, table: '${SECRET}'}]",
        "quality: [{table: '${SECRET}'}]",
        "backups: {policies: [{name: a, tables: ['${SECRET}']}]}",
        "databases: [{name: a, url: 'postgresql://u:${SECRET}@h:${PORT}/x'}]",
        "streams: [{name: a, table: '${TABLE}'}]\nquality: [{table: shop.hunter}]",
        "streams: [{name: a, table: '${TABLE}'}, {name: b, table: '${TABLE}'}]",
        "lake: {tables: [{name: '${TABLE}', sql: 'SELECT * FROM {${TABLE}}'}]}",
        "lake: {tables: [{name: a.b, sql: 'SELECT * FROM {${TABLE}}'}]}",
        "quality: [{table: a.b, checks: [{expect: '${SECRET}'}, {expect: column_to_exist, '${SECRET}': 1}]}]",
        "quality: [{table: a.b, checks: [&x {expect: column_to_exist, column: '${SECRET}'}, *x]}]",
        "quality: [{table: a.b, checks: [{expect: column_min_to_be_between, column: a, min_value: '${SECRET}'}]}]",
        "a: 'postgresql://u:hunter2@h",
        "a: *hunter2",
        "? {password: hunter2}\n: x",
    ],
)
def test_no_secret_is_in_an_error_or_its_traceback(text: str, caplog: pytest.LogCaptureFixture) -> None:
    environ = {"SECRET": SECRET, "TABLE": f"shop.{SECRET}"}
    try:
        parse_config(f"nmae: x\n{text}", source=Path("platform.yaml"), environ=environ)
    except ConfigError as error:
        logging.getLogger("test").exception("failed")
        shown = [str(error), repr(error), repr(error.problems), "".join(traceback.format_exception(error))]
        reason = error.__context__
    assert reason is None
    assert [part for part in [*shown, caplog.text] if SECRET in part] == []


def test_options_read_as_texts_and_cannot_be_changed() -> None:
    options = Options({"a": "1"})
    assert (options["a"], list(options), len(options)) == ("1", ["a"], 1)
    assert options == {"a": "1"}
    assert hash(options) == hash(Options({"a": "1"}))
    assert not hasattr(options, "__setitem__")


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("sasl.password", "x", "***"),
        ("fs.s3a.secret.key", "x", "***"),
        ("fs.azure.account.key.me", "x", "***"),
        ("AUTH_TOKEN", "x", "***"),
        ("jdbc.url", "jdbc:postgresql://u:hunter2@h/x", "***"),
        ("proxy", "http://u:hunter2@h", "http://u:***@h"),
        ("client.id", "dw", "dw"),
    ],
)
def test_options_with_sensitive_names_or_addresses_are_masked(key: str, value: str, shown: str) -> None:
    assert Options({key: value}).shown() == {key: shown}
    assert repr(Options({key: value})) == f"Options({{{key!r}: {shown!r}}})"


def test_secret_values_show_a_mask() -> None:
    assert repr(SecretText(SECRET)) == "SecretText('***')"
    assert str(SecretUrl("redis://:hunter2@h")) == "redis://:***@h"
