"""The fast reader of Kafka's batches, held against a slow writer of them and against damage."""

import random
import struct
import subprocess
import sys
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.log import SCHEMA
from dw_platform.streaming.brokers.kafka_batches import SPARE, DamagedError, OldFormatError, parts_in, visible
from dw_platform.streaming.brokers.kafka_columns import to_arrow
from tests.streaming.kafka_writer import (
    APPEND_TIME,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Sample,
    batch,
    marker,
    sealed,
    varint,
)

Pair = tuple[bytes, bytes | None]
NAMES = st.text(st.characters(codec="utf-8"), max_size=8).map(str.encode)
CONTENT = st.none() | st.binary(max_size=80) | st.integers(0, 20_000).map(lambda size: b"x" * size)
SAMPLES = st.builds(
    Sample,
    value=CONTENT,
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=4).map(tuple),
    time_delta=st.integers(-(2**40), 2**40),
)


def read(data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> pa.Table:
    buffer = bytearray(data + bytes(SPARE))
    parts = list(parts_in(buffer, 0, len(data)))
    table = pa.Table.from_batches(list(to_arrow(buffer, visible(buffer, parts, aborted))), SCHEMA)
    table.validate(full=True)
    return table


def values(data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> list[bytes | None]:
    return list(read(data, aborted)["value"].to_pylist())


@settings(max_examples=150, deadline=None)
@given(batches=st.lists(st.lists(SAMPLES, min_size=1, max_size=30), min_size=1, max_size=4), codec=st.integers(0, 4))
def test_whatever_was_written_is_read(batches: list[list[Sample]], codec: int) -> None:
    data, base, expected = b"", 7, []
    for number, samples in enumerate(batches):
        data += batch(samples, base_offset=base, base_time=10**12 + number, attributes=codec if number % 2 else 0)
        for position, sample in enumerate(samples):
            headers = [(name.decode(), value) for name, value in sample.headers] or None
            time = 10**12 + number + sample.time_delta
            expected.append((base + position, time, sample.key, sample.value, headers))
        base += len(samples) + 3
    table = read(data)
    columns = [table["timestamp"].cast(pa.int64()) if name == "timestamp" else table[name] for name in SCHEMA.names]
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize("size", [0, 1, 50, 100, 8_100, 20_000])
def test_long_runs_of_one_length_and_their_ends(size: int) -> None:
    """Runs are found by comparing many lengths at once, so their edges are where that could go wrong."""
    chance = random.Random(size)
    lengths = [size] * 300 + [size + 1] * 5 + [size] * 150 + [chance.choice([size, size + 1]) for _ in range(300)]
    contents = [bytes([chance.randrange(256)]) * length for length in lengths]
    assert values(batch([Sample(content) for content in contents])) == contents


def test_many_large_batches_come_in_pieces_and_in_order() -> None:
    contents = [b"%06d" % number + b"." * 200 for number in range(30_000)]
    data = b"".join(
        batch([Sample(content) for content in contents[start : start + 1000]], base_offset=start)
        for start in range(0, 30_000, 1000)
    )
    table = read(data)
    assert table["value"].to_pylist() == contents
    assert table["offset"].to_pylist() == list(range(30_000))
    assert table["value"].num_chunks > 1


def test_offsets_keep_the_gaps_that_compaction_left() -> None:
    samples = [Sample(b"a", offset_delta=0), Sample(b"b", offset_delta=5), Sample(b"c", offset_delta=900)]
    data = batch(samples, base_offset=100, last_delta=1000)
    assert read(data)["offset"].to_pylist() == [100, 105, 1000]
    part = next(parts_in(bytearray(data + bytes(SPARE)), 0, len(data)))
    assert part.next_offset == 1101


def test_a_batch_of_which_nothing_is_left_moves_the_reader_on() -> None:
    data = batch([], base_offset=10, last_delta=4)
    (part,) = parts_in(bytearray(data + bytes(SPARE)), 0, len(data))
    assert part.next_offset == 15
    assert read(data).num_rows == 0


def test_the_servers_time_counts_where_the_topic_says_so() -> None:
    data = batch([Sample(b"a", time_delta=5)], base_time=100, highest_time=777, attributes=APPEND_TIME)
    data += batch([Sample(b"b", time_delta=5)], base_time=100, highest_time=777, base_offset=1)
    assert read(data)["timestamp"].cast(pa.int64()).to_pylist() == [777, 105]


def test_a_batch_that_was_cut_off_is_left_for_the_next_answer() -> None:
    whole, second = batch([Sample(b"a")]), batch([Sample(b"b")], base_offset=1)
    for cut in range(len(second)):
        assert values(whole + second[:cut]) == [b"a"]
    assert values(b"") == []


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_every_compression_is_read(codec: int) -> None:
    contents = [b"%d" % number * 50 for number in range(2000)]
    assert values(batch([Sample(content) for content in contents], attributes=codec)) == contents


def test_snappy_as_java_writes_it_is_read() -> None:
    samples = [Sample(b"%d" % number * 9) for number in range(500)]
    plain = batch(samples)
    head, body = plain[21:61], plain[61:]
    blocks = [pa.Codec("snappy").compress(body[at : at + 1000], asbytes=True) for at in range(0, len(body), 1000)]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    java = sealed(0, struct.pack(">h", SNAPPY) + head[2:] + framed)
    assert values(java) == [sample.value for sample in samples]
    with pytest.raises(DamagedError):
        values(sealed(0, struct.pack(">h", SNAPPY) + head[2:] + framed[:-5]))


def test_header_names_that_are_no_text_are_shown_all_the_same() -> None:
    table = read(batch([Sample(b"v", headers=((b"\xff\xfe", b"1"), (b"fine", None)))]))
    assert table["headers"].to_pylist() == [[("��", b"1"), ("fine", None)]]


def test_an_aborted_transaction_is_not_read_and_its_neighbours_are() -> None:
    data = batch([Sample(b"before")], producer=5, attributes=TRANSACTIONAL)
    data += marker(1, 5, commit=True)
    data += batch([Sample(b"aborted")], base_offset=2, producer=5, attributes=TRANSACTIONAL)
    data += batch([Sample(b"other")], base_offset=3, producer=6, attributes=TRANSACTIONAL)
    data += batch([Sample(b"plain")], base_offset=4)
    data += batch([Sample(b"aborted, too")], base_offset=5, producer=5, attributes=TRANSACTIONAL)
    data += marker(6, 5, commit=False)
    data += marker(7, 6, commit=True)
    data += batch([Sample(b"after")], base_offset=8, producer=5, attributes=TRANSACTIONAL)
    data += marker(9, 5, commit=True)
    assert values(data, [(5, 2)]) == [b"before", b"other", b"plain", b"after"]
    table = read(data, [(5, 2)])
    assert table["offset"].to_pylist() == [0, 3, 4, 8]


def test_every_flipped_bit_is_noticed() -> None:
    whole = batch([Sample(b"value", b"key", ((b"h", b"1"),)) for _ in range(3)], base_offset=50)
    # Base offset and leader epoch are outside the checksum: servers set them.
    for place in [8, 9, 10, 11, *range(16, len(whole))]:
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            try:
                table = read(bytes(damaged))
            except (DamagedError, OldFormatError):
                continue
            # A longer batch is one that was cut off.
            assert 8 <= place <= 11
            assert table.num_rows == 0


@settings(max_examples=300, deadline=None)
@given(data=st.data(), samples=st.lists(SAMPLES, min_size=1, max_size=12))
def test_nonsense_under_a_right_checksum_is_an_error_or_well_formed(data: st.DataObject, samples: list[Sample]) -> None:
    checked = bytearray(batch(samples)[21:])
    for _ in range(data.draw(st.integers(1, 4))):
        checked[data.draw(st.integers(40, len(checked) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(41, len(checked)))
    try:
        table = read(sealed(0, bytes(checked[:cut])))
    except DamagedError:
        return
    assert table.num_rows == len(samples)


@pytest.mark.parametrize("count", [0, 2, 1_000_000, -1])
def test_a_wrong_number_of_records_is_noticed(count: int) -> None:
    checked = bytearray(batch([Sample(b"one")])[21:])
    checked[36:40] = struct.pack(">i", count)
    with pytest.raises(DamagedError):
        read(sealed(0, bytes(checked)))


def test_numbers_of_more_than_64_bits_are_damage() -> None:
    body = b"\x00" + b"\xff" * 11 + b"\x01" + varint(0) * 4
    checked = batch([Sample(b"x")])[21:61] + varint(len(body)) + body
    with pytest.raises(DamagedError):
        read(sealed(0, checked))


def test_batches_of_the_old_formats_are_told_apart() -> None:
    old = bytearray(batch([Sample(b"x")]))
    old[16] = 1
    with pytest.raises(OldFormatError):
        read(bytes(old))


def test_a_new_process_reads_without_loading_pandas() -> None:
    """It would cost a second in every process, and a Spark task is one."""
    script = (
        "import sys; from tests.streaming.test_kafka_batches import read; from tests.streaming.kafka_writer import *;"
        "from dw_platform.log import LogBatch; before = 'pandas' in sys.modules;"
        "read(batch([Sample(b'v', b'k', ((b'h', b'1'),))])); print(before, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
