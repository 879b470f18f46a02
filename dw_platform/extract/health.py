"""Whether databases answer: all asked at once, each within a limit that holds whatever a server or driver does.

Drivers are given the limit as their connect and statement timeouts. These do not cover everything: PostgreSQL's
statement timeout is the server's, and a server that has stopped does not watch its own clock. So when the limit is
reached, the connection's socket is shut from outside, which ends every wait on it. A thread that does not come back
even then, from a resolver or a dead network drive, is left behind, and its database is not asked again before it is
back.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, event

from dw_platform.extract.errors import DatabaseAccessError, DatabaseUnavailableError
from dw_platform.extract.line import Line
from dw_platform.extract.source import DatabaseSource, open_engine, translated
from dw_platform.foundation import PlatformError

CHECK_LIMIT_S = 5.0
# Drivers get a little less than the limit, so that their own words arrive before it.
_DRIVER_SHARE = 0.8

# SQLite opens any file and looks into it only when it is asked for something that is there.
_QUESTIONS = {"sqlite": "SELECT count(*) FROM sqlite_master"}
_QUESTION = "SELECT 1"

_left_behind: dict[DatabaseSource, threading.Thread] = {}
_left_behind_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthResult:
    """What one check found."""

    database: str
    latency_s: float
    """How long it took to connect, ask and get the answer, or until it failed."""

    error: PlatformError | None = None

    @property
    def healthy(self) -> bool:
        """Whether the database answered."""
        return self.error is None

    @property
    def why(self) -> str:
        """The cause of the failure in a few words; empty if there is none."""
        told = "" if self.error is None else str(getattr(self.error, "cause", self.error))
        return told.partition(" Is the server running")[0].rstrip(".")  # libpq's guess, longer than what it knows

    @property
    def told(self) -> str:
        """One sentence for people, with what to do."""
        match self.error:
            case None:
                return f"answers in {self.latency_s * 1000:.0f} ms"
            case DatabaseUnavailableError():
                return f"does not answer: {self.why}; check the server, the network and its `url` in platform.yaml"
            case DatabaseAccessError():
                return f"refuses access: {self.why}; check user, password and database name of its `url`"
            case error:
                return f"cannot be asked: {error}"


def check_sources(sources: Sequence[DatabaseSource], timeout_s: float = CHECK_LIMIT_S) -> list[HealthResult]:
    """Ask all databases at once and return what each answered, in their order, after `timeout_s` at most."""
    checks = [_Check(source, timeout_s) for source in sources]
    deadline = time.monotonic() + timeout_s
    for check in checks:
        check.start()
    return [check.result(deadline) for check in checks]


class _Check:
    """One database, asked by a thread of its own."""

    def __init__(self, source: DatabaseSource, timeout_s: float) -> None:
        self._source, self._timeout_s = source, timeout_s
        self._line, self._done = Line(), threading.Event()
        self._error: PlatformError | None = None
        self._engine: Engine | None = None
        self._started = self._ended = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"health-{source.name}", daemon=True)
        try:
            # Here and not in the thread: it loads the driver, which must not count as the database's time.
            self._engine = open_engine(_within(source, timeout_s))
        except PlatformError as error:
            self._error = error

    def start(self) -> None:
        self._started = self._ended = time.monotonic()
        if self._engine is None:
            self._done.set()
            return
        with _left_behind_lock:
            earlier = _left_behind.get(self._source)
            if earlier is not None and earlier.is_alive():
                self._error = self._unavailable("the check before has not come back yet")
                self._done.set()
                return
            _left_behind.pop(self._source, None)
        self._thread.start()

    def result(self, deadline: float) -> HealthResult:
        if not self._done.wait(max(0.0, deadline - time.monotonic())):
            self._leave_behind()
            return self._found(time.monotonic(), self._unavailable(f"no answer within {self._timeout_s:g} s"))
        return self._found(self._ended, self._error)

    def _found(self, ended: float, error: PlatformError | None) -> HealthResult:
        return HealthResult(database=self._source.name, latency_s=ended - self._started, error=error)

    def _leave_behind(self) -> None:
        with _left_behind_lock:
            _left_behind[self._source] = self._thread
        self._line.cut()

    def _run(self) -> None:
        assert self._engine is not None
        try:
            _ask(self._engine, self._source, self._line)
        except PlatformError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - the thread ends here; its text might quote a password
            self._error = self._unavailable(type(error).__name__)
        finally:
            self._ended = time.monotonic()
            self._done.set()

    def _unavailable(self, cause: str) -> DatabaseUnavailableError:
        return DatabaseUnavailableError(self._source.name, cause)


def _within(source: DatabaseSource, timeout_s: float) -> DatabaseSource:
    limit = timeout_s * _DRIVER_SHARE
    return replace(
        source,
        connect_timeout_s=min(source.connect_timeout_s, limit),
        statement_timeout_s=min(source.statement_timeout_s, limit),
        max_connections=1,
    )


def _ask(engine: Engine, source: DatabaseSource, line: Line) -> None:
    def hold(connection: Any, _record: Any) -> None:
        line.hold(connection)

    # Before what the engine itself says to a new connection, for that may already have no answer.
    event.listen(engine, "connect", hold, insert=True)
    try:
        with translated(source), engine.connect() as connection:
            connection.exec_driver_sql(_QUESTIONS.get(source.kind, _QUESTION)).scalar_one()
    finally:
        engine.dispose()
        line.release()
