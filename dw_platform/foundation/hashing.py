"""FNV-1a, 64 bit: the partition of a key is the same in every process, language and version."""

from typing import Any

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF

# A step of numpy costs about as much as this many bytes one by one; the rest of a few long keys is hashed that way.
_FEW = 32


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash of `data`."""
    return _continued(_OFFSET_BASIS, data)


def fnv1a_64_each(keys: Any) -> Any:
    """Return `fnv1a_64` of each key of an Arrow binary or string array, as numpy's uint64; null counts as empty.

    One step hashes the next byte of all keys that have one.
    """
    import numpy as np  # noqa: PLC0415 - 0.1 s that commands which hash nothing need not wait for

    if not len(keys):
        return np.empty(0, np.uint64)
    starts, lengths, data = _layout(keys, np)
    order = np.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = np.full(len(keys), _OFFSET_BASIS, np.uint64)
    position, first, prime = 0, int(np.searchsorted(lengths, 0, "right")), np.uint64(_PRIME)
    while len(keys) - first >= _FEW:
        longer = hashes[first:]
        longer ^= data[starts[first:] + position]
        longer *= prime
        position += 1
        first = int(np.searchsorted(lengths, position, "right"))
    for index in range(first, len(keys)):
        start = int(starts[index])
        rest = data[start + position : start + int(lengths[index])].tobytes()
        hashes[index] = _continued(int(hashes[index]), rest)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _continued(value: int, data: bytes) -> int:
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def _layout(keys: Any, np: Any) -> tuple[Any, Any, Any]:
    """Return where each key begins, how long it is, and all bytes."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if keys.null_count:
        # What is behind a null is anybody's guess.
        lengths[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return ends[:-1], lengths, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
