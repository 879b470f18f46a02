"""What can go wrong around limits, beyond a refused value."""

from collections.abc import Iterable

from dw_platform.foundation import PermanentError, UserError


class UnknownSubsystemError(UserError):
    """Somebody asked for the limits of a subsystem that this platform does not have."""

    def __init__(self, subsystem: str, known: Iterable[str]) -> None:
        self.subsystem, self.known = subsystem, tuple(sorted(known))
        super().__init__(f"There is no subsystem {subsystem!r}. Known are: {', '.join(self.known) or 'none'}.")


class UndecodableRecordError(PermanentError):
    """What the store holds under a key is not what this platform writes there."""

    def __init__(self, key: str, detail: str) -> None:
        self.key, self.detail = key, detail
        super().__init__(f"{key} cannot be read: {detail}. Reset it, or delete it from the control store.")
