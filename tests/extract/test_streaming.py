"""Rows pulled one after the other through a cursor in the database; leaving gives the connection back."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from dw_platform.extract.conditions import Condition
from dw_platform.extract.errors import StatementRefusedError, UnknownSourceTableError
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.extract.manager import DatabaseStorageScalingManager
from tests.extract.conftest import Sandbox
from tests.extract.paging import all_pages, managed

ROWS = 2_500
# One slot: whatever follows only works once the stream has given it back.
ONE_AT_A_TIME = DatabaseLimits(max_connections=2, stream_rows=100, connection_wait=timedelta(seconds=20))


def fill(box: Sandbox) -> None:
    box.run("CREATE TABLE t (id integer NOT NULL PRIMARY KEY, amount decimal(10,2))")
    box.insert("t", [(number, str(Decimal(number) / 4)) for number in range(ROWS)])


async def collect(manager: DatabaseStorageScalingManager, box: Sandbox, **request: Any) -> list[dict[str, Any]]:
    return [row async for row in manager.execute_streaming_query(box.source.name, **request)]


def test_a_stream_gives_the_values_that_pages_give(box: Sandbox) -> None:
    fill(box)
    with managed(box, limits=ONE_AT_A_TIME) as manager:
        streamed = asyncio.run(collect(manager, box, table="t", order=["id"]))
        paged = [item for page in all_pages(manager, box.source.name, [1000], table="t") for item in page.items]
        assert streamed == paged
        where = [Condition("amount", ">", "10.5"), Condition("id", "<", 50)]
        some = asyncio.run(collect(manager, box, table="t", where=where, columns=["id"], order=["-id"]))
        assert some == [{"id": number} for number in range(49, 42, -1)]
        assert asyncio.run(collect(manager, box, table="t", where=[Condition("id", "<", 0)])) == []


def test_a_query_is_streamed_in_its_own_order(box: Sandbox) -> None:
    fill(box)
    with managed(box, limits=ONE_AT_A_TIME) as manager:
        rows = asyncio.run(collect(manager, box, query="SELECT id FROM t WHERE id % 2 = 0 ORDER BY id DESC;"))
        assert [row["id"] for row in rows] == list(range(ROWS - 2, -1, -2))
        rows = asyncio.run(
            collect(manager, box, query="SELECT id FROM t", where=[Condition("id", "=", 7)], order=["id"])
        )
        assert rows == [{"id": 7}]


def test_nothing_is_held_but_a_batch_and_leaving_early_gives_the_connection_back(box: Sandbox) -> None:
    fill(box)

    async def leave(manager: DatabaseStorageScalingManager) -> dict[str, Any]:
        stream = manager.execute_streaming_query(box.source.name, table="t", order=["id"])
        first = await anext(stream)
        assert manager.scaling_metrics()["in_use"] == 1
        assert manager.backpressure_state().latest == 1.0
        await stream.aclose()
        assert manager.scaling_metrics()["in_use"] == 0
        return first

    with managed(box, limits=ONE_AT_A_TIME) as manager:
        assert asyncio.run(leave(manager))["id"] == 0
        assert len(asyncio.run(collect(manager, box, table="t"))) == ROWS


@pytest.mark.server
def test_whoever_is_cancelled_while_the_database_works_ends_its_statement(postgres_box: Sandbox) -> None:
    async def cancelled(manager: DatabaseStorageScalingManager) -> None:
        stream = manager.execute_streaming_query("pg", query="SELECT pg_sleep(600) AS slept")
        task = asyncio.ensure_future(anext(stream))
        while not await asyncio.to_thread(sleeping, postgres_box):
            pass  # each look is a question to the server
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The one slot is free again only when the sleeping statement has ended.
        assert await collect(manager, postgres_box, query="SELECT 1 AS one") == [{"one": 1}]

    with managed(postgres_box, limits=ONE_AT_A_TIME) as manager:
        asyncio.run(cancelled(manager))
    assert not sleeping(postgres_box)


def sleeping(box: Sandbox) -> bool:
    with box.admin.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'PgSleep'"
        )
        return bool(found.scalar_one())


def test_what_is_wrong_is_said_with_the_first_row(box: Sandbox) -> None:
    fill(box)
    with managed(box, limits=ONE_AT_A_TIME) as manager:
        with pytest.raises(UnknownSourceTableError):
            asyncio.run(collect(manager, box, table="nothing"))
        with pytest.raises(StatementRefusedError):
            asyncio.run(collect(manager, box, query="SELEC 1"))
        assert len(asyncio.run(collect(manager, box, query="SELECT 1 AS one"))) == 1
