"""`async for delivery in subscription`: batch by batch, committed when the whole batch was handled."""

import contextlib
from collections.abc import AsyncIterator

from dw_platform.bus.contract import Subscription
from dw_platform.bus.errors import SubscriptionClosedError
from dw_platform.bus.message import Delivery


async def deliveries(subscription: Subscription) -> AsyncIterator[Delivery]:
    """Yield messages until the subscription is closed; leaving early commits nothing of the last batch."""
    with contextlib.suppress(SubscriptionClosedError):
        while True:
            for delivery in await subscription.receive():
                yield delivery
            await subscription.commit()
