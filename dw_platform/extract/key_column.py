"""A column of the order as SQL: how it compares, sorts and puts its NULLs."""

from collections.abc import Callable
from dataclasses import dataclass

from dw_platform.extract.notation import Notation

Position = tuple[str | None, ...]
"""The key of a row: for each column of the order its text in the database's notation, None for NULL."""

Quote = Callable[[str], str]
"""Returns a column's name as SQL, with its table in front.

In ORDER BY a bare name means the output column of that name, which may be an expression that sorts differently.
"""


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """One column of the order."""

    name: str
    descending: bool = False
    nullable: bool = False
    nulls_first: bool | None = None
    """None leaves NULLs where the database puts them, which its indexes follow."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the order, bound to a database."""

    sql: str
    descending: bool
    nullable: bool
    nulls_first: bool
    own_nulls: bool
    """Whether NULLs come where the database puts them unasked, or there are none."""

    notation: Notation

    @classmethod
    def of(cls, column: OrderColumn, notation: Notation, quote: Quote) -> "KeyColumn":
        """Return `column` in the words of a database."""
        own = notation.nulls_come_first(descending=column.descending)
        first = own if column.nulls_first is None else column.nulls_first
        plain = first == own or not column.nullable
        return cls(quote(column.name), column.descending, column.nullable, first, plain, notation)

    @property
    def is_null(self) -> str:
        """The condition for NULL."""
        return self.notation.equals(self.sql, None)

    @property
    def is_not_null(self) -> str:
        """The condition for everything else."""
        return f"{self.sql} IS NOT NULL"

    def before(self, value: str) -> str:
        """Return the condition for coming before `value`; NULL does not."""
        return self._compared(">" if self.descending else "<", value)

    def upto(self, value: str) -> str:
        """Return the condition for coming before `value` or being equal to it; NULL does neither."""
        return self._compared(">=" if self.descending else "<=", value)

    def after(self, value: str) -> str:
        """Return the condition for coming after `value`; NULL does not."""
        return self._compared("<" if self.descending else ">", value)

    def equal(self, value: str | None) -> str:
        """Return the condition for being `value`."""
        return self.notation.equals(self.sql, value)

    def sort_item(self, *, mixed: bool) -> str:
        """Return the item of ORDER BY; unless NULLs are `mixed` with other values, nothing is said about them."""
        said = self.nulls_first if mixed and not self.own_nulls else None
        return self.notation.sort_item(self.sql, descending=self.descending, nulls_first=said)

    def _compared(self, operator: str, value: str) -> str:
        return f"{self.sql} {operator} {self.notation.literal(value)}"
