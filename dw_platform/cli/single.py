"""Commands of which a home takes one at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dw_platform.foundation import TransientError
from dw_platform.store.file_lock import file_lock


class AlreadyRunningError(TransientError):
    """The same command runs on this home already."""

    def __init__(self, command: str, home: Path, holder: str) -> None:
        self.command, self.home, self.holder = command, home, holder
        who = f" as process {holder}" if holder else ""
        super().__init__(
            f"`dw {command}` runs already{who} on {home}. Wait for it or stop it; a second platform needs "
            "a `home` of its own."
        )


@contextlib.contextmanager
def only_one(command: str, home: Path) -> Iterator[None]:
    """Hold the command's lock, or raise at once; the kernel frees it however its holder ends."""
    path = home / f"{command}.lock"
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(path, shared=False, timeout_s=0.0))
        except TimeoutError as error:
            raise AlreadyRunningError(command, home, path.read_text().strip()) from error
        path.write_text(f"{os.getpid()}\n")
        yield
