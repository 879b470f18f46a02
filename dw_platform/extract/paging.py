"""One page of a request: its beginning taken from the token, its rows from the database, its end into a new token.

The first page fixes the end of the sequence, the greatest key there is at that moment, so that a table which grows
faster than it is read comes to an end as well. The total, if it is asked for, is taken then and travels along.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from dw_platform.extract.connections import Connections
from dw_platform.extract.counting import count_rows, estimate_rows
from dw_platform.extract.description import SourceTable, UniqueKey, describe_table
from dw_platform.extract.errors import NoKeyError, NullInKeyError
from dw_platform.extract.key_column import OrderColumn, Position
from dw_platform.extract.keyring import TokenKeyring
from dw_platform.extract.keys import choose_key
from dw_platform.extract.ordering import check_conditions, query_order, table_order
from dw_platform.extract.pages import Count, Method, PagedQueryResult
from dw_platform.extract.query_pages import QueryTable, keyset_rows, last_position
from dw_platform.extract.query_pages import offset_rows as offset_rows_of_query
from dw_platform.extract.reader import Page, PageReader, TableQuery
from dw_platform.extract.request import PageRequest
from dw_platform.extract.source import DatabaseSource
from dw_platform.extract.table_pages import offset_rows, table_filter
from dw_platform.extract.token import ContinuationToken, TokenBinding, decode_token, encode_token, require_binding
from dw_platform.extract.types import map_columns

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Total:
    count: int | None = None
    estimate: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a page and where they end."""

    rows: Rows
    last: Position | None = None
    upto: Position | None = None
    more: bool = False


class Pager:
    """Reads pages of one source; the caller holds a slot of its connections."""

    def __init__(self, source: DatabaseSource, connections: Connections, keyring: TokenKeyring) -> None:
        self._source, self._connections, self._keyring = source, connections, keyring

    def page(self, request: PageRequest, *, size: int, token: str | None, count: Count) -> PagedQueryResult:
        """Return the page that `token` asks for, or the first one without a token."""
        # Before anything is asked of the database: most bad tokens are told by themselves.
        given = None if token is None else decode_token(token, self._keyring)
        if request.query is not None:
            return self._of_query(request, request.query, size, given, count)
        return self._of_table(request, size, given, count)

    def _of_table(
        self, request: PageRequest, size: int, given: ContinuationToken | None, count: Count
    ) -> PagedQueryResult:
        with self._connections.connection() as connection:
            table = describe_table(connection, self._source, request.table or "")
            key = self._key(table, request)
            order = table_order(table, request.order, key)
            binding = self._binding(request, str(table), order, table.fingerprint)
            self._require(given, binding, str(table))
            columns = map_columns(table, columns=request.columns)
            # Without the estimate, which changes, a reader is found again for the next page.
            query = TableQuery(replace(table, estimated_rows=None), columns, order, request.where)
            for condition in request.where:
                table.column(condition.column)
            total = self._total(
                connection, given, count, origin=table.quoted(), where=table_filter(query), known=table.estimated_rows
            )
        if key is None:
            offset = 0 if given is None else given.offset
            rows = offset_rows(self._source, query, offset=offset, limit=size + 1)
            return self._offset_result(binding, rows, offset, size, total)
        if given is None and key.nullable:
            self._refuse_nulls(query, key)
        part = self._connections.read(query, lambda reader: _read(reader, size, given))
        return self._keyset_result(binding, part, total)

    def _of_query(
        self, request: PageRequest, text: str, size: int, given: ContinuationToken | None, count: Count
    ) -> PagedQueryResult:
        with self._connections.connection() as connection:
            table = QueryTable.describe(connection, self._source.kind, text)
            order = query_order(table.names, request.order, request.key)
            check_conditions(request.where, table.names)
            binding = self._binding(request, text, order, table.fingerprint)
            self._require(given, binding, "of the query")
            total = self._total(connection, given, count, origin=table.origin, where=table.filter(request.where))
            if request.key:
                part = _read_query(connection, table, order, request, size=size, given=given)
                return self._keyset_result(binding, part, total)
            offset = 0 if given is None else given.offset
            rows = offset_rows_of_query(connection, table, order, request.where, offset=offset, limit=size + 1)
        return self._offset_result(binding, rows, offset, size, total)

    def _key(self, table: SourceTable, request: PageRequest) -> UniqueKey | None:
        """Return the key by which the table is paged; None for one that has none, which is paged by offset."""
        try:
            return choose_key(table, request.key)
        except NoKeyError:
            if request.key:
                raise  # the user named one, and should hear what is wrong with it
            return None

    def _refuse_nulls(self, query: TableQuery, key: UniqueKey) -> None:
        by_key = replace(query, order=table_order(query.table, key.columns, None), where=())
        if self._connections.read(by_key, PageReader.has_null_in_key):
            raise NullInKeyError(self._source.name, str(query.table), key.columns)

    def _binding(
        self, request: PageRequest, table: str, order: Sequence[OrderColumn], fingerprint: str
    ) -> TokenBinding:
        return TokenBinding.of(
            source=(self._source.name, self._source.kind),
            table=(request.query is None, table),
            filter=request.where,
            order=(tuple(order), request.key),
            schema=fingerprint,
        )

    def _require(self, given: ContinuationToken | None, binding: TokenBinding, table: str) -> None:
        if given is not None:
            require_binding(given, binding, source=self._source.name, table=table)

    def _total(
        self,
        connection: Connection,
        given: ContinuationToken | None,
        count: Count,
        *,
        origin: str,
        where: str,
        known: int | None = None,
    ) -> _Total:
        if count == "none":
            return _Total()
        if given is not None and given.total_count is not None and (count == "estimate" or not given.total_is_estimate):
            return _Total(given.total_count, given.total_is_estimate)
        if count == "estimate":
            estimate = known if known is not None and not where else None
            if estimate is None:
                estimate = estimate_rows(connection, self._source.kind, origin, where)
            if estimate is not None:
                return _Total(estimate, estimate=True)
        return _Total(count_rows(connection, origin, where))

    def _keyset_result(self, binding: TokenBinding, part: _Part, total: _Total) -> PagedQueryResult:
        token = ContinuationToken(
            binding, part.last, part.upto, total_count=total.count, total_is_estimate=total.estimate
        )
        return self._result("keyset", part.rows, token if part.more else None, total)

    def _offset_result(
        self, binding: TokenBinding, rows: Rows, offset: int, size: int, total: _Total
    ) -> PagedQueryResult:
        token = ContinuationToken(
            binding, offset=offset + size, total_count=total.count, total_is_estimate=total.estimate
        )
        return self._result("offset", rows[:size], token if len(rows) > size else None, total)

    def _result(self, method: Method, rows: Rows, token: ContinuationToken | None, total: _Total) -> PagedQueryResult:
        return PagedQueryResult(
            items=rows,
            has_more=token is not None,
            continuation_token=None if token is None else encode_token(token, self._keyring),
            method=method,
            total_count=total.count,
            total_is_estimate=total.estimate,
        )


def _read(reader: PageReader, size: int, given: ContinuationToken | None) -> _Part:
    if given is None:
        upto = reader.last_position()
        if upto is None:
            return _Part([])
        page = reader.page(None, size, upto=upto)
    else:
        upto = given.upto
        page = reader.page(given.position, size, upto=upto)
    return _Part(page.rows.to_pylist(), page.last, upto, _goes_on(page, upto))


def _goes_on(page: Page, upto: Position | None) -> bool:
    # A full page that ends at the bound is the last one, without another look. If somebody has deleted the row of the
    # bound, the sequence ends with an empty page instead.
    return not page.exhausted and page.last != upto


def _read_query(
    connection: Connection,
    table: QueryTable,
    order: Sequence[OrderColumn],
    request: PageRequest,
    *,
    size: int,
    given: ContinuationToken | None,
) -> _Part:
    upto = last_position(connection, table, order, request.where) if given is None else given.upto
    if upto is None:
        return _Part([])
    after = None if given is None else given.position
    rows, last = keyset_rows(connection, table, order, request.where, after=after, upto=upto, limit=size)
    return _Part(rows, last, upto, more=len(rows) == size and last != upto)
