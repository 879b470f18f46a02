"""Rows split by the values of a table's partition columns, and those values as Delta writes them in its log."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from dw_platform.foundation import InvalidValueError, UserError

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ALLOWED = (
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_decimal,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_timestamp,
)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ROW_NUMBER = "__dw_row"


class UnsupportedPartitionError(UserError):
    """A column's type has no text form that every reader understands."""

    def __init__(self, column: str, kind: str) -> None:
        self.column, self.kind = column, kind
        super().__init__(
            f"a table cannot be partitioned by {column} of type {kind}; use an integer, a decimal, a date, "
            "a timestamp, a boolean or text."
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """One combination of partition values: (column, text or None) pairs in the table's order."""

    values: tuple[tuple[str, str | None], ...] = ()

    @property
    def folder(self) -> str:
        """Return the folder below the table's root, ending in a slash, or nothing without partitions.

        Readers take values from the log and never from here, so a value that is not plain ASCII is
        hashed: no engine then has to agree on how `/`, `%` or an emoji is escaped in a path.
        """
        return "".join(f"{_plain(column)}={_plain(value)}/" for column, value in self.values)


def split_by_partition(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield the rows of each partition without the partition columns."""
    if not partition_by:
        yield Partition(), batch
        return
    rows = batch.select([name for name in batch.schema.names if name not in partition_by])
    keys = pa.Table.from_batches([batch.select(list(partition_by))])
    numbered = keys.append_column(_ROW_NUMBER, pa.array(np.arange(len(batch), dtype=np.int32)))
    groups = numbered.group_by(list(partition_by), use_threads=False).aggregate([(_ROW_NUMBER, "list")])
    members = groups[f"{_ROW_NUMBER}_list"].combine_chunks()
    for index, values in enumerate(groups.select(list(partition_by)).to_pylist()):
        yield partition_of(values, keys.schema, partition_by), rows.take(members[index].values)


def partition_of(values: Mapping[str, Any], schema: pa.Schema, partition_by: Sequence[str]) -> Partition:
    """Return the partition of Python values."""
    return Partition(
        tuple((name, partition_text(name, values[name], schema.field(name).type)) for name in partition_by)
    )


def partition_text(column: str, value: Any, kind: pa.DataType) -> str | None:
    """Return a partition value as the Delta protocol serialises it; an empty text is the same as no value."""
    if value is None or value == "":
        return None
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_timestamp(kind):
        # An instant carries its zone, so that readers in other zones see the same moment.
        if kind.tz:
            return str(value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z")
        return str(value.isoformat(sep=" ", timespec="microseconds"))
    if pa.types.is_decimal(kind):
        return format(value, "f")
    check_partition_type(column, kind)
    return str(value)


def check_partitioning(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse partition columns that the table does not have, cannot write, or that leave no column for its files."""
    for column in partition_by:
        if column not in schema.names:
            raise InvalidValueError("partition_by", column, f"one of {', '.join(schema.names)}")
        check_partition_type(column, schema.field(column).type)
    if set(schema.names) <= set(partition_by):
        raise InvalidValueError("partition_by", ", ".join(partition_by), "fewer than all columns")


def check_partition_type(column: str, kind: pa.DataType) -> None:
    """Refuse a type whose values cannot be written in the log."""
    if not any(allowed(kind) for allowed in _ALLOWED):
        raise UnsupportedPartitionError(column, str(kind))


def _plain(text: str | None) -> str:
    if text is None:
        return _NO_VALUE
    return (
        text if _PLAIN.fullmatch(text) and text.strip(".") else f"~{blake2b(text.encode(), digest_size=8).hexdigest()}"
    )
