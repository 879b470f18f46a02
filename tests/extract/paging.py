"""A manager over a sandbox, and all pages of a request."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from dw_platform.extract.limits import DatabaseLimits
from dw_platform.extract.manager import DatabaseStorageScalingManager
from dw_platform.extract.pages import PagedQueryResult
from dw_platform.foundation import Clock
from dw_platform.store import MemoryStore
from tests.extract.conftest import Sandbox


@contextmanager
def managed(
    *boxes: Sandbox, limits: DatabaseLimits | None = None, clock: Clock | None = None
) -> Iterator[DatabaseStorageScalingManager]:
    sources = [box.source for box in boxes]
    with DatabaseStorageScalingManager(sources, MemoryStore(), limits=limits, clock=clock) as manager:
        yield manager


def all_pages(
    manager: DatabaseStorageScalingManager, source: str, sizes: Sequence[int] = (3,), **request: Any
) -> list[PagedQueryResult]:
    found: list[PagedQueryResult] = []
    token = None
    for size in cycle(sizes):
        page = manager.execute_paginated_query(source, page_size=size, token=token, **request)
        assert page.has_more == (page.continuation_token is not None)
        found.append(page)
        if not page.has_more:
            return found
        token = page.continuation_token
        assert len(found) < 5_000, "the pages do not get on"
    raise AssertionError


def column(pages: Sequence[PagedQueryResult], name: str) -> list[Any]:
    return [item[name] for page in pages for item in page.items]
