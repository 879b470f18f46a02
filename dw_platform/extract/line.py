"""The socket under a database connection, to be shut by another thread when an answer takes too long.

A duplicate of the descriptor is held, so a number that the driver has closed and the system has given to somebody
else is never shut by mistake.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any


class Line:
    """One connection's socket; cutting it makes whoever waits on it fail at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cut = False

    def hold(self, connection: Any) -> None:
        """Keep hold of the socket of a driver's connection; one that has none, such as a file, is let be."""
        number = _descriptor(connection)
        if number is None:
            return
        with self._lock:
            self._socket = socket.socket(fileno=os.dup(number))
            if self._cut:
                self._shut()

    def cut(self) -> None:
        """Shut the socket, now or as soon as it is held."""
        with self._lock:
            self._cut = True
            self._shut()

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Cut the line if the block takes longer; without a socket nothing happens."""
        if self._socket is None:
            yield
            return
        timer = threading.Timer(seconds, self.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def release(self) -> None:
        """Let go of it; the connection itself is its owner's."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is no longer connected, which is what was wanted
                self._socket.shutdown(socket.SHUT_RDWR)


def _descriptor(connection: Any) -> int | None:
    if pgconn := getattr(connection, "pgconn", None):  # psycopg
        return int(pgconn.socket)
    if sock := getattr(connection, "_sock", None):  # pymysql, which has no public way to it
        return int(sock.fileno())
    return None
