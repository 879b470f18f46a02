"""An error that a Spark task raised reaches the driver as the same typed error, or as one that names its last line.

Spark turns every exception of a task into text. A `PlatformError` therefore travels inside that text, packed; it was
made a moment ago by this platform's own code and comes back over Spark's own channel.
"""

import base64
import contextlib
import pickle
import re
from collections.abc import Iterator

from dw_platform.foundation import PlatformError, TransientError

_MARK = "dw_task_error:"
_CARRIED = re.compile(_MARK + r"([A-Za-z0-9+/=]+)")
# A line of a Python traceback that names the exception, such as `ValueError: no such file`.
_RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*)$", re.MULTILINE)


class TaskFailedError(TransientError):
    """A task of a write failed, also after Spark's own retries."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(f"a Spark task failed: {cause}. Nothing was committed; the files of the write were removed.")


class CarriedError(Exception):
    """What a task raises in place of a PlatformError, so that its text arrives whole."""


def packed(error: PlatformError) -> str:
    """Return `error` as plain ASCII."""
    return base64.b64encode(pickle.dumps(error)).decode()


def unpacked(text: str) -> PlatformError:
    """Return the error that `packed` was given."""
    error = pickle.loads(base64.b64decode(text))  # noqa: S301  see above
    assert isinstance(error, PlatformError)
    return error


@contextlib.contextmanager
def carried() -> Iterator[None]:
    """Inside a task: let a PlatformError leave in a form that `task_error` recognises."""
    try:
        yield
    except PlatformError as error:
        raise CarriedError(f"{error} {_MARK}{packed(error)}") from error


def task_error(text: str) -> PlatformError:
    """In the driver: return the task's own error if `text` carries one, else a TaskFailedError with its last line."""
    if match := _CARRIED.search(text):
        return unpacked(match[1])
    raised = _RAISED.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return TaskFailedError(raised[-1] if raised else (lines[0] if lines else "no reason was given"))
