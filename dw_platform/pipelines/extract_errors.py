"""What can go wrong between a database and its table."""

from collections.abc import Sequence

from dw_platform.foundation import PermanentError, TransientError, UserError


class UnknownExtractError(UserError):
    """`databases` in platform.yaml has no such table."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        listed = ", ".join(known) if known else "none yet; add it under `databases` in platform.yaml"
        super().__init__(f"There is no extract {name}. Extracts are named DATABASE.TABLE: {listed}.")


class ExtractBusyError(TransientError):
    """Another process extracts into the same table."""

    def __init__(self, table: str, owner: str) -> None:
        self.table, self.owner = table, owner
        super().__init__(
            f"{table}: another extraction is under way ({owner}). Wait until it is done; if its machine has died, its "
            "claim ends by itself within half a minute."
        )


class NotResumableError(UserError):
    """The run that a token names cannot be continued."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"{name}: {why}. Start without --resume; what is unfinished goes on by itself where it can.")


class ColumnsDoNotFitError(PermanentError):
    """The source's columns changed in a way that the table cannot follow."""

    def __init__(self, name: str, table: str, problem: str) -> None:
        self.name, self.table, self.problem = name, table, problem
        super().__init__(
            f"{name}: the source's columns no longer fit {table}: {problem}. Nothing was changed; "
            f"`dw extract {name} --full` copies the table anew with the columns that it has now."
        )


class UnusableCursorError(UserError):
    """The cursor column cannot say what is newer."""

    def __init__(self, name: str, column: str, why: str) -> None:
        self.name, self.column, self.why = name, column, why
        super().__init__(
            f"{name}: the cursor {column} {why}. Name a column of whole numbers or times that grows with every change, "
            "or use `mode: full`."
        )


class NotIncrementalError(UserError):
    """Only a table that is extracted incrementally needs to be reconciled."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name} is copied in full each time, so deleted rows are gone with the next copy. Reconciling is for "
            "`mode: incremental`."
        )
