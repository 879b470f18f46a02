"""What can go wrong between the platform and a database, and what to do about each.

No text here contains a password: what a driver says goes through `scrubbed` before it becomes part of a message.
"""

from collections.abc import Sequence
from typing import Literal

from dw_platform.foundation import PermanentError, TransientError, UserError


class DatabaseUnavailableError(TransientError):
    """There is no answer: the database cannot be reached, went away or took too long."""

    def __init__(self, source: str, cause: str) -> None:
        self.source, self.cause = source, cause
        super().__init__(
            f"database {source} does not answer: {cause}. What was read so far is kept; try again, and check the "
            "server, the network and the timeouts if it stays so."
        )


class DatabaseAccessError(UserError):
    """The database answers, but not to this user, password or database name."""

    def __init__(self, source: str, cause: str) -> None:
        self.source, self.cause = source, cause
        super().__init__(
            f"database {source} refuses access: {cause}. Check user, password and database name of its url, and that "
            "the user may read the table."
        )


class UnknownSourceTableError(UserError):
    """There is no such table or view."""

    def __init__(self, source: str, table: str, similar: Sequence[str] = ()) -> None:
        self.source, self.table, self.similar = source, table, tuple(similar)
        hint = f"Similar: {', '.join(similar)}" if similar else "Write table or schema.table as the database spells it"
        super().__init__(f"database {source} has no table or view {table}. {hint}.")


class UnknownSourceColumnError(UserError):
    """A column is named that the table does not have."""

    def __init__(self, source: str, table: str, column: str, columns: Sequence[str]) -> None:
        self.source, self.table, self.column, self.columns = source, table, column, tuple(columns)
        shown = ", ".join(columns[:50]) + (", ..." if len(columns) > 50 else "")
        super().__init__(f"{source}: table {table} has no column {column!r}. It has: {shown}.")


class NoKeyError(UserError):
    """Nothing tells the rows of the table apart, so no position in it can be remembered."""

    def __init__(self, source: str, table: str, why: str) -> None:
        self.source, self.table, self.why = source, table, why
        super().__init__(
            f"{source}: table {table} cannot be read in pages: {why}. Name the columns of a unique key as `key` in "
            "platform.yaml, or add a primary key or a unique index over columns that are NOT NULL."
        )


class NullInKeyError(PermanentError):
    """A unique key does not tell rows apart whose key is NULL."""

    def __init__(self, source: str, table: str, columns: Sequence[str]) -> None:
        self.source, self.table, self.columns = source, table, tuple(columns)
        super().__init__(
            f"{source}: table {table} has NULL in its key ({', '.join(columns)}), and any number of rows may have "
            "that. Choose another `key`, or remove the NULLs and declare the columns NOT NULL."
        )


class UnmappableColumnError(UserError):
    """A column's type has no counterpart that keeps its values."""

    def __init__(self, source: str, table: str, column: str, type_text: str, choices: Sequence[str]) -> None:
        self.source, self.table, self.column = source, table, column
        self.type_text, self.choices = type_text, tuple(choices)
        super().__init__(
            f"{source}: column {column} of table {table} has type {type_text or 'none'}, which has no exact "
            f"counterpart here. Choose one: {'; '.join(choices)}."
        )


class ValueNotKeptError(PermanentError):
    """A value cannot be kept exactly in the type that its column has here."""

    def __init__(self, source: str, table: str, column: str, what: str) -> None:
        self.source, self.table, self.column, self.what = source, table, column, what
        super().__init__(
            f"{source}: column {column} of table {table} has {what}. Read the column as text with "
            f"`types: {{{column}: string}}`, leave it out with `exclude: [{column}]`, or correct the value."
        )


class SourceChangedError(PermanentError):
    """The table is not the one that the reading began with."""

    def __init__(self, source: str, table: str, what: str) -> None:
        self.source, self.table, self.what = source, table, what
        super().__init__(
            f"{source}: table {table} was changed while it was read: {what}. What was read before is kept; start "
            "again to read the table as it is now."
        )


class StatementRefusedError(PermanentError):
    """The database refuses a statement for a reason that no other error here describes."""

    def __init__(self, source: str, cause: str) -> None:
        self.source, self.cause = source, cause
        super().__init__(f"database {source} refuses the statement: {cause}. Correct what it names and try again.")


class TokenError(UserError):
    """A continuation token cannot be used."""


class TokenMalformedError(TokenError):
    """The text is no token: cut off, changed on its way, or something else."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"this is no continuation token: {why}. Pass it on unchanged, or start again without a token.")


class TokenForgedError(TokenError):
    """The token has the right form, but no key of this platform has signed it."""

    def __init__(self) -> None:
        super().__init__(
            "the continuation token was not signed by this platform, or its key is gone. Start again without a token."
        )


class TokenExpiredError(TokenError):
    """The token is older than tokens may become."""

    def __init__(self, expired_at: str) -> None:
        self.expired_at = expired_at
        super().__init__(f"the continuation token expired at {expired_at}. Start again without a token.")


class TokenForOtherRequestError(TokenError):
    """The token continues another request."""

    def __init__(self, what: Literal["source", "table", "filter", "order"]) -> None:
        self.what = what
        super().__init__(
            f"the continuation token belongs to a request with another {what}. Repeat that request with it, or start "
            "this one again without a token."
        )


class TokenOutdatedError(TokenError):
    """The table's columns changed after the token was given out."""

    def __init__(self, source: str, table: str) -> None:
        self.source, self.table = source, table
        super().__init__(
            f"{source}: the columns of table {table} changed since the continuation token was given out. "
            "Start again without a token."
        )
