"""What a statement selects: the values of a page, the key of each row, and one number that says which guard is broken.

An expression that is needed twice is selected once. Guards share one column: the number of the first column whose
value cannot be kept, or 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.extract.description import SourceTable
from dw_platform.extract.source import Kind
from dw_platform.extract.types import ColumnMapping

# SQLite's own limit for the columns of a result; a table may have as many, and its key comes on top.
_MOST_COLUMNS = {"sqlite": 2000}
# As they come from the driver, these are written back as they are.
_POSTGRES_NATIVE = {"int2", "int4", "int8", "text", "varchar", "bpchar", "name"}
_NUMBERS = {
    "int2", "int4", "int8", "float4", "float8", "numeric", "oid", "tinyint", "smallint", "mediumint", "int", "integer",
    "bigint", "decimal", "double", "float", "year",
}  # fmt: skip


def native_columns(table: SourceTable) -> frozenset[str]:
    """Return the columns that arrive as integers or text without loss."""
    if table.kind != "postgresql":
        return frozenset()
    return frozenset(each.name for each in table.columns if each.kind.base in _POSTGRES_NATIVE)


def number_columns(table: SourceTable) -> frozenset[str]:
    """Return the columns whose values are numbers, whatever text they are compared with."""
    return frozenset(each.name for each in table.columns if each.kind.base in _NUMBERS)


@dataclass(frozen=True, slots=True)
class Selection:
    """Expressions, and which of them mean what."""

    expressions: tuple[str, ...]
    values: tuple[int, ...]
    """For each mapped column, which expression it is."""

    keys: tuple[tuple[int, ...], ...]
    """For each column of the order, which expressions make its position."""

    guard: int | None
    """Which expression is the number of the broken guard."""

    statements: tuple[slice, ...]
    """The expressions in as few statements as the database takes."""

    @classmethod
    def of(cls, columns: Sequence[ColumnMapping], keys: Sequence[tuple[str, ...]], kind: Kind) -> "Selection":
        """Return what to select for these columns and these expressions of the key."""
        at: dict[str, int] = {}
        values = tuple(at.setdefault(each.expression, len(at)) for each in columns)
        grouped = tuple(tuple(at.setdefault(expression, len(at)) for expression in group) for group in keys)
        guards = [f"WHEN {each.guard} THEN {number}" for number, each in enumerate(columns, 1) if each.guard]
        guard = at.setdefault(f"CASE {' '.join(guards)} ELSE 0 END", len(at)) if guards else None
        most = _MOST_COLUMNS.get(kind, len(at))
        return cls(
            tuple(at), values, grouped, guard, tuple(slice(start, start + most) for start in range(0, len(at), most))
        )

    @property
    def key_expressions(self) -> list[int]:
        """Which expressions the position needs."""
        return sorted({at for group in self.keys for at in group})

    def grouped(self, values: dict[int, Any]) -> list[list[Any]]:
        """Return the values of a row's key, given by expression, as `position_of` wants them."""
        return [[values[at] for at in group] for group in self.keys]

    @staticmethod
    def broken_guard(numbers: pa.ChunkedArray) -> int | None:
        """Return which column has a value that cannot be kept; None if all are well."""
        number = pc.max(numbers).as_py() or 0
        return int(number) - 1 if number else None
