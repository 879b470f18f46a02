"""Work in Spark tasks whose results are small: run at once, or on a thread of its own while the driver does more."""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dw_platform.lake.task_errors import task_error, unpacked
from dw_platform.lake.tasks import OUTCOME, spark_task


def run_job(session: SparkSession, tasks: int, work: Callable[[int], Any]) -> list[Any]:
    """Run so many tasks, each given its number, and return their results in order.

    A PermanentError of a task arrives as itself and without a retry, a TransientError as itself after Spark's own
    retries, anything else as TaskFailedError.
    """
    if not tasks:
        return []
    frame = session.range(0, tasks, 1, tasks).mapInArrow(spark_task(work), OUTCOME)
    try:
        told = sorted(frame.collect(), key=lambda row: row.task)
    except PySparkException as error:
        raise task_error(str(error)) from error
    for row in told:
        if row.error:
            raise unpacked(row.error)
    return [json.loads(row.result) for row in told]


class Ended:
    """That work is over: what it returned, or what it failed with."""

    def __init__(self, result: Any, error: BaseException | None) -> None:
        self.result, self.error = result, error


class UnderWay:
    """Work on a thread that can be waited for."""

    def __init__(self, work: Callable[[], Any], name: str) -> None:
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> Ended | None:
        """Return the end, or None if it has not come yet."""
        return Ended(self._result, self._error) if self._done.wait(timeout_s) else None

    def join(self) -> None:
        """Wait until the thread is over."""
        self._thread.join()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._result = work()
        except BaseException as error:  # noqa: BLE001  whoever waits raises it on its own thread
            self._error = error
        finally:
            self._done.set()


@contextlib.contextmanager
def job_under_way(session: SparkSession, tasks: int, work: Callable[[int], Any], name: str) -> Iterator[UnderWay]:
    """Run a job beside the caller; leaving the block ends tasks that still run."""
    tag = f"dw-{name}-{secrets.token_hex(6)}"

    def run() -> list[Any]:
        session.addTag(tag)
        try:
            return run_job(session, tasks, work)
        finally:
            session.removeTag(tag)

    under_way = UnderWay(run, name)
    try:
        yield under_way
    finally:
        if under_way.wait(0) is None:
            with contextlib.suppress(PySparkException):
                session.interruptTag(tag)
        under_way.join()
