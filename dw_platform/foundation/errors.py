"""Every error tells its caller whether waiting can help.

`TransientError`: the same call may succeed later (a lock is held, a server is away).
`PermanentError`: it will not, until somebody changes something; the text says what.
`UserError`: a permanent error whose cure is in the user's own input; `dw` exits with 2 for it.

Facts are attributes, so that tests and metadata read them; the sentence is built from them once.
"""

from typing import Any


class PlatformError(Exception):
    """Base of everything this platform raises on purpose; survives pickling, so tasks and workers can report it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[PlatformError], args: tuple[Any, ...], facts: dict[str, Any]) -> PlatformError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class TransientError(PlatformError):
    """Waiting or retrying may help."""


class PermanentError(PlatformError):
    """Retrying the same call cannot help."""


class UserError(PermanentError):
    """The input is wrong; the message says which part and what is allowed."""


class InvalidValueError(UserError):
    """A value was refused when it was set, before anything acted on it."""

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} cannot be {value!r}: {allowed}.")


class MissingExtraError(UserError):
    """An optional package is needed for what was asked."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(f"{feature} needs an optional package. Install it with: pip install 'dw-platform[{extra}]'")
