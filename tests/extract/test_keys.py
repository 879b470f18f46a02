import pytest

from dw_platform.extract.description import ColumnKind, SourceColumn, SourceTable, UniqueKey
from dw_platform.extract.errors import NoKeyError, UnknownSourceColumnError
from dw_platform.extract.keys import choose_key

PRIMARY = UniqueKey(("a",), primary=True)
PAIR = UniqueKey(("b", "c"))
LOOSE = UniqueKey(("d",), nullable=True)


def table(*keys: UniqueKey, kind: str = "postgresql", base: str = "int4", is_view: bool = False) -> SourceTable:
    columns = tuple(SourceColumn(name, base, name == "d", ColumnKind(base)) for name in "abcd")
    return SourceTable("pg", kind, None, "t", is_view, columns, keys)  # type: ignore[arg-type]


def test_the_first_key_that_is_never_null_is_taken() -> None:
    assert choose_key(table(PRIMARY, PAIR, LOOSE)) == PRIMARY
    assert choose_key(table(PAIR, LOOSE)) == PAIR


def test_a_nullable_key_is_taken_only_when_it_is_named() -> None:
    with pytest.raises(NoKeyError, match=r"may be NULL: \(d\); name one that never is.*`key` in platform.yaml"):
        choose_key(table(LOOSE))
    assert choose_key(table(LOOSE), ["d"]) == LOOSE


def test_a_nullable_primary_key_is_taken_because_its_values_are_checked_later() -> None:
    key = UniqueKey(("d",), primary=True, nullable=True)
    assert choose_key(table(key, kind="sqlite")) == key


def test_a_wished_key_comes_in_the_order_of_its_index() -> None:
    assert choose_key(table(PRIMARY, PAIR), ["c", "b"]) == PAIR


def test_more_columns_than_a_unique_key_are_unique_too() -> None:
    assert choose_key(table(PRIMARY), ["b", "a"]) == UniqueKey(("b", "a"))
    assert choose_key(table(PRIMARY), ["d", "a"]) == UniqueKey(("d", "a"), nullable=True)


def test_a_wish_that_nothing_proves_is_refused_with_the_candidates() -> None:
    with pytest.raises(NoKeyError, match=r"no constraint or index says that \(b\) is unique; .*\(a\), \(b, c\)"):
        choose_key(table(PRIMARY, PAIR), ["b"])


def test_on_a_view_the_users_word_counts() -> None:
    assert choose_key(table(is_view=True), ["a"]) == UniqueKey(("a",), trusted=True)
    with pytest.raises(NoKeyError, match="it is a view"):
        choose_key(table(is_view=True))


def test_a_table_without_keys_says_so() -> None:
    with pytest.raises(NoKeyError, match="neither a primary key nor a unique index") as caught:
        choose_key(table())
    assert (caught.value.source, caught.value.table) == ("pg", "t")


@pytest.mark.parametrize("base", ["float", "enum", "set", "bit", "json"])
def test_types_of_mysql_that_carry_no_position_are_refused_with_the_reason(base: str) -> None:
    with pytest.raises(NoKeyError, match="so column a cannot be part of the key"):
        choose_key(table(PRIMARY, kind="mysql", base=base))
    with pytest.raises(NoKeyError, match="so column a cannot be part of the key"):
        choose_key(table(PRIMARY, kind="mysql", base=base), ["a"])


def test_columns_that_do_not_exist_or_come_twice_are_refused() -> None:
    with pytest.raises(UnknownSourceColumnError):
        choose_key(table(PRIMARY), ["x"])
    with pytest.raises(NoKeyError, match="twice"):
        choose_key(table(PRIMARY), ["a", "a"])
