"""Databases as the rest of the platform sees them: pages, streams, large values, health; one subsystem, `database`."""

import threading
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from dw_platform.extract.buffer import BoundedBufferStream
from dw_platform.extract.conditions import Condition
from dw_platform.extract.connections import Connections
from dw_platform.extract.description import describe_table
from dw_platform.extract.health import HealthResult, check_sources
from dw_platform.extract.keyring import TokenKeyring
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.extract.ordering import Wished, check_conditions, query_order, table_order
from dw_platform.extract.pages import Count, PagedQueryResult
from dw_platform.extract.paging import Pager
from dw_platform.extract.query_pages import QueryTable
from dw_platform.extract.reader import TableQuery
from dw_platform.extract.request import PageRequest, check_count
from dw_platform.extract.source import DatabaseSource
from dw_platform.extract.spot import Key
from dw_platform.extract.streaming import Row, Stream, query_stream, stream_rows, table_stream
from dw_platform.extract.types import map_columns
from dw_platform.extract.values import stream_value
from dw_platform.foundation import Clock, InvalidValueError, SystemClock
from dw_platform.scaling import GaugeReading, PressureGauge
from dw_platform.store import BoundedCache, PersistentStore

_CacheKey = tuple[str, int, str | None, str]


class DatabaseStorageScalingManager:
    """A ScalableSubsystem over all databases of a platform; any thread may use it, and one process needs one.

    Its pressure is that of the database whose connections are nearest to their limit, or of the fullest buffer of a
    large value.
    """

    name = "database"

    def __init__(
        self,
        sources: Iterable[DatabaseSource],
        store: PersistentStore,
        *,
        limits: DatabaseLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._limits, self._clock = limits or DatabaseLimits(), clock or SystemClock()
        self._sources = {source.name: source for source in sources}
        self._keyring = TokenKeyring(store, ttl=self._limits.token_ttl, clock=self._clock)
        self._gauge = PressureGauge(self.name, self._limits.thresholds, clock=self._clock)
        self._cache = BoundedCache[_CacheKey, PagedQueryResult](
            self._limits.cache_policy(), size_of=_size_of, clock=self._clock
        )
        self._lock = threading.Lock()
        self._connections: dict[str, Connections] = {}
        self._streams: weakref.WeakSet[BoundedBufferStream] = weakref.WeakSet()
        self._counts: Counter[str] = Counter()

    @property
    def keyring(self) -> TokenKeyring:
        """The keys of its tokens, to rotate them by hand."""
        return self._keyring

    def execute_paginated_query(
        self,
        source: str,
        *,
        table: str | None = None,
        query: str | None = None,
        key: Sequence[str] = (),
        columns: Sequence[str] = (),
        order: Sequence[Wished] = (),
        where: Sequence[Condition] = (),
        page_size: int = 100,
        token: str | None = None,
        count: Count = "none",
        cached: bool = False,
    ) -> PagedQueryResult:
        """Return one page of a table or of a query: the first one, or the one that `token` continues with.

        Every argument but `page_size`, `columns`, `count` and `cached` has to be the same for all pages. A query needs
        a `key`, columns that tell its rows apart, to be paged exactly; without one it is paged by offset. `cached`
        takes a page that was read with the same arguments a moment ago.
        """
        request = PageRequest.of(source, table=table, query=query, key=key, columns=columns, order=order, where=where)
        check_count(count)
        if not 1 <= page_size <= self._limits.max_page_size:
            raise InvalidValueError("page_size", page_size, f"from 1 to {self._limits.max_page_size:,}")
        cache_key = (repr(request), page_size, token, count)
        if cached and (known := self._cache.get(cache_key)) is not None:
            return known.copy()
        place, connections = self._place(source)
        with connections.slot(self._limits.connection_wait.total_seconds()):
            page = Pager(place, connections, self._keyring).page(request, size=page_size, token=token, count=count)
        self._count(pages=1, rows=len(page.items))
        if cached:
            self._cache.set(cache_key, page)
            return page.copy()
        return page

    def execute_streaming_query(
        self,
        source: str,
        *,
        table: str | None = None,
        query: str | None = None,
        columns: Sequence[str] = (),
        order: Sequence[Wished] = (),
        where: Sequence[Condition] = (),
    ) -> AsyncGenerator[Row, None]:
        """Return all rows of a table or of a query, pulled one after the other through one server-side cursor.

        It holds a slot of the database's connections from the first row to the last, or until it is closed.
        """
        request = PageRequest.of(source, table=table, query=query, columns=columns, order=order, where=where)
        place, connections = self._place(source)

        def opened(stack: ExitStack) -> Stream:
            stack.enter_context(connections.slot(self._limits.connection_wait.total_seconds()))
            connection = stack.enter_context(connections.connection())
            self._count(streams=1)
            if request.query is not None:
                asked = QueryTable.describe(connection, place.kind, request.query)
                check_conditions(request.where, asked.names)
                wished = query_order(asked.names, request.order, ())
                return query_stream(connection, asked, wished, request.where)
            described = describe_table(connection, place, request.table or "")
            mapped = map_columns(described, columns=request.columns)
            ordered = table_order(described, request.order, None)
            return table_stream(connection, TableQuery(described, mapped, ordered, request.where))

        return stream_rows(place, opened, batch=self._limits.stream_rows)

    def stream_value(
        self, source: str, table: str, key: Key, column: str, *, by: Sequence[str] = ()
    ) -> BoundedBufferStream:
        """Return one value, however large, as a stream of chunks; it can be read by threads and by coroutines."""
        place, connections = self._place(source)
        with (
            connections.slot(self._limits.connection_wait.total_seconds()),
            connections.connection() as connection,
        ):
            described = describe_table(connection, place, table)
        stream = stream_value(place, described, key, column, by=by)
        with self._lock:
            self._streams.add(stream)
        return stream

    def check_health(self, sources: Sequence[str] = ()) -> list[HealthResult]:
        """Ask the databases, all if none are named, whether they answer; at once, and within the limit for all."""
        asked = [self._source(name) for name in sources] if sources else list(self._sources.values())
        return check_sources(asked, self._limits.health_timeout.total_seconds())

    def current_limits(self) -> DatabaseLimits:
        """Return the limits in force."""
        return self._limits

    def reconfigure_limits(self, limits: DatabaseLimits) -> None:
        """Use `limits` from the next page on; work under way keeps its connections."""
        with self._lock:
            self._limits = limits
            known = list(self._connections.items())
        self._keyring.ttl = limits.token_ttl
        self._cache.reconfigure(limits.cache_policy())
        self._gauge.reconfigure(limits.thresholds)
        for name, connections in known:
            connections.resize(self._source(name).max_connections)

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return totals, and what is in use now."""
        with self._lock:
            connections, streams, counts = list(self._connections.values()), list(self._streams), dict(self._counts)
        self._observe()
        cache = self._cache.stats()
        return {
            "pages": counts.get("pages", 0),
            "rows": counts.get("rows", 0),
            "streams": counts.get("streams", 0),
            "in_use": sum(each.in_use for each in connections),
            "buffered_bytes": sum(stream.stats().buffered_bytes for stream in streams),
            "cached_pages": cache.entries,
            "cached_bytes": cache.bytes,
            "cache_hit_ratio": cache.hit_ratio,
        }

    def backpressure_state(self) -> GaugeReading:
        """Return the pressure after the last use of a connection."""
        return self._gauge.reading()

    def close(self) -> None:
        """Close idle connections; using it again opens new ones."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for each in connections:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()

    def _source(self, name: str) -> DatabaseSource:
        try:
            source = self._sources[name]
        except KeyError as error:
            known = ", ".join(self._sources) or "none, as platform.yaml describes no database"
            raise InvalidValueError("source", name, f"one of {known}") from error
        limits = self._limits
        return replace(
            source,
            max_connections=limits.max_connections or source.max_connections,
            chunk_bytes=limits.chunk_bytes or source.chunk_bytes,
            buffer_bytes=limits.buffer_bytes or source.buffer_bytes,
        )

    def _place(self, name: str) -> tuple[DatabaseSource, Connections]:
        source = self._source(name)
        with self._lock:
            if name not in self._connections:
                self._connections[name] = Connections(
                    source, max_connections=source.max_connections, on_change=self._observe
                )
            return source, self._connections[name]

    def _observe(self) -> None:
        with self._lock:
            connections, streams = list(self._connections.values()), list(self._streams)
        filled = [each.occupancy for each in connections]
        filled += [stream.stats().buffered_bytes / stream.max_bytes for stream in streams]
        self._gauge.observe(min(1.0, max(filled, default=0.0)))

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)


def _size_of(page: PagedQueryResult) -> int:
    # What the values take as text is near enough for a bound, and cheap beside reading them.
    return sum(len(repr(item)) for item in page.items) + len(page.continuation_token or "") + 200
