"""The connections of one process to one database: bounded, counted, and kept for the next page.

Work takes a slot and holds up to two connections: one that describes and counts, and one that reads. Readers stay open
between pages for whoever asks the same again; the oldest gives way. One that died while it waited is replaced.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Connection, Engine

from dw_platform.extract.errors import DatabaseUnavailableError
from dw_platform.extract.reader import PageReader, TableQuery
from dw_platform.extract.source import DatabaseSource, open_engine, translated
from dw_platform.foundation import TransientError

T = TypeVar("T")


class NoFreeConnectionError(TransientError):
    """All connections that the process may have are in use."""

    def __init__(self, source: str, limit: int, waited_s: float) -> None:
        self.source, self.limit, self.waited_s = source, limit, waited_s
        super().__init__(
            f"database {source}: its connections were in use for {waited_s:g} s, {limit} at work. Try again later, or "
            "raise its max_connections."
        )


class Connections:
    """All connections to one source; any thread may use them."""

    def __init__(self, source: DatabaseSource, *, max_connections: int, on_change: Callable[[], None]) -> None:
        self._source, self._on_change = source, on_change
        self._changed = threading.Condition()
        self._engine: Engine | None = None
        self._idle: list[tuple[TableQuery, PageReader]] = []
        self._limit, self._in_use = _slots(max_connections), 0

    @property
    def occupancy(self) -> float:
        """The share of slots that are taken."""
        return self._in_use / self._limit

    @property
    def in_use(self) -> int:
        """How many slots are taken."""
        return self._in_use

    def resize(self, max_connections: int) -> None:
        """Allow so many connections from now on; work under way keeps its own."""
        with self._changed:
            self._limit = _slots(max_connections)
            dropped, self._idle = self._idle[: -self._limit], self._idle[-self._limit :]
            engine, self._engine = self._engine, None
            self._changed.notify_all()
        self._release(dropped)
        if engine is not None:
            engine.dispose()

    @contextmanager
    def slot(self, wait_s: float) -> Iterator[None]:
        """Hold a slot, or raise NoFreeConnectionError after `wait_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._in_use < self._limit, wait_s):
                raise NoFreeConnectionError(self._source.name, self._limit, wait_s)
            self._in_use += 1
        self._on_change()
        try:
            yield
        finally:
            with self._changed:
                self._in_use -= 1
                self._changed.notify()
            self._on_change()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Give a connection for metadata, counts and queries; the caller holds a slot."""
        with self._changed:
            if self._engine is None:
                self._engine = open_engine(replace(self._source, max_connections=self._limit))
            engine = self._engine
        with translated(self._source), engine.connect() as connection:
            yield connection

    def read(self, query: TableQuery, work: Callable[[PageReader], T]) -> T:
        """Return what `work` makes of a reader of `query`; the caller holds a slot."""
        reader = self._take(query)
        if reader is not None:
            try:
                return self._worked(query, reader, work)
            except DatabaseUnavailableError:
                pass  # it may have died while it waited, which says nothing about the database
        return self._worked(query, PageReader(self._source, query).__enter__(), work)

    def close(self) -> None:
        """Close what is idle; work under way ends by itself."""
        with self._changed:
            dropped, self._idle = self._idle, []
            engine, self._engine = self._engine, None
        self._release(dropped)
        if engine is not None:
            engine.dispose()

    def _take(self, query: TableQuery) -> PageReader | None:
        with self._changed:
            for at, (known, reader) in enumerate(self._idle):
                if known == query:
                    del self._idle[at]
                    return reader
            # Room for the one that comes now, so that all together never exceed the limit.
            dropped = self._idle[: max(0, len(self._idle) + self._in_use - self._limit)]
            del self._idle[: len(dropped)]
        self._release(dropped)
        return None

    def _worked(self, query: TableQuery, reader: PageReader, work: Callable[[PageReader], T]) -> T:
        try:
            result = work(reader)
        except BaseException:
            reader.__exit__(None, None, None)  # it may be in the middle of anything
            raise
        with self._changed:
            self._idle.append((query, reader))
        return result

    @staticmethod
    def _release(dropped: list[tuple[TableQuery, PageReader]]) -> None:
        for _, reader in dropped:
            reader.__exit__(None, None, None)


def _slots(max_connections: int) -> int:
    """Return how many may work at once, as each takes two connections; with one alone it takes turns."""
    return max(1, max_connections // 2)
