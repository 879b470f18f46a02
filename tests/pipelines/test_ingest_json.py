"""JSON to columns: the bulk way gives what the careful way gives, and no record rejects its neighbours."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.pipelines.ingest_careful import one_by_one
from dw_platform.pipelines.ingest_json import in_bulk, parse_values
from dw_platform.pipelines.ingest_types import column_type, json_schema

COLUMNS = {
    "text": "string",
    "flag": "boolean",
    "small": "int",
    "big": "bigint",
    "single": "float",
    "double": "double",
    "day": "date",
    "at": "timestamp",
    "blob": "binary",
    "amount": "decimal(12,2)",
    "huge": "decimal(38,0)",
}
SCHEMA = json_schema(COLUMNS)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["2024-02-29", "2024-02-30", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05.123456", "aGk=", "1.50"]),
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "text": st.none() | st.text(max_size=20),
        "flag": st.none() | st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1),
        "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
        "day": st.dates().map(str),
        "at": st.integers(0, 4_102_444_800_000_000).map(
            lambda us: str(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us))
        ),
        "blob": st.sampled_from(["", "aGk=", "AAEC"]),
        "amount": st.decimals(-(10**9), 10**9, places=2).map(float),
        "huge": st.integers(-(10**38) + 1, 10**38 - 1),
        "unknown": anything,
    },
)
documents = st.one_of(
    fitting,
    st.dictionaries(st.sampled_from([*COLUMNS, "other"]), anything, max_size=4),
)
odd = st.sampled_from(
    [
        b"",
        b" ",
        b"\n",
        b"null",
        b"5",
        b"[]",
        b"{",
        b"}",
        b'{"big":1}{"big":2}',
        b'{"big":1} null {"big":2}',
        b'{"big":1}\n{"big":2}',
        b'{"big":1',
        b'"x":2}',
        b'{"big":1,',
        b'{"text":"}',
        b'{"text":"a\nb"}',
        b'{"text":"\\ud800"}',
        b'{"text":"\\ud83d\\ude00"}',
        b'{"big":1,"big":2}',
        b'{"other":1,"other":2}',
        b'{"double":NaN}',
        b'{"other":-Infinity}',
        b'{"double":1e400}',
        b'{"single":1e39}',
        b'{"big":1.0}',
        b'{"big":1e3}',
        b'{"big":-0}',
        b'{"amount":1.005}',
        b'{"amount":1.50000}',
        b'{"amount":1e2}',
        b'{"at":"2024-01-02"}',
        b'{"at":"2024-01-02T03:04:05.1234567Z"}',
        b'{"text":"\xff"}',
        b'{"other":"\xff"}',
        b'\xef\xbb\xbf{"big":1}',
        b'{"big":1}}',
        b'{"big":1},',
        b'{"text":"} null {"}',
        b'{ "text" : "pretty"\n}',
        '{"blob":"é"}'.encode(),
        b'{"blob":"a"}',
        b'{"other":[{"x":{}},{}],"big":5}',
    ]
)
values = st.lists(st.one_of(st.none(), odd, documents.map(lambda each: json.dumps(each).encode())), max_size=8)


def binary(items: list[bytes | None]) -> pa.Array:
    return pa.array(items, pa.binary())


@settings(deadline=None)
@given(items=values)
@example(items=[b'{"big":1}{"big":2}', b""])
@example(items=[b'{"big":1}', b"null"])
def test_whatever_the_bulk_way_takes_the_careful_way_takes_alike(items: list[bytes | None]) -> None:
    rows = in_bulk(binary(items), SCHEMA) if items else None
    if rows is not None:
        careful, reasons = one_by_one(binary(items), SCHEMA)
        assert reasons == {}
        assert rows.equals(careful)


@settings(deadline=None)
@given(items=st.lists(fitting.map(lambda each: json.dumps(each).encode()), min_size=1, max_size=20))
def test_good_records_are_all_taken_by_the_careful_way(items: list[bytes]) -> None:
    rows, reasons = one_by_one(binary(list(items)), SCHEMA)
    assert (len(rows), reasons) == (len(items), {})


@settings(deadline=None)
@given(items=values)
def test_every_value_becomes_a_row_in_its_place_or_has_a_reason(items: list[bytes | None]) -> None:
    parsed = parse_values(binary(items), SCHEMA)
    assert len(parsed.good) == len(items)
    alone = [parse_values(binary([item]), SCHEMA) for item in items]
    assert {number for number, each in enumerate(alone) if each.reasons} == set(parsed.reasons)
    assert parsed.rows.to_pylist() == [row for each in alone for row in each.rows.to_pylist()]


def test_one_bad_record_among_many_rejects_itself_only() -> None:
    items: list[bytes | None] = [b'{"big":%d}' % number for number in range(5_000)]
    items[1_234], items[4_999] = b'{"big":"x"}', None
    parsed = parse_values(binary(items), SCHEMA)
    assert parsed.reasons == {1_234: "big: a text is not a bigint", 4_999: "no value"}
    assert parsed.rows["big"].to_pylist() == [number for number in range(4_999) if number != 1_234]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        (b'{"big":9007199254740993}', "big", 9007199254740993),
        (b'{"huge":99999999999999999999999999999999999999}', "huge", Decimal("9" * 38)),
        (b'{"amount":0.1}', "amount", Decimal("0.10")),
        (b'{"amount":"12.50"}', "amount", Decimal("12.50")),
        (b'{"at":"2024-01-02T03:04:05+02:00"}', "at", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
        (b'{"at":"2024-01-02T03:04:05"}', "at", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (b'{"day":"2024-02-29"}', "day", date(2024, 2, 29)),
        (b'{"blob":"aGk="}', "blob", b"hi"),
        (b'{"unknown":1}', "big", None),
        (b'{"big":null}', "big", None),
    ],
)
def test_values_are_exact_and_what_is_missing_is_null(value: bytes, field: str, expected: Any) -> None:
    for rows in (in_bulk(binary([value]), SCHEMA), one_by_one(binary([value]), SCHEMA)[0]):
        assert rows is not None
        assert rows[field].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"null", "no value"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'{"double":NaN}', "not JSON: NaN is no number there"),
        (b'{"big":true}', "big: a boolean is not a bigint"),
        (b'{"big":1.5}', "big: the value does not fit a bigint"),
        (b'{"small":3000000000}', "small: the value does not fit a int"),
        (b'{"text":5}', "text: a number is not a string"),
        (b'{"text":{}}', "text: an object is not a string"),
        (b'{"amount":1.005}', "amount: the value does not fit a decimal(12,2)"),
        (b'{"single":1e39}', "single: the value is too large for a float"),
        (b'{"big":1,"big":1}', "big: the field is there more than once"),
    ],
)
def test_a_reason_names_the_field_and_not_its_value(value: bytes | None, reason: str) -> None:
    assert parse_values(binary([value]), SCHEMA).reasons == {0: reason}


def test_a_decimal_that_cannot_be_is_refused() -> None:
    assert column_type("decimal(12, 2)") == pa.decimal128(12, 2)
    with pytest.raises(InvalidValueError, match="up to 38"):
        column_type("decimal(39,2)")
