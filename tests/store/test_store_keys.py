import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.store import Entry, InvalidKeyError, internal_key, internal_prefix, key_parts
from dw_platform.store.contract import check_key, next_version, prefix_end

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


def test_the_platforms_keys_read_like_paths() -> None:
    assert internal_key("backup", "job 7") == "dw://internal/backup/job 7"
    assert internal_prefix("backup") == "dw://internal/backup/"
    assert internal_prefix() == "dw://internal/"


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_the_parts_of_a_key_come_back_whatever_they_contain(parts: list[str]) -> None:
    assert key_parts(internal_key(*parts)) == tuple(parts)


@given(st.lists(TEXT, min_size=1, max_size=3), st.lists(TEXT, min_size=1, max_size=3))
def test_a_prefix_matches_exactly_the_keys_below_its_parts(above: list[str], parts: list[str]) -> None:
    below = len(parts) > len(above) and parts[: len(above)] == above
    assert internal_key(*parts).startswith(internal_prefix(*above)) == below


@given(TEXT, TEXT)
def test_the_end_of_a_prefix_separates_what_starts_with_it_from_what_is_above(prefix: str, other: str) -> None:
    end = prefix_end(prefix)
    for key in (other, prefix, prefix + other, prefix + "\U0010ffff" + other):
        assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff", None), ("", None), ("Az", "A{")],
)
def test_the_end_of_a_prefix_is_a_valid_text(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end


def test_the_message_of_an_invalid_key_is_short_and_says_why() -> None:
    with pytest.raises(InvalidKeyError, match="9999 bytes in UTF-8, at most 1024") as caught:
        check_key("x" * 9999)
    assert len(str(caught.value)) < 250
    assert caught.value.reason.startswith("it has 9999 bytes")


def test_a_created_key_starts_above_every_deleted_version() -> None:
    assert next_version(None, floor=0) == 1
    assert next_version(None, floor=9) == 10
    assert next_version(3, floor=9) == 4


def test_an_entry_does_not_show_its_value() -> None:
    assert "secret" not in repr(Entry("key", b"secret", 1))
