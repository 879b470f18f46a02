import gc
import threading
import weakref
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.bus import RingBuffer, RingConsumer, WaitStrategy
from dw_platform.bus import ring as ring_module
from dw_platform.foundation import InvalidValueError

STRATEGIES = list(WaitStrategy)
COUNT = 20_000


@pytest.mark.parametrize("size", [-2, 0, 1, 3, 65_535])
def test_a_size_that_is_no_power_of_two_is_refused(size: int) -> None:
    with pytest.raises(InvalidValueError, match="power of two") as error:
        RingBuffer[int](size)
    assert error.value.field == "ring_size"


def test_a_full_ring_refuses_and_takes_again_once_the_slowest_consumer_has_moved() -> None:
    ring = RingBuffer[int](4)
    quick, slow = ring.subscribe(), ring.subscribe()
    assert [ring.offer(item) for item in range(5)] == [True] * 4 + [False]
    assert quick.drain() == [0, 1, 2, 3]
    assert not ring.offer(4)
    assert slow.drain(1) == [0]
    assert ring.offer(4)
    assert (ring.published, ring.consumed, quick.available) == (5, 1, 1)


def test_a_batch_is_taken_as_far_as_there_is_room() -> None:
    ring = RingBuffer[int](4)
    consumer = ring.subscribe()
    assert ring.offer_batch([0, 1, 2]) == 3
    assert consumer.drain(2) == [0, 1]
    assert ring.offer_batch([3, 4, 5, 6]) == 3
    assert consumer.drain() == [2, 3, 4, 5]


def test_waiting_for_room_ends_with_its_time() -> None:
    ring = RingBuffer[int](2)
    ring.subscribe()
    ring.publish_batch([1, 2])
    assert not ring.publish(3, timeout_s=0.01)


@pytest.mark.parametrize("wait", STRATEGIES)
def test_waiting_for_an_item_ends_with_its_time(wait: WaitStrategy) -> None:
    assert not RingBuffer[int](2, wait=wait).subscribe().wait(timeout_s=0.01)


def test_a_consumer_sees_what_is_published_after_it_came_and_no_longer_blocks_once_it_left() -> None:
    ring = RingBuffer[int](2)
    ring.publish_batch([1, 2, 3])
    consumer = ring.subscribe()
    ring.publish_batch([4, 5])
    assert not ring.offer(6)
    consumer.close()
    assert ring.offer(6)
    assert consumer.drain() != [1]


def test_items_that_everybody_took_can_be_forgotten_and_others_stay() -> None:
    class Item:
        pass

    ring = RingBuffer[Item](2)
    consumer = ring.subscribe()
    taken, kept = Item(), Item()
    gone = weakref.ref(taken)
    ring.publish_batch([taken, kept])
    assert consumer.drain(1) == [taken]
    ring.publish(Item())  # overwrites the slot of the first one, which must survive the forgetting
    ring.forget_consumed()
    del taken
    gc.collect()
    assert gone() is None
    assert [type(item) for item in consumer.drain()] == [Item, Item]


def test_what_was_taken_in_one_piece_stays_as_it_is_when_the_ring_forgets_or_goes_on() -> None:
    ring = RingBuffer[int](4)
    quick, slow = ring.subscribe(), ring.subscribe()
    ring.publish_batch([0, 1, 2, 3])
    taken = quick.take()
    assert slow.drain(3) == [0, 1, 2]
    ring.forget_consumed()
    ring.publish_batch([4, 5, 6])
    assert (taken, quick.take(), slow.take(), slow.take()) == ([0, 1, 2, 3], [4, 5, 6], [3], [4, 5, 6])
    ring.forget_consumed()
    assert (quick.take(), slow.take()) == ([], [])
    ring.publish_batch([7, 8])
    assert (quick.take(), quick.take(), slow.drain()) == ([7], [8], [7, 8])


_ACTIONS = ["one", "many", "first", "second", "first takes", "second takes", "forget"]


@given(
    size=st.sampled_from([2, 4, 8, 16]),
    chunk=st.sampled_from([2, 4, 16]),
    steps=st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(1, 20)), max_size=60),
)
def test_any_mix_of_single_and_batch_keeps_order_for_every_consumer(
    size: int, chunk: int, steps: list[tuple[str, int]]
) -> None:
    with mock.patch.object(ring_module, "_LARGEST_CHUNK", chunk):
        ring = RingBuffer[int](size)
    consumers = {"first": ring.subscribe(), "second": ring.subscribe()}
    seen: dict[str, list[int]] = {"first": [], "second": []}
    sent = 0
    for what, count in steps:
        room = size - (ring.published - ring.consumed)
        if what == "one":
            assert ring.offer(sent) is (room > 0)
            sent += room > 0
        elif what == "many":
            taken = ring.offer_batch(list(range(sent, sent + count)))
            assert taken == min(count, room)
            sent += taken
        elif what == "forget":
            ring.forget_consumed()
        elif what.endswith("takes"):
            name = what.split()[0]
            seen[name] += consumers[name].take()
        else:
            seen[what] += consumers[what].drain(count)
    for name, consumer in consumers.items():
        assert seen[name] + consumer.drain() == list(range(sent))


@pytest.mark.parametrize("wait", STRATEGIES)
@pytest.mark.parametrize("batch", [1, 64])
def test_every_consuming_thread_sees_every_item_in_order(wait: WaitStrategy, batch: int) -> None:
    count = COUNT if wait is not WaitStrategy.SPIN else COUNT // 10  # spinning threads steal each other's turns
    ring = RingBuffer[int](256, wait=wait)
    seen: list[list[int]] = [[], [], []]
    threads = [threading.Thread(target=_consume, args=(ring.subscribe(), into, count)) for into in seen]
    for thread in threads:
        thread.start()
    for first in range(0, count, batch):
        if batch == 1:
            assert ring.publish(first, timeout_s=60)
        else:
            ring.publish_batch(list(range(first, min(first + batch, count))))
    for thread in threads:
        thread.join(60)
    assert seen == [list(range(count))] * 3


def _consume(consumer: RingConsumer[int], into: list[int], count: int) -> None:
    while len(into) < count and consumer.wait(60):
        into += consumer.drain(100) or consumer.take()
        into += consumer.take()
