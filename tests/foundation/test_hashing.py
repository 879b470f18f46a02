import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import fnv1a_64

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
