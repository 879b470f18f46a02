"""One member of a group, reading the partitions that are assigned to it.

Order: records of a partition come in their order; a record comes again only if it was not committed.
At least once: a record is done when its reader comes back for the next one or commits; what is done is stored every
few seconds, soon after everything was read, and at the end. A record that is being handled when its reader dies or
fails is read again.
Handing over: a partition that should move is released when what was handed out of it is done (with manual commit:
committed), or after the session's timeout. Until then nobody else reads it.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock
from dw_platform.streaming.checkpoints import Checkpoints
from dw_platform.streaming.desk import Desk, Ended
from dw_platform.streaming.errors import GroupFencedError, StreamsClosedError
from dw_platform.streaming.events import StreamEvent
from dw_platform.streaming.groups import GroupMember
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.pump import Pump
from dw_platform.streaming.stream import Stream


class StreamSubscription:
    """An asynchronous iterator of StreamEvent; one coroutine at a time uses it.

        async with streams.subscribe("orders", "billing") as events:
            async for event in events: ...

    Leaving the block without an error counts the last record as done; leaving it with one, or `close`, does not.
    """

    def __init__(
        self,
        stream: Stream,
        member: GroupMember,
        *,
        checkpoints: Checkpoints,
        limits: Callable[[], StreamingLimits],
        clock: Clock,
        auto_commit: bool,
        max_records: int,
        on_close: Callable[["StreamSubscription"], None],
    ) -> None:
        self.topic, self.group, self.member = member.topic, member.group, member.member
        self._on_close = on_close
        self._desk = Desk(max_records)
        self._pump = Pump(
            self._desk,
            stream,
            member,
            checkpoints=checkpoints,
            limits=limits,
            clock=clock,
            auto_commit=auto_commit,
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next record; raise GroupFencedError or RecordsExpiredError where reading cannot go on."""
        found = await self._desk.waker.first(self._desk.take)
        if isinstance(found, Ended):
            raise StopAsyncIteration
        assert found is not None, "the waker waits for something"
        return found

    async def commit(self) -> None:
        """Remember that everything handed out until now is done; return once that is stored.

        Raise GroupFencedError if the group goes on without this member. Partitions that were handed over meanwhile
        are left out: they are read again from their last commit.
        """
        await asyncio.to_thread(self.commit_sync)

    def commit_sync(self) -> None:
        """Do the same for callers without an event loop."""
        if isinstance(self._desk.failure, GroupFencedError):
            raise self._desk.failure
        if self._desk.closed:
            raise StreamsClosedError
        self._desk.finish()
        self._pump.commit()

    def seek(self, partition: int, offset: int) -> None:
        """Go on at another offset of a partition that it reads; what lies before it is not read or committed."""
        self._desk.seek(partition, offset)

    def assigned(self) -> list[int]:
        """Return the partitions that it reads now."""
        return self._desk.assigned()

    async def close(self) -> None:
        """Commit what is done, if that is automatic, and leave the group; closing twice is harmless."""
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """Do the same for callers without an event loop."""
        first = self._desk.close()
        self._pump.join()
        if first:
            self._on_close(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._desk.finish()
        await self.close()
