"""Bodies of any kind: the text of each record is kept, and damage is an answer, never a crash."""

import contextlib
import json

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import UserError
from dw_platform.gateway.arrow_body import parse_arrow
from dw_platform.gateway.arrow_message import is_compressed
from dw_platform.gateway.parsing import element_texts, parse_json, parse_ndjson
from dw_platform.gateway.rejections import ranges, summary
from dw_platform.gateway.settings import TopicRules

RULES = TopicRules()
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def stream(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    content: bytes = sink.getvalue().to_pybytes()
    return content


WHOLE = stream(
    pa.table(
        {
            "value": [b"one", b"", None, b"four"],
            "key": ["a", None, "c", "d"],
            "headers": pa.array([[("h", b"1")], None, [], [("x", b"2")]], pa.map_(pa.string(), pa.binary())),
            "timestamp": pa.array([1, 2, 3, 4], pa.timestamp("us")),
        }
    )
)


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 1, 4]), st.booleans())
def test_the_elements_of_an_array_are_found_however_it_is_written(
    values: list[object],
    indent: int | None,
    ascii_only: bool,  # noqa: FBT001
) -> None:
    body = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    texts = [text for text in element_texts(body) if text]
    assert [orjson.loads(text) for text in texts] == values


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), min_size=1, max_size=300))
def test_what_is_sent_as_lines_comes_out_as_the_same_lines(objects: list[dict[str, object]]) -> None:
    lines = [orjson.dumps(each) for each in objects]
    batch = parse_ndjson(b"\n".join(lines), RULES)
    values = batch.records.values
    assert (values if isinstance(values, list) else values.to_pylist()) == lines
    assert batch.bytes == sum(map(len, lines))


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_an_error_in_words(body: bytes) -> None:
    for parse in (parse_json, parse_ndjson, parse_arrow):
        with contextlib.suppress(UserError):
            assert len(parse(body, RULES).records) > 0


@settings(max_examples=300)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_arrow_stream_never_takes_the_process_down(at: int, flip: int) -> None:
    # Without a bit to flip it is cut.
    damaged = WHOLE[:at] + bytes([WHOLE[at] ^ flip]) + WHOLE[at + 1 :] if flip else WHOLE[:at]
    try:
        batch = parse_arrow(damaged, RULES)
    except UserError:
        return
    for value in batch.records.values.to_pylist():
        assert value is None or isinstance(value, bytes)


def test_a_stream_of_several_batches_is_read_whole() -> None:
    batch = parse_arrow(WHOLE, RULES)
    assert batch.records.values.to_pylist() == [b"one", b"", None, b"four"]
    assert batch.records.keys.to_pylist() == [b"a", None, b"c", b"d"]
    assert list(batch.records.timestamps_ms.to_pylist()) == [0, 0, 0, 0], "microseconds, cut to milliseconds"
    assert batch.bytes == 7 + 3 + 4


def test_large_and_sliced_columns_are_read() -> None:
    values = pa.array(["a", "bb", "ccc"], pa.large_string()).slice(1)
    assert parse_arrow(stream(pa.table({"value": values})), RULES).records.values.to_pylist() == [b"bb", b"ccc"]


def test_arrow_without_a_key_column_is_keyed_by_its_content_where_the_topic_wants_it() -> None:
    rules = TopicRules(key_field="id")
    batch = parse_arrow(stream(pa.table({"value": [b'{"id": "x"}', b"nonsense", None]})), rules)
    assert (batch.records.keys, [index for index, _ in batch.rejected]) == ([b"x"], [1, 2])
    times = pa.array([1], pa.timestamp("ms"))
    with pytest.raises(UserError, match="column `key`"):
        parse_arrow(stream(pa.table({"value": [b"{}"], "timestamp": times})), rules)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression_is_seen_before_anything_is_unpacked(codec: str) -> None:
    table = pa.table({"value": [b"x" * 1000]})
    for options, expected in (({}, False), ({"compression": codec}, True)):
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream(table, **options)))
        messages.read_next_message()
        assert is_compressed(messages.read_next_message().metadata.to_pybytes()) is expected


def test_dictionaries_are_refused() -> None:
    with pytest.raises(UserError, match="dictionary"):
        parse_arrow(stream(pa.table({"value": pa.array(["a", "a"]).dictionary_encode()})), RULES)


def test_rejected_records_are_told_by_ranges() -> None:
    assert ranges([]) == []
    assert ranges([0, 1, 2, 7, 9, 10]) == [[0, 2], [7, 7], [9, 10]]
    told = summary([(number, "why") for number in range(500)])
    assert (told["rejected_count"], len(told["rejected"]), told["rejected_ranges"]) == (500, 100, [[0, 499]])
