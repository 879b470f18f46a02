"""How the value of one key column travels: read from a row, kept as text, written into the next statement.

The text keeps the value exactly, in the database's own notation, and is plain enough for JSON. Written back as a
literal it equals the value it was read from, for the database that compares it; Python never compares keys. What
cannot be a value of the database is refused, so no text can end a literal early.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from dw_platform.foundation import InvalidValueError, PermanentError

DatabaseKind = Literal["postgresql", "mysql", "sqlite"]


class InvalidPositionError(PermanentError):
    """A stored position cannot have come from this database."""

    def __init__(self, kind: str, problem: str) -> None:
        # The text itself stays out: a key may be an e-mail address.
        self.kind, self.problem = kind, problem
        super().__init__(f"A stored position is none of {kind}: {problem}. Start again without it.")


class Notation(Protocol):
    """One database's way of writing values."""

    @property
    def kind(self) -> DatabaseKind:
        """The database."""

    def key_expressions(self, column: str, *, native: bool) -> tuple[str, ...]:
        """Return what to select so that `text_of` has the exact value of `column`, a quoted name.

        `native`: the column is read as integer or text without loss, so that it can be selected as it is.
        """

    def text_of(self, values: Sequence[Any]) -> str | None:
        """Return the text of a value that `key_expressions` selected, or of a single Python value; NULL is None."""

    def literal(self, text: str) -> str:
        """Return SQL that equals the value with this text; raise InvalidPositionError for what is none."""

    def equals(self, column: str, text: str | None) -> str:
        """Return the condition for `column` to be the value with this text, in the form that lets an index go on.

        What follows it in a statement is the next column's range, and the index shall serve both.
        """

    def nulls_come_first(self, *, descending: bool) -> bool:
        """Return where the database puts NULL if nobody says it."""

    def sort_item(self, column: str, *, descending: bool, nulls_first: bool | None) -> str:
        """Return an item of ORDER BY; with None as `nulls_first` nothing is said about NULL."""


def notation_of(kind: str) -> Notation:
    """Return the notation of a database."""
    # Here, because each of the three needs the error above.
    from dw_platform.extract.notation_mysql import MysqlNotation  # noqa: PLC0415
    from dw_platform.extract.notation_postgresql import PostgresqlNotation  # noqa: PLC0415
    from dw_platform.extract.notation_sqlite import SqliteNotation  # noqa: PLC0415

    known: dict[str, Notation] = {
        "postgresql": PostgresqlNotation(),
        "mysql": MysqlNotation(),
        "sqlite": SqliteNotation(),
    }
    try:
        return known[kind]
    except KeyError as error:
        raise InvalidValueError("kind", kind, f"one of {', '.join(known)}") from error


def utf8(kind: str, text: str) -> bytes:
    """Return `text` as UTF-8, or refuse what is no text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPositionError(kind, "it contains half of a surrogate pair, which is not a character") from error


def direction(column: str, *, descending: bool) -> str:
    """Return the part of a sort item that all databases share."""
    return f"{column} DESC" if descending else column
