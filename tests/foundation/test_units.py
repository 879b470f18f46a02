from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError, format_bytes, format_duration, parse_bytes, parse_duration

FACTORS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
NOT_NEGATIVE = st.timedeltas(min_value=timedelta(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64KiB", 65_536),
        ("100GB", 100_000_000_000),
        ("1.5 MiB", 1_572_864),
        (" 12 ", 12),
        ("0", 0),
        ("1.005KB", 1_005),
        ("64kib", 65_536),
        (4096, 4096),
    ],
)
def test_a_size_means_what_its_letters_say(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


@given(count=st.integers(0, 10**25), unit=st.sampled_from(sorted(FACTORS)), gap=st.sampled_from(["", " "]))
def test_a_whole_number_of_any_unit_is_exact(count: int, unit: str, gap: str) -> None:
    assert parse_bytes(f"{count}{gap}{unit}") == count * FACTORS[unit]


@pytest.mark.parametrize(
    "text", ["", "KiB", "64ib", "-1", "1e3", "1,5MB", "64KiB/s", "nan", "9" * 5000, "5 5", True, -1]
)
def test_a_size_that_is_none_is_refused_and_named(text: str | int) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_bytes(text)
    assert caught.value.field == "size"
    assert caught.value.value == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15s", timedelta(seconds=15)),
        ("1h30m", timedelta(minutes=90)),
        ("90d", timedelta(days=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5 h", timedelta(minutes=90)),
        ("2H 5MS", timedelta(hours=2, milliseconds=5)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str | timedelta, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "15", "s", "-5s", "5s,", "1h30", "5x", "1.5.5s", "5\u017f", "999999999999d", f"{'9' * 5000}s"]
)
def test_a_duration_without_a_clear_unit_or_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_duration(text)
    assert caught.value.field == "duration"


@given(duration=NOT_NEGATIVE)
def test_a_formatted_duration_reads_back_exactly(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=90), "90d"),
        (timedelta(seconds=1, milliseconds=20), "1s20ms"),
        (timedelta(microseconds=400), "0.4ms"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_a_duration_is_shown_without_zero_parts(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (1536 * 2**20, "1.5 GiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_with_a_whole_digit(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(count=st.integers(0, 2**60))
def test_a_shown_size_reads_back_to_within_its_last_digit(count: int) -> None:
    text = format_bytes(count)
    assert abs(parse_bytes(text) - count) <= 0.06 * FACTORS[text.split()[1]]
