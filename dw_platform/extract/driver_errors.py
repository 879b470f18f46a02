"""What the four drivers report, sorted by what helps: waiting, other credentials, a fresh start, or a correction.

A driver is recognised by the package of its exceptions, so that none has to be installed for the others to work.
Codes decide where there are any. Only a failed login to PostgreSQL comes without one and is told by its text; a text
that is not known counts as absence, because a needless retry is the smaller mistake.
"""

import re
import sqlite3
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import exc


class Remedy(Enum):
    """What helps."""

    WAIT = "wait"
    ACCESS = "access"
    START_AGAIN = "start again"
    CORRECT = "correct"


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver said: what helps, and its sentence without the statement, which would show values of rows."""

    remedy: Remedy
    text: str


# 08 connection, 53 resources, 57 operator intervention and timeouts, 40 conflicts with others, 55P03 lock not free.
_PG_WAIT = re.compile(r"08|53|57|40|55P03")
_PG_ACCESS = re.compile(r"28|42501|3D000")
# No such table, column, schema, function; a value or an operator that does not fit the column's type any more; a plan
# made for other columns.
_PG_CHANGED = re.compile(r"42P01|42703|3F000|42883|42804|22P02|22007|0A000")
_PG_LOGIN = re.compile(
    r"authentication failed|no pg_hba\.conf entry|no password supplied|certificate|does not support SSL|"
    r"(role|database) \"[^\"]*\" does not exist|permission denied for database|is not permitted to log in",
    re.IGNORECASE,
)
_MYSQL_ACCESS = {1044, 1045, 1049, 1130, 1142, 1143, 1227, 1370, 1698, 4151}
_MYSQL_CHANGED = {1051, 1054, 1109, 1146, 1305, 1356, 1412}
_MYSQL_WAIT = {
    1040, 1041, 1042, 1043, 1053, 1077, 1078, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226,
    1290, 1317, 1836, 1927, 1969, 3024, 3100, 3169, 4031,
}  # fmt: skip
_SQLITE_WAIT = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT,
}  # fmt: skip
_SQLITE_ACCESS = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_SQLITE_CHANGED = re.compile(r"no such (table|column)|database schema has changed", re.IGNORECASE)
# ADBC's own status: I/O, cancelled, timeout, unauthenticated, unauthorised.
_ADBC_WAIT = {10, 11, 12}
_ADBC_ACCESS = {13, 14}
_STATEMENT = re.compile(r"\s*\n(Query was: |query: |LINE \d+: ).*", re.DOTALL)
_NOISE = re.compile(
    r"^[A-Z_]+: |\[libpq\] |\[SQLite\] |\bERROR: +|\bFATAL: +|Execution error \[\w+\]: |[\s.]*\bSQLSTATE: \w{5}\.?\s*$"
)
_LONGEST = 500


def report_of(error: BaseException) -> Report | None:
    """Return what a driver's exception says; None for everything that is not one."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    if isinstance(error, exc.TimeoutError):
        return Report(Remedy.WAIT, "all connections that the platform may open to it are in use")
    match _package(error):
        case "psycopg":
            return _postgres(error, getattr(error, "sqlstate", None))
        case "adbc_driver_manager":
            return _adbc(error)
        case "pymysql":
            return _mysql(error)
        case "sqlite3":
            return Report(_sqlite(getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error)), sentence(str(error)))
    return None


def sentence(text: str) -> str:
    """Return a driver's message on one line, without the statement it refused."""
    line = " ".join(_NOISE.sub("", _STATEMENT.sub("", text)).split())
    return (line[:_LONGEST] + " ..." if len(line) > _LONGEST else line).rstrip(".")


def _package(error: BaseException) -> str:
    for cls in type(error).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in {"psycopg", "adbc_driver_manager", "pymysql", "sqlite3"}:
            return package
    return ""


def _postgres(error: BaseException, sqlstate: str | None) -> Report:
    diagnosis: Any = getattr(error, "diag", None)
    text = sentence((diagnosis.message_primary if diagnosis else None) or str(error))
    if sqlstate is None:
        # The server's answer to a login has a code, but libpq does not hand it on.
        return Report(Remedy.ACCESS if _PG_LOGIN.search(text) else Remedy.WAIT, text)
    for remedy, codes in (
        (Remedy.WAIT, _PG_WAIT),
        (Remedy.ACCESS, _PG_ACCESS),
        (Remedy.START_AGAIN, _PG_CHANGED),
    ):
        if codes.match(sqlstate):
            return Report(remedy, text)
    return Report(Remedy.CORRECT, text)


def _adbc(error: BaseException) -> Report:
    status: Any = int(getattr(error, "status_code", 0))
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate and sqlstate != "\0\0\0\0\0":
        return _postgres(error, sqlstate)
    text = sentence(str(error))
    if _PG_LOGIN.search(text) or status in _ADBC_ACCESS:
        return Report(Remedy.ACCESS, text)
    if _SQLITE_CHANGED.search(text):
        return Report(Remedy.START_AGAIN, text)
    return Report(Remedy.WAIT if status in _ADBC_WAIT else Remedy.CORRECT, text)


def _mysql(error: BaseException) -> Report:
    code: Any = error.args[0] if error.args else 0
    text = sentence(str(error.args[1]) if len(error.args) > 1 else str(error))
    # 2xxx are the client's own: no connection, connection lost. InterfaceError(0, "") is a connection closed before.
    if code in _MYSQL_WAIT or (isinstance(code, int) and (2000 <= code < 3000 or code == 0)):
        return Report(Remedy.WAIT, text or "the connection is closed")
    if code in _MYSQL_ACCESS:
        return Report(Remedy.ACCESS, text)
    return Report(Remedy.START_AGAIN if code in _MYSQL_CHANGED else Remedy.CORRECT, text)


def _sqlite(code: int, text: str) -> Remedy:
    if code in _SQLITE_WAIT:
        return Remedy.WAIT
    if code in _SQLITE_ACCESS:
        return Remedy.ACCESS
    return Remedy.START_AGAIN if _SQLITE_CHANGED.search(text) else Remedy.CORRECT
