"""A client that speaks to the application in this process, without a network and without another event loop."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from starlette.applications import Starlette

T = TypeVar("T")


class Web:
    """The application with its start and its end, and an event loop that lives as long."""

    def __init__(self, app: Starlette) -> None:
        self._runner = asyncio.Runner()
        self._lifespan = app.router.lifespan_context(app)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    def __enter__(self) -> Self:
        self.run(self._lifespan.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.client.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.client.get(url, **options))

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.client.post(url, **options))
