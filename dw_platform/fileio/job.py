"""Work that was handed in to be done when its turn comes."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from dw_platform.fileio.errors import FileIoClosedError

T = TypeVar("T")


class Job(Generic[T]):
    """A piece of work, and the future that tells how it ended. Cancelled before its turn, it is not begun."""

    def __init__(self, work: Callable[[], T], *, leave: Callable[[], None], refund: Callable[[], None]) -> None:
        """`leave` ends its slot; `refund` gives back its charge if it was never begun."""
        self._work, self._leave, self._refund = work, leave, refund
        self.future: Future[T] = Future()

    def run(self) -> None:
        """Do the work in the slot that was granted; raises nothing, the future has it."""
        if not self.future.set_running_or_notify_cancel():
            self._refund()
            return
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001  it belongs to who asked for the work
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def leave(self) -> None:
        """End the slot; called once after `run`."""
        self._leave()

    def refuse(self) -> None:
        """End it without having begun, because there will be no turn."""
        self._refund()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(FileIoClosedError())
