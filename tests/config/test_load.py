"""Every way to write a wrong file, with the place and the advice that the error has to give."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.config import ConfigError, PlatformConfig, load_config, parse_config
from dw_platform.foundation import UserError

Refuse = Callable[..., ConfigError]
Parse = Callable[..., PlatformConfig]

ORDERS = "{name: shop.orders, generate: {kind: orders}}"


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("home: x", "name", "is missing; allowed: Name of the platform"),
        ("name: My Shop", "name", "cannot be My Shop; allowed: lower-case letters"),
        ("name: 5", "name", "cannot be 5; allowed: lower-case letters"),
        ("nam: x", "nam", "is not a known key (did you mean name?)"),
        ("home: 5", "home", "cannot be 5; allowed: a folder; put it in quotes"),
        ("home: ' '", "home", "allowed: a folder"),
        ("home: ~nobody_of_that_name/x", "home", "nobody is known by the name after ~"),
        ("'[key]': 1", '["[key]"]', "is not a known key"),
        ('"a\\nb": 1', '["a\\nb"]', "is not a known key"),
        (
            "streams: [{name: a, table: b.c, format: json, columns: {' ': int}}]",
            'streams[0].columns[" "]',
            "the name of a",
        ),
        ("lake: text", "lake", "cannot be a single value; allowed: the keys root, s3, maintenance, tables"),
        ("lake: [1]", "lake", "cannot be a list; allowed: the keys root"),
        ("lake: {tables: {a: 1}}", "lake.tables", "cannot be keys and values; allowed: a list"),
        ("lake: {tables: [5]}", "lake.tables[0]", "cannot be a single value; allowed: the keys name"),
        ("lake: {root: gs://bucket}", "lake.root", "allowed: a folder, s3://BUCKET"),
        ("lake: {root: s3://B}", "lake.root", "allowed: a folder, s3://BUCKET"),
        ("lake: {s3: {endpoint: ftp://x}}", "lake.s3.endpoint", "does not fit; allowed: an address such as http://"),
        ("lake: {s3: {path_style: 1}}", "lake.s3.path_style", "cannot be 1; allowed: true or false"),
        ("lake: {s3: {path_style: yes}}", "lake.s3.path_style", "cannot be yes; allowed: true or false"),
        ("lake: {maintenance: {retention: 59m}}", "lake.maintenance.retention", "at least 1h"),
        ("lake: {maintenance: {retention: 7}}", "lake.maintenance.retention", "cannot be 7; allowed: a duration"),
        ("lake: {maintenance: {target_file_size: 64}}", "lake.maintenance.target_file_size", "at least 1MiB"),
        ("lake: {tables: [{name: Orders, sql: x}]}", "lake.tables[0].name", "cannot be Orders; allowed: schema.table"),
        ("lake: {tables: [{name: a.b.c, sql: x}]}", "lake.tables[0].name", "allowed: schema.table"),
        ("lake: {tables: [{name: ops.x, sql: x}]}", "lake.tables[0].name", "the platform's own schema ops"),
        ("lake: {tables: [{name: a.b}]}", "lake.tables[0]", "allowed: generate or sql"),
        ("backups: {encryption: {}}", "backups.encryption", "has no key; allowed: exactly one of key"),
        ("backups: {encryption: {key: a, key_file: b}}", "backups.encryption", "has both key and key_file"),
        ("backups: {grace: 30m}", "backups.grace", "at least 1h"),
        (
            "lake: {tables: [{name: a.b, sql: x, generate: {kind: orders}}]}",
            "lake.tables[0]",
            "allowed: exactly one of generate and sql",
        ),
        ("lake: {tables: [{name: a.b, sql: ''}]}", "lake.tables[0].sql", "is empty; allowed: a SELECT statement"),
        ("lake: {tables: [{name: a.b, generate: {}}]}", "lake.tables[0].generate.kind", "is missing"),
        ("lake: {tables: [{name: a.b, generate: {kind: x}}]}", "lake.tables[0].generate.kind", "allowed: orders"),
        (
            "lake: {tables: [{name: a.b, generate: {kind: orders, rows: 0}}]}",
            "lake.tables[0].generate.rows",
            "cannot be 0; allowed: a whole number, 1 or more",
        ),
        (
            "lake: {tables: [{name: a.b, generate: {kind: orders, rows: 1.5}}]}",
            "lake.tables[0].generate.rows",
            "cannot be 1.5; allowed: a whole number, 1 or more",
        ),
        (
            "lake: {tables: [{name: a.b, generate: {kind: orders, rows: true}}]}",
            "lake.tables[0].generate.rows",
            "cannot be true; allowed: a whole number",
        ),
        ("lake: {tables: [{name: a.b, sql: x, owners: [me]}]}", "lake.tables[0].owners[0]", "team:NAME"),
        ("lake: {tables: [{name: a.b, sql: x, group: a b}]}", "lake.tables[0].group", "letters, digits and _"),
        ("lake: {tables: [{name: a.b, sql: x, schedule: hourly}]}", "lake.tables[0].schedule", "has 1 fields instead"),
        ("lake: {tables: [{name: a.b, sql: x, schedule: 5}]}", "lake.tables[0].schedule", "is not a schedule"),
        (
            f"lake: {{tables: [{ORDERS}, {{name: a.b, sql: 'SELECT * FROM {{shop.order}}'}}]}}",
            "lake.tables[1].sql",
            "reads {shop.order}, which nothing produces (did you mean shop.orders?); allowed: a.b, shop.orders",
        ),
        (
            "lake: {tables: [{name: a.b, sql: 'SELECT * FROM {orders}'}]}",
            "lake.tables[0].sql",
            "reads {orders}, which nothing produces",
        ),
        (
            "lake: {tables: [{name: a.b, sql: 'SELECT * FROM {a.b}'}]}",
            "lake.tables[0].sql",
            "needs itself: a.b needs a.b",
        ),
        (f"lake: {{tables: [{ORDERS}, {ORDERS}]}}", "lake.tables[1].name", "already produced by lake.tables[0]"),
        ("store: sqlite:///x.db", "store", "cannot be a single value; allowed: the keys url"),
        ("store: {url: mysql://x}", "store.url", "allowed: memory://, file://FOLDER"),
        ("store: {url: sqlite://}", "store.url", "allowed: memory://, file://FOLDER"),
        ("store: {url: memory://x}", "store.url", "allowed: memory://, file://FOLDER"),
        ("store: {url: 5}", "store.url", "does not fit; allowed: memory://"),
        ("spark: {driver_memory: 1MiB}", "spark.driver_memory", "cannot be 1MiB; allowed: a size"),
        ("spark: {remote: spark://x}", "spark.remote", "allowed: a Spark Connect address"),
        ("spark: {conf: [a]}", "spark.conf", "allowed: names and values"),
        ("spark: {conf: {a: [b]}}", "spark.conf", "has something else under a; allowed: texts, numbers"),
        (
            "broker: {kind: zeromq}",
            "broker.kind",
            "cannot be zeromq; allowed: embedded, kafka, pulsar, nats or rabbitmq",
        ),
        ("broker: {kind: kafka}", "broker.address", "is needed for kafka"),
        ("broker: {address: 'x:1'}", "broker.address", "does not belong to the embedded broker"),
        ("streams: [{name: a, table: b.c, broker: {kind: nats}}]", "streams[0].broker.address", "is needed for nats"),
        ("streams: [{name: a}]", "streams[0].table", "is missing; allowed: The table it fills, as schema.table"),
        (
            "streams: [{name: a, table: x.y}, {name: a, table: x.z}]",
            "streams[1].name",
            "is already the name of streams[0]",
        ),
        (
            "streams: [{name: a, table: x.y}, {name: b, table: x.y}]",
            "streams[1].table",
            "already produced by streams[0]",
        ),
        ("streams: [{name: a, table: b.c, format: json}]", "streams[0].columns", "is needed for json"),
        ("streams: [{name: a, table: b.c, columns: {x: int}}]", "streams[0].columns", "does not belong to raw"),
        (
            "streams: [{name: a, table: b.c, format: json, columns: {x: varchar}}]",
            "streams[0].columns.x",
            "cannot be varchar; allowed: string, boolean",
        ),
        (
            "streams: [{name: a, table: b.c, backpressure: drop_oldest}]",
            "streams[0].backpressure",
            "cannot be drop_oldest on a durable stream",
        ),
        ("streams: [{name: a, table: b.c, partitions: 0}]", "streams[0].partitions", "from 1 to 10,000"),
        ("streams: [{name: a, table: b.c, retention: {for: 0s}}]", "streams[0].retention.for", "allowed: a duration"),
        ("streams: [{name: a, table: b.c, fsync: never}]", "streams[0].fsync", "the keys mode, messages, interval"),
        ("databases: [{name: a}]", "databases[0].url", "is missing; allowed: SQLAlchemy's address"),
        ("databases: [{name: a, url: not an address}]", "databases[0].url", "does not fit; allowed: an SQLAlchemy"),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, mode: incremental}]}]",
            "databases[0].tables[0].cursor",
            "is needed for incremental",
        ),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, cursor: d}]}]",
            "databases[0].tables[0].cursor",
            "does not belong to full",
        ),
        (
            "databases: [{name: a, url: 'mysql://h/x', generate: {kind: customers}}]",
            "databases[0].generate",
            "makes up rows in SQLite only",
        ),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, reconcile: '@daily'}]}]",
            "databases[0].tables[0].reconcile",
            "does not belong to full",
        ),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, key: [k], exclude: [k]}]}]",
            "databases[0].tables[0].exclude",
            "leaves out k, which key names",
        ),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, key: [k], columns: [v]}]}]",
            "databases[0].tables[0].columns",
            "leaves out k; allowed: with the key and the cursor",
        ),
        (
            "databases: [{name: a, url: 'sqlite:///x', tables: [{source: t, table: b.c, mode: incremental, cursor: c, overlap: soon}]}]",  # noqa: E501
            "databases[0].tables[0].overlap",
            "cannot be soon; allowed: a duration with its unit",
        ),
        (
            "backups: {policies: [{name: a, tables: [x.y]}]}",
            "backups.policies[0].tables[0]",
            "is not produced by anything",
        ),
        ("backups: {policies: [{name: a, tables: ['x.*']}]}", "backups.policies[0].tables[0]", "matches no table"),
        ("backups: {policies: [{name: a, tables: []}]}", "backups.policies[0].tables", "allowed: at least one entry"),
        (
            f"lake: {{tables: [{ORDERS}]}}\nbackups: {{policies: [{{name: a, tables: ['*'], keep: {{for: 90}}}}]}}",
            "backups.policies[0].keep.for",
            "cannot be 90; allowed: a duration with its unit",
        ),
        ("quality: [{table: x.y}]", "quality[0].table", "x.y is not produced by anything"),
        (
            f"lake: {{tables: [{ORDERS}]}}\nquality: [{{table: shop.orders}}, {{table: shop.orders}}]",
            "quality[1].table",
            "is already the name of quality[0]",
        ),
        ("scaling: {alpha: 0}", "scaling.alpha", "a share above 0 and up to 1"),
        ("scaling: {alpha: 1e999}", "scaling.alpha", "a share above 0 and up to 1"),
        ("scaling: {mode: auto}", "scaling.mode", "cannot be auto; allowed: act or recommend"),
        ("scaling: {thresholds: {warning: 150%}}", "scaling.thresholds.warning", "cannot be 150%; allowed: a share"),
        ("scaling: {thresholds: {warning: 90%}}", "scaling.thresholds.critical", "above warning (0.9)"),
        ("scaling: {thresholds: {warning_exit: 72%}}", "scaling.thresholds.warning_exit", "below warning (0.7)"),
        ("gateway: {port: 70000}", "gateway.port", "cannot be 70000; allowed: a whole number from 1 to 65,535"),
        ("gateway: {port: '8080'}", "gateway.port", "cannot be 8080; allowed: a whole number"),
        ("gateway: {host: a b}", "gateway.host", "allowed: a host name"),
        ("gateway: {max_request: 8}", "gateway.max_request", "cannot be 8; allowed: a size with its unit"),
        ("fabric: {topology: ring}", "fabric.topology", "allowed: auto, star, mesh or federated"),
        ("fabric: {limits: {star: 10}}", "fabric.limits.star", "lets a star outgrow its limit"),
        ("gateway: {port: !!int x}", "gateway.port", "has a YAML tag that does not fit it"),
    ],
)
def test_a_wrong_file_is_answered_with_the_place_and_what_is_allowed(
    refuse: Refuse, text: str, path: str, words: str
) -> None:
    error = refuse(text if text.startswith(("name:", "nam:", "home: x")) else f"name: demo\n{text}")
    problems = {problem.path: str(problem) for problem in error.problems}
    assert words in problems[path]
    assert "(line " in problems[path] or path == "name"


CHECKS = f"name: demo\nlake: {{tables: [{ORDERS}]}}\nquality:\n  - table: shop.orders\n    checks:\n      - "


@pytest.mark.parametrize(
    ("check", "key", "words"),
    [
        ("{expect: column_values_to_not_be_nul, column: a}", "expect", "(did you mean column_values_to_not_be_null?)"),
        ("{column: a}", "expect", "is missing"),
        ("{expect: column_to_exist}", "column", "is missing; allowed: the name of one column"),
        ("{expect: column_to_exist, column: 5}", "column", "cannot be 5; allowed: the name of a column"),
        ("{expect: compound_columns_to_be_unique, columns: a}", "columns", "cannot be a single value; allowed: a list"),
        ("{expect: compound_columns_to_be_unique, columns: [a]}", "columns", "a list of at least two columns"),
        ("{expect: compound_columns_to_be_unique, column: a, columns: [a, b]}", "columns", "is written besides column"),
        ("{expect: column_values_to_be_between, column: a, min: 1}", "min", "(did you mean min_value?)"),
        ("{expect: column_values_to_be_between, column: a, min_value: [1]}", "min_value", "wrong kind"),
        ("{expect: column_to_exist, column: a, severity: fatal}", "severity", "allowed: critical, warning or info"),
        ("{expect: column_to_exist, column: a, name: A B}", "name", "is not a usable name"),
        ("{expect: column_to_exist, column: a, name: row_count}", "name", "the check for rows that every table gets"),
        ("{expect: 5}", "expect", "cannot be 5; allowed: text; put it in quotes"),
    ],
)
def test_a_wrong_check_is_answered_under_its_own_key(refuse: Refuse, check: str, key: str, words: str) -> None:
    problems = {problem.path: str(problem) for problem in refuse(CHECKS + check).problems}
    assert words in problems[f"quality[0].checks[0].{key}"]
    assert "(line 6)" in problems[f"quality[0].checks[0].{key}"]


def test_two_checks_with_one_name_are_told_to_take_another(refuse: Refuse) -> None:
    check = "{expect: column_values_to_be_between, column: amount, min_value: 0}"
    [problem] = refuse(f"{CHECKS}{check}\n      - {check}").problems
    assert problem.path == "quality[0].checks[1].name"
    assert "amount_values_to_be_between is already the name of quality[0].checks[0]" in problem.message


def test_all_problems_come_at_once_in_the_order_of_the_file(refuse: Refuse) -> None:
    error = refuse(
        """\
name: demo
hoem: x
lake:
  tables:
    - {name: shop.a, sql: "SELECT * FROM {shop.b}"}
    - {name: shop.b, sql: "SELECT * FROM {shop.a}"}
databases:
  - {name: crm, url: "postgresql://app:${CRM_PASSWORD}@db/crm"}
streams:
  - {name: clicks, table: 5}
backups:
  policies:
    - {name: nightly, tables: [shop.c]}
gateway: {port: high}
name: again
"""
    )
    assert [(problem.path, problem.line) for problem in error.problems] == [
        ("hoem", 2),
        ("lake.tables[0].sql", 5),
        ("databases[0].url", 8),
        ("streams[0].table", 10),
        ("backups.policies[0].tables[0]", 13),
        ("gateway.port", 14),
        ("name", 15),
    ]
    assert str(error).startswith(f"{error.source} has 7 problems:\n  hoem: is not a known key (did you mean home?)")
    assert "shop.a needs shop.b needs shop.a" in str(error)
    assert isinstance(error, UserError)


def test_two_separate_cycles_are_both_reported(refuse: Refuse) -> None:
    tables = ", ".join(
        f"{{name: s.{name}, sql: 'SELECT * FROM {{s.{other}}}'}}"
        for name, other in ("ab", "ba", "cd", "de", "ec", "fa")
    )
    problems = refuse(f"name: x\nlake: {{tables: [{tables}]}}").problems
    assert [problem.message for problem in problems] == [
        "needs itself: s.a needs s.b needs s.a",
        "needs itself: s.c needs s.d needs s.e needs s.c",
    ]


def test_an_unset_variable_is_the_only_thing_said_about_its_value(refuse: Refuse) -> None:
    text = (
        "name: x\nstreams: [{name: a, table: '${TABLE}'}]\nquality: [{table: shop.orders}]\ngateway: {port: '${PORT}'}"
    )
    assert [problem.path for problem in refuse(text).problems] == ["streams[0].table", "gateway.port"]


def test_variables_become_what_the_field_wants(parse: Parse) -> None:
    text = f"""\
name: x
gateway: {{port: "${{PORT}}", enabled: "${{ON}}"}}
scaling: {{mode: "${{MODE}}", alpha: "${{ALPHA}}", thresholds: {{warning: "${{WARNING}}"}}}}
streams: [{{name: a, table: b.c, durable: "${{OFF}}", backpressure: drop_oldest}}]
lake: {{tables: [{ORDERS}]}}
quality:
  - table: shop.orders
    checks:
      - {{expect: column_values_to_be_between, column: amount, min_value: "${{ZERO}}", strict_min: "${{ON}}"}}
      - {{expect: column_values_to_match_regex, column: country, regex: "${{ZERO}}"}}
"""
    variables = {"PORT": "8_081", "ON": "true", "OFF": "False", "MODE": "recommend", "WARNING": "60.5%"}
    config = parse(text, ALPHA="0.5", ZERO="0", **variables)
    assert (config.gateway.port, config.gateway.enabled) == (8081, True)
    assert (config.scaling.mode, config.scaling.alpha, config.scaling.thresholds.warning) == ("recommend", 0.5, 0.605)
    between, regex = config.quality[0].expectations()
    assert between.parameters == {"min_value": 0, "strict_min": True}
    assert regex.parameters == {"regex": "0"}
    assert type(config.scaling.mode) is str


def test_a_durable_stream_may_not_drop_whatever_way_durable_is_written(refuse: Refuse) -> None:
    text = "name: x\nstreams: [{name: a, table: b.c, durable: '${ON}', backpressure: drop_oldest}]"
    assert [problem.path for problem in refuse(text, ON="True").problems] == ["streams[0].backpressure"]


def test_a_section_whose_entries_are_commented_out_is_the_default(parse: Parse) -> None:
    assert parse("name: x\nstreams:\n  # - {name: a}\nlake:\n").streams == ()


def test_the_path_of_the_file_is_in_the_message_and_on_the_config(tmp_path: Path) -> None:
    path = tmp_path / "platform.yaml"
    path.write_text("name: demo\n")
    assert load_config(path, environ={}).source == path
    path.write_text("name: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    assert str(caught.value).startswith(f"{path}: name: cannot be 1; allowed: ")


def test_loading_is_quick_and_imports_no_heavy_library() -> None:
    heavy = ["pyspark", "deltalake", "great_expectations", "dagster", "pandas", "pyarrow", "sqlalchemy"]
    script = f"import sys, dw_platform.config; print([name for name in {heavy} if name in sys.modules])"
    started = time.monotonic()
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert time.monotonic() - started < 10  # 0.6 s on a quiet machine


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["shop.orders", "64KiB", "15s", "${X}", "${", "*", "@daily", "kafka", "column_to_exist", "s3://b"]),
)
FULL = Path(__file__).with_name("full.yaml").read_text()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from places(item, (*place, key))


KNOWN_KEYS = sorted({str(place[-1]) for place in places(yaml.safe_load(FULL))})
keys = st.text(max_size=8) | st.sampled_from(KNOWN_KEYS)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)


def raises_only_config_errors(text: str) -> None:
    try:
        config = parse_config(text, source=Path("platform.yaml"), environ={})
    except ConfigError as error:
        problems = error.problems
    else:
        problems = []
        assert config.describe()["name"] == config.name
    assert all(str(problem) for problem in problems)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(keys, trees, max_size=8))
def test_any_document_loads_or_raises_a_config_error(document: dict[str, Any]) -> None:
    raises_only_config_errors(yaml.safe_dump(document, allow_unicode=True))


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet=st.sampled_from(list("ab:-[]{},&*!|>'\"%@#?~$ \n\t\\0123\x00é")), max_size=60))
def test_any_text_loads_or_raises_a_config_error(text: str) -> None:
    raises_only_config_errors(text)


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_good_file_with_any_one_value_replaced_loads_or_raises_a_config_error(data: st.DataObject) -> None:
    document = yaml.safe_load(FULL)
    place = data.draw(st.sampled_from(list(places(document))))
    target = document
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = data.draw(trees)
    raises_only_config_errors(yaml.safe_dump(document))
