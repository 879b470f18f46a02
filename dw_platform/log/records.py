"""A batch on its way into the log: values, and perhaps keys, headers and times.

Arrow arrays pass through without a look at any record. Lists become Arrow arrays in one call; short ones stay
lists until they are written, because the writer joins those that wait together into one frame.
"""

import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dw_platform.log.errors import InvalidRecordsError

# Above this, turning a batch into Arrow on its publisher's thread costs less than joining it on the writer's.
SMALL_BATCH = 128
_BYTES_OR_NONE = {bytes, type(None)}

Headers = Mapping[str, bytes]


class Records:
    """What `append` takes; offsets are given in the order of `values`.

    `values` and `keys`: a sequence of bytes (or None), or a pa.Array of binary or string type. A value of None
    says that its key is deleted, as in other logs. `headers`: a mapping from text to bytes (or None) a record.
    `timestamps_ms`: milliseconds since 1970 a record; without them a record has the time of its appending.
    Raise InvalidRecordsError for anything else, before the log is touched.
    """

    __slots__ = ("headers", "keys", "timestamps_ms", "values")

    def __init__(
        self,
        values: Any,
        *,
        keys: Any = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        self.values = _binary("values", values)
        self.keys = None if keys is None else _binary("keys", keys)
        self.headers = headers if headers is not None and any(headers) else None
        self.timestamps_ms = timestamps_ms
        if not len(self.values):
            raise InvalidRecordsError("there are none")
        for name, part in (("keys", keys), ("headers", headers), ("timestamps_ms", timestamps_ms)):
            if part is not None and len(part) != len(self.values):
                raise InvalidRecordsError(f"{len(self.values)} values cannot have {len(part)} {name}")
        if isinstance(self.values, list):
            self._check_parts()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def small(self) -> bool:
        """Return whether this batch is worth joining with others."""
        return isinstance(self.values, list) and (self.keys is None or isinstance(self.keys, list))

    def total_bytes(self) -> int:
        """Return the bytes of a small batch's keys, values and headers."""
        total = sum(len(value) for value in self.values if value is not None)
        total += sum(len(key) for key in self.keys or () if key is not None)
        for mapping in self.headers or ():
            # Four bytes is the most that UTF-8 needs for a character.
            total += sum(4 * len(name) + len(value) for name, value in (mapping or {}).items())
        return total

    def _check_parts(self) -> None:
        """Find now, and copy, what Arrow would only look at when the batch is written together with those of others."""
        if self.headers is not None:
            self.headers = [None if mapping is None else _checked_headers(mapping) for mapping in self.headers]
        if self.timestamps_ms is not None:
            self.timestamps_ms = [_checked_time(time) for time in self.timestamps_ms]


def _checked_headers(mapping: Any) -> Headers:
    if not isinstance(mapping, Mapping):
        raise InvalidRecordsError(f"headers must be mappings, not {type(mapping).__name__}")
    for name, value in mapping.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidRecordsError(f"header {name!r} is not text with a value of bytes")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordsError(f"header {name!r} contains half of a surrogate pair") from error
    return dict(mapping)


def _checked_time(time: Any) -> int:
    if not isinstance(time, bool):
        with contextlib.suppress(TypeError):
            number = operator.index(time)
            if -(2**63) <= number < 2**63:
                return number
    raise InvalidRecordsError("timestamps_ms must be whole numbers of 64 bits")


def combined(batches: Sequence[Records], now_ms: int) -> Records:
    """Return the records of several small batches as one, in order."""
    if len(batches) == 1:
        return batches[0]
    joined = Records.__new__(Records)
    joined.values = _chain(batch.values for batch in batches)
    joined.keys = joined.headers = joined.timestamps_ms = None
    if any(batch.keys is not None for batch in batches):
        joined.keys = _chain(batch.keys or [None] * len(batch) for batch in batches)
    if any(batch.headers is not None for batch in batches):
        joined.headers = _chain(batch.headers or [None] * len(batch) for batch in batches)
    if any(batch.timestamps_ms is not None for batch in batches):
        joined.timestamps_ms = _chain(
            [now_ms] * len(batch) if batch.timestamps_ms is None else batch.timestamps_ms for batch in batches
        )
    return joined


def _chain(parts: Iterable[Iterable[Any]]) -> list[Any]:
    return [item for part in parts for item in part]


def _binary(name: str, given: Any) -> Any:
    """Return a list if it is short, or else an Arrow array of type binary."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.Array):
        return _cast(name, given)
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidRecordsError(f"{name} must be a sequence of bytes or an Arrow array")
    if not _all_bytes(given):
        raise InvalidRecordsError(f"{name} must be bytes")
    return list(given) if len(given) <= SMALL_BATCH else _converted(name, given)


def _all_bytes(given: Sequence[Any]) -> bool:
    """Return whether each is bytes or None; Arrow would take text for bytes without a word."""
    if len(given) > SMALL_BATCH:
        # Joining text fails, and costs a third of asking each for its type; Arrow itself refuses other things.
        with contextlib.suppress(TypeError):
            b"".join(given)
            return True
    return set(map(type, given)) <= _BYTES_OR_NONE


def _converted(name: str, given: Sequence[Any]) -> Any:
    try:
        array = pa.array(given, pa.binary())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRecordsError(f"{name} must be bytes ({' '.join(str(error).split())})") from error
    if isinstance(array, pa.ChunkedArray):
        raise InvalidRecordsError(f"{name} have more than 2 GiB, which is more than one batch can hold")
    return array


def _cast(name: str, array: Any) -> Any:
    if array.type == pa.binary():
        return array
    try:
        return array.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecordsError(f"{name} of type {array.type} are not bytes ({error})") from error
