"""Where deletion vectors lie, by the examples of the protocol and for any UUID."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup.deletion_vectors import (
    OutsideVectorError,
    UnreadableVectorError,
    vector_end,
    vector_file,
    vector_id,
)
from tests.backup.delta_tables import VECTOR, VECTOR_FILE

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def encoded(name: uuid.UUID) -> str:
    text = ""
    for start in range(0, 16, 4):
        value = int.from_bytes(name.bytes[start : start + 4], "big")
        text += "".join(Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def test_the_protocols_own_example_gives_the_file_it_names() -> None:
    assert vector_file(VECTOR) == VECTOR_FILE
    assert vector_id(VECTOR) == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert vector_end(VECTOR) == 4 + 40 + 8


def test_an_inline_vector_has_no_file_and_no_vector_has_no_id() -> None:
    inline = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
    assert vector_file(inline) is None
    assert vector_id(inline) == f"i{inline['pathOrInlineDv']}"
    assert vector_id(None) is None


def test_a_vector_outside_of_the_table_is_told_apart_from_an_unreadable_one() -> None:
    with pytest.raises(OutsideVectorError, match=r"s3://other/x\.bin"):
        vector_file({"storageType": "p", "pathOrInlineDv": "s3://other/x.bin"})
    for unreadable in ({"storageType": "r", "pathOrInlineDv": "x"}, {**VECTOR, "pathOrInlineDv": "short"}):
        with pytest.raises(UnreadableVectorError):
            vector_file(unreadable)
    with pytest.raises(UnreadableVectorError):
        vector_file({**VECTOR, "pathOrInlineDv": "#" * 20})


@given(st.uuids(), st.text("abcXYZ09", max_size=5))
def test_any_uuid_is_found_again_with_its_folder(name: uuid.UUID, folder: str) -> None:
    expected = f"deletion_vector_{name}.bin"
    found = vector_file({**VECTOR, "pathOrInlineDv": folder + encoded(name)})
    assert found == (f"{folder}/{expected}" if folder else expected)
