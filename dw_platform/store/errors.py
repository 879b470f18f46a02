"""What can go wrong with the store, and whether waiting helps."""

from dw_platform.foundation import PermanentError, TransientError, UserError, format_bytes


class StaleVersionError(TransientError):
    """A conditional write found another version than the one it was meant for; nothing was written."""

    def __init__(self, key: str, expected: int | None, actual: int | None) -> None:
        self.key, self.expected, self.actual = key, expected, actual
        found = "does not exist" if actual is None else f"is at version {actual}"
        wanted = "absent" if expected is None else f"at version {expected}"
        super().__init__(f"{key!r} {found}, expected it {wanted}. Read it again and repeat the change.")


class StoreUnavailableError(TransientError):
    """The store did not answer. A write that was under way may or may not have been stored."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(
            f"The control store {url} is not available: {reason}. Check that it runs, can be reached and has "
            f"free space; before repeating a write, read the key, because the last one may have been stored."
        )


class StoreUnusableError(PermanentError):
    """The store answered, but what it holds or allows cannot be worked with."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"The control store {url} cannot be used: {reason}. Waiting will not help; repair it first.")


class ValueTooLargeError(PermanentError):
    """A value is larger than any backing accepts; nothing was written."""

    def __init__(self, key: str, size: int, limit: int) -> None:
        self.key, self.size, self.limit = key, size, limit
        super().__init__(
            f"The value for {key!r} has {format_bytes(size)}, the store takes {format_bytes(limit)}. "
            f"Keep large data in a table or a file and its path in the store."
        )


class InvalidKeyError(UserError):
    """A key cannot be stored the same way by every backing."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key[:80]!r} cannot be a key: {reason}.")


class LeaseTimeoutError(TransientError):
    """A lease was not free in time."""

    def __init__(self, key: str, mode: str, timeout_s: float, holders: tuple[str, ...]) -> None:
        self.key, self.mode, self.timeout_s, self.holders = key, mode, timeout_s, holders
        super().__init__(
            f"No {mode} lease on {key!r} within {timeout_s:g} s; in the way: {', '.join(holders)}. "
            f"Wait for them; a holder that died is dropped when its time is over."
        )


class LeaseLostError(TransientError):
    """A lease ended before its work did, so somebody else may hold it now."""

    def __init__(self, key: str, owner: str, token: int) -> None:
        self.key, self.owner, self.token = key, owner, token
        super().__init__(
            f"{owner} no longer holds the lease on {key!r} (token {token}). "
            f"Stop without writing, acquire it again and start from what is stored now."
        )


class CorruptLeaseError(PermanentError):
    """The value under a lease's key was not written by a lease."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key!r} does not hold a lease: {reason}. When no job runs, delete the key.")
