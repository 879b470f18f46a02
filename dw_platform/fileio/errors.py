"""What can go wrong with file I/O, and whether waiting helps."""

from datetime import datetime, timedelta

from dw_platform.foundation import PermanentError, TransientError, format_bytes, format_duration


class QuotaExceededError(TransientError):
    """A caller has used what it may use in this window; nothing was read or written."""

    def __init__(self, caller: str, *, unit: str, used: int, asked: int, limit: int, window_ends: datetime) -> None:
        self.caller, self.unit, self.used, self.asked, self.limit = caller, unit, used, asked, limit
        self.window_ends = window_ends
        in_bytes = unit == "bytes"
        amounts = [format_bytes(amount) if in_bytes else f"{amount:,}" for amount in (used, limit, asked)]
        super().__init__(
            f"{caller or 'A caller without a name'} has used {amounts[0]} of {amounts[1]} "
            f"{'' if in_bytes else 'requests '}in this hour and asked for {amounts[2]} more. Try again after "
            f"{window_ends:%Y-%m-%d %H:%M:%S} UTC, or raise quota_{unit}_per_hour with dw scale set fileio."
        )


class SlotTimeoutError(TransientError):
    """A request waited for its turn as long as its caller was ready to; it was not begun."""

    def __init__(self, caller: str, priority: str, waited: timedelta, *, running: int, depth: int) -> None:
        self.caller, self.priority, self.waited, self.running, self.depth = caller, priority, waited, running, depth
        super().__init__(
            f"{caller or 'A caller without a name'} waited {format_duration(waited)} for its turn at {priority} "
            f"priority, {running} requests are under way and {depth} may be. Try again when there is less to do."
        )


class FileIoClosedError(PermanentError):
    """The manager was closed, so what still waited does not begin."""

    def __init__(self) -> None:
        super().__init__(
            "File I/O was closed before this request had its turn; it was not begun. Use a manager that is open."
        )


class DiskCountersError(PermanentError):
    """The kernel's counters of the disks cannot be read here, so utilisation is not known."""

    def __init__(self, source: str, reason: str) -> None:
        self.source, self.reason = source, reason
        super().__init__(
            f"{source} cannot be read: {reason}. Utilisation is not known here; decisions that follow it stay put."
        )
