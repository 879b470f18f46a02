"""Whether two sets of keys are equal, found out without moving them: counts and sums of hashes, bucket by bucket.

The database computes its side in one statement, this process the other side from Arrow batches, by the same formula.
Buckets that agree hold the same keys, up to a chance of about one in two thousand million for each that does not.

* One integer column: a bucket is a range of the key (`key >> shift`), so that what differs can be read by index. The
  hash is the cube of the salted key modulo a prime: linear sums are not enough, for 5 and 8 add up to what 6 and 7 do.
* Any other key: its canonical text is hashed by MD5, whose lowest bits choose the bucket. Order plays no part, so it
  does not matter how a database collates. MD5 is what all databases have; nobody has to be kept from forging it.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, text

from dw_platform.extract.description import SourceTable
from dw_platform.extract.types import ColumnMapping
from dw_platform.foundation import PermanentError

PRIME = 2**31 - 1
_BUCKETS = 512
_HEX_DIGITS = 15
_EPOCH_DAY = {"postgresql": "CAST({c} - DATE '1970-01-01' AS text)", "mysql": "DATEDIFF({c}, '1970-01-01')"}
_MICROS = {
    "postgresql": "CAST(CAST(EXTRACT(EPOCH FROM {c}) * 1000000 AS bigint) AS text)",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {c})",
}
_TEXT = {
    "postgresql": "CAST({e} AS text)",
    "mysql": "CAST({e} AS CHAR CHARACTER SET utf8mb4)",
    "sqlite": "CAST({e} AS TEXT)",
}
_HEX = {"postgresql": "encode({c}, 'hex')", "mysql": "LOWER(HEX({c}))", "sqlite": "lower(hex({c}))"}
_LENGTH = {"postgresql": "octet_length({t})", "mysql": "LENGTH({t})", "sqlite": "length(CAST({t} AS BLOB))"}
_HASH = {
    "postgresql": "CAST(CAST('x' || substr(md5({t}), 1, 15) AS bit(60)) AS bigint)",
    "mysql": "CAST(CONV(LEFT(MD5({t}), 15), 16, 10) AS UNSIGNED)",
    "sqlite": "dw_md5({t})",
}


class KeyNotComparableError(PermanentError):
    """A key cannot be written as the same text on both sides."""

    def __init__(self, source: str, table: str, column: str, kind: str) -> None:
        self.source, self.table, self.column, self.kind = source, table, column, kind
        super().__init__(
            f"{source}: rows of {table} cannot be compared by {column}, which is {kind} here. Deleted rows are found "
            "for keys of integers, text, dates, times, decimals and bytes; `mode: full` needs no comparison."
        )


class Fingerprint(NamedTuple):
    """What a bucket holds; equal for equal sets."""

    keys: int
    low: int
    high: int
    mixed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketing:
    """How keys are spread over buckets; the same on both sides of a comparison."""

    table: SourceTable
    columns: tuple[ColumnMapping, ...]
    """The key's columns, as they are read into the lake."""

    shift: int = 0
    salt: int = 0

    @property
    def by_range(self) -> bool:
        """Whether a bucket is a range of the key."""
        return len(self.columns) == 1 and pa.types.is_integer(self.columns[0].arrow)

    def statement(self) -> str:
        """Return the SQL that gives bucket, count and sums."""
        if self.by_range:
            key = f"CAST({self._name(0)} AS {'SIGNED' if self.table.kind == 'mysql' else 'bigint'})"
            salted = f"((({key} % {PRIME}) + {self.salt}) % {PRIME})"
            cube = f"sum(((({salted} * {salted}) % {PRIME}) * {salted}) % {PRIME})"
            told = f"{key} >> {self.shift}, count(*), sum({key} & {PRIME}), sum({key} >> 31), {cube}"
        else:
            key = self._hashed()
            told = f"{key} & {_BUCKETS - 1}, count(*), sum({key} & {PRIME}), sum({key} >> 31), 0"
        return f"SELECT {told} FROM {self.table.quoted()} GROUP BY 1"  # noqa: S608 - quoted names

    def _hashed(self) -> str:
        """Return SQL for the hash of a key that is no single integer."""
        texts = [self._canonical(number) for number in range(len(self.columns))]
        if len(texts) > 1:
            length = _LENGTH[self.table.kind]
            parts = [part for each in texts for part in (length.format(t=each), "':'", each)]
            whole = f"concat({', '.join(parts)})" if self.table.kind != "sqlite" else " || ".join(parts)
        else:
            whole = texts[0]
        return _HASH[self.table.kind].format(t=whole)

    def _canonical(self, number: int) -> str:
        column, kind = self.columns[number], self.table.kind
        name = self._name(number)
        match _family(column.arrow):
            case "text":
                return _TEXT[kind].format(e=column.expression)
            case "number":
                return _TEXT[kind].format(e=name)
            case "date" if kind in _EPOCH_DAY:
                return _EPOCH_DAY[kind].format(c=name)
            case "time" if kind in _MICROS:
                return _MICROS[kind].format(c=name)
            case "decimal" if kind != "sqlite":
                return _TEXT[kind].format(e=name)
            case "bytes":
                return _HEX[kind].format(c=name)
        raise KeyNotComparableError(self.table.source, str(self.table), column.name, str(column.arrow))

    def _name(self, number: int) -> str:
        return self.table.quote(self.columns[number].name)


def _family(kind: pa.DataType) -> str:
    families: dict[str, Callable[[pa.DataType], bool]] = {
        "text": pa.types.is_string,
        "number": pa.types.is_integer,
        "date": pa.types.is_date,
        "time": pa.types.is_timestamp,
        "decimal": pa.types.is_decimal,
        "bytes": pa.types.is_binary,
    }
    return next((name for name, fits in families.items() if fits(kind)), "other")


def fingerprints_of_source(connection: Connection, bucketing: Bucketing) -> dict[int, Fingerprint]:
    """Return what the database has, bucket by bucket; one statement."""
    if bucketing.table.kind == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("dw_md5", 1, _md5_of_value, deterministic=True)
    rows = connection.execute(text(bucketing.statement().replace(":", r"\:")))
    return {int(bucket): Fingerprint(*(int(value or 0) for value in values)) for bucket, *values in rows}


def fingerprints_of_batches(batches: Iterable[pa.RecordBatch], bucketing: Bucketing) -> dict[int, Fingerprint]:
    """Return what Arrow batches of the key's columns have, bucket by bucket; holds one batch at a time."""
    found: dict[int, Fingerprint] = {}
    for batch in batches:
        for bucket, print_ in _of_batch(batch, bucketing).items():
            before = found.get(bucket, Fingerprint(0, 0, 0))
            found[bucket] = Fingerprint(*(one + other for one, other in zip(before, print_, strict=True)))
    return found


def differing(one: Mapping[int, Fingerprint], other: Mapping[int, Fingerprint]) -> set[int]:
    """Return the buckets whose keys differ."""
    return {bucket for bucket in one.keys() | other.keys() if one.get(bucket) != other.get(bucket)}


def buckets_of(keys: pa.RecordBatch | pa.Table, bucketing: Bucketing) -> Any:
    """Return the bucket of each key, as numpy numbers."""
    if bucketing.by_range:
        return _as_database(_numbers(keys), bucketing) >> bucketing.shift
    return _hashes(keys, bucketing) & (_BUCKETS - 1)


def shift_for(lowest: int, highest: int) -> int:
    """Return the shift that cuts a range of keys into at most 513 buckets."""
    return max(0, (highest - lowest).bit_length() - 9)


def _of_batch(batch: pa.RecordBatch, bucketing: Bucketing) -> dict[int, Fingerprint]:
    mixed: Any
    if bucketing.by_range:
        keys = _numbers(batch)
        salted = np.fmod(np.fmod(keys, PRIME) + bucketing.salt, PRIME)
        mixed = (((salted * salted) % PRIME) * salted) % PRIME
        parts, buckets = _as_database(keys, bucketing), buckets_of(batch, bucketing)
    else:
        parts = _hashes(batch, bucketing)
        buckets, mixed = parts & (_BUCKETS - 1), np.zeros(len(parts), np.int64)
    rows = pa.table({"b": buckets, "low": parts & type(parts[:1][0])(PRIME), "high": parts >> 31, "mixed": mixed})
    sums = rows.group_by("b").aggregate([("low", "count"), ("low", "sum"), ("high", "sum"), ("mixed", "sum")])
    return {
        row["b"]: Fingerprint(row["low_count"], row["low_sum"], row["high_sum"], row["mixed_sum"])
        for row in sums.to_pylist()
    }


def _numbers(keys: pa.RecordBatch | pa.Table) -> Any:
    column = keys.column(0)
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.cast(
        pa.int64()
    ).to_numpy()  # fmt: skip


def _as_database(keys: Any, bucketing: Bucketing) -> Any:
    # MySQL's operators on bits work without a sign.
    return keys.view(np.uint64) if bucketing.table.kind == "mysql" else keys


def _hashes(keys: pa.RecordBatch | pa.Table, bucketing: Bucketing) -> Any:
    columns = [_texts(keys.column(number), bucketing, number) for number in range(len(bucketing.columns))]
    if len(columns) == 1:
        return np.fromiter(map(_md5_of_text, columns[0]), np.int64, len(keys))
    whole = ("".join(f"{len(part.encode())}:{part}" for part in row) for row in zip(*columns, strict=True))
    return np.fromiter(map(_md5_of_text, whole), np.int64, len(keys))


def _texts(column: pa.Array, bucketing: Bucketing, number: int) -> Sequence[str]:
    mapping = bucketing.columns[number]
    match _family(mapping.arrow):
        case "text":
            values: list[str] = column.to_pylist()
            # PostgreSQL gives a CHAR(n) as text without the blanks that fill it up.
            padded = bucketing.table.column(mapping.name).kind.base == "bpchar"
            return [value.rstrip(" ") for value in values] if padded else values
        case "date":
            return list(map(str, column.cast(pa.int32()).to_pylist()))
        case "time":
            return list(map(str, pc.cast(column, pa.int64()).to_pylist()))
        case "decimal":
            return [format(value, "f") for value in column.to_pylist()]
        case "bytes":
            return [value.hex() for value in column.to_pylist()]
        case _:
            return list(map(str, column.to_pylist()))


def _md5_of_text(value: str) -> int:
    return int(hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()[:_HEX_DIGITS], 16)


def _md5_of_value(value: Any) -> int | None:
    return None if value is None else _md5_of_text(str(value))
