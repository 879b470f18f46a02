import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import fnv1a_64, fnv1a_64_each

# From the test suite that the authors of FNV publish beside the algorithm.
PUBLISHED = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"b": 0xAF63DF4C8601F1A5,
    b"c": 0xAF63DE4C8601EFF2,
    b"d": 0xAF63D94C8601E773,
    b"e": 0xAF63D84C8601E5C0,
    b"f": 0xAF63DB4C8601EAD9,
    b"fo": 0x08985907B541D342,
    b"foo": 0xDCB27518FED9D577,
    b"foob": 0xDD120E790C2512AF,
    b"fooba": 0xCAC165AFA2FEF40A,
    b"foobar": 0x85944171F73967E8,
    b"\x00": 0xAF63BD4C8601B7DF,
    b"chongo was here!\n": 0x46810940EFF5F915,
}


@pytest.mark.parametrize(("data", "expected"), PUBLISHED.items())
def test_the_hash_agrees_with_the_published_vectors(data: bytes, expected: int) -> None:
    assert fnv1a_64(data) == expected


@given(data=st.binary(max_size=200))
def test_the_hash_fits_in_64_bits(data: bytes) -> None:
    assert 0 <= fnv1a_64(data) < 2**64


def keys() -> st.SearchStrategy[list[bytes | None]]:
    sizes = st.one_of(st.binary(max_size=12), st.binary(min_size=100, max_size=400))
    return st.lists(st.one_of(st.none(), sizes), max_size=120)


@settings(deadline=None)  # the first example imports numpy
@given(keys=keys(), first=st.integers(0, 5))
def test_hashing_a_whole_array_agrees_with_hashing_each_key(keys: list[bytes | None], first: int) -> None:
    array = pa.array(keys, pa.binary())[first:]
    expected = [fnv1a_64(key or b"") for key in keys[first:]]
    assert fnv1a_64_each(array).tolist() == expected


def test_one_very_long_key_among_many_short_ones_is_hashed_like_the_others() -> None:
    keys = [b"short"] * 100 + [b"x" * 200_000, b""]
    assert fnv1a_64_each(pa.array(keys, pa.binary())).tolist() == [fnv1a_64(key) for key in keys]


def test_bytes_behind_a_null_do_not_count() -> None:
    whole = pa.array([b"one", b"two", b"three"] * 20, pa.binary())
    nulls = pa.array([True, False, True] * 20)
    validity = nulls.buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), 60, [validity, *whole.buffers()[1:]])
    assert array.null_count == 20
    assert fnv1a_64_each(array).tolist() == [fnv1a_64(b"one"), fnv1a_64(b""), fnv1a_64(b"three")] * 20
