from collections import Counter, deque
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.fileio import DispatchQueue, IoPriority, PriorityWeights
from dw_platform.fileio.dispatch import LEAST_COST, cost_of
from dw_platform.foundation import InvalidValueError

HIGH, NORMAL, LOW = IoPriority.HIGH, IoPriority.NORMAL, IoPriority.LOW
MIB = 1 << 20

Request = tuple[int, IoPriority, int]
PRIORITIES = st.sampled_from(IoPriority)
SIZES = st.integers(0, 4 * MIB)
WEIGHTS = st.builds(PriorityWeights, high=st.integers(1, 50), normal=st.integers(1, 50), low=st.integers(1, 50))
# None takes the next one; the rest arrives.
EVENTS = st.lists(st.none() | st.tuples(PRIORITIES, SIZES), max_size=300)


def test_the_higher_priority_goes_first_when_all_arrive_at_once() -> None:
    queue = DispatchQueue[str](PriorityWeights())
    for priority in (LOW, NORMAL, HIGH):
        queue.push(priority.value, priority, 1)
    assert [queue.pop() for _ in range(3)] == ["high", "normal", "low"]


def test_a_high_request_that_arrives_goes_before_all_that_wait() -> None:
    queue = DispatchQueue[str](PriorityWeights())
    for number in range(20):
        queue.push(f"low {number}", LOW, MIB)
        queue.push(f"normal {number}", NORMAL, MIB)
    for _ in range(7):
        queue.pop()
    queue.push("high", HIGH, MIB)
    assert queue.pop() == "high"


def test_low_goes_between_floods_of_the_others_as_often_as_documented() -> None:
    queue = DispatchQueue[tuple[IoPriority, int]](PriorityWeights(high=16, normal=4, low=1))
    numbers = count()
    for priority in IoPriority:
        for _ in range(200):
            queue.push((priority, next(numbers)), priority, MIB)
    order = [queue.pop()[0] for _ in range(210)]
    at = [place for place, priority in enumerate(order) if priority is LOW]
    assert len(at) >= 9
    for before, after in pairwise(at):
        between = Counter(order[before + 1 : after])
        assert between[HIGH] <= 17
        assert between[NORMAL] <= 5


@given(weights=WEIGHTS, events=EVENTS)
def test_nobody_starves_whatever_the_others_send(weights: PriorityWeights, events: list[object]) -> None:
    """The bound of the module's docstring, checked for every request of every priority at each step."""
    queue, lanes = DispatchQueue[Request](weights), {priority: deque[Request]() for priority in IoPriority}
    last_cost = dict.fromkeys(IoPriority, 0)
    passed = {priority: Counter[IoPriority]() for priority in IoPriority}
    largest = dict.fromkeys(IoPriority, LEAST_COST)
    for number, event in enumerate([*events, *[None] * len(events)]):
        if event is not None:
            priority, nbytes = event  # type: ignore[misc]
            request = (number, priority, nbytes)
            if not lanes[priority]:
                passed[priority].clear()
            queue.push(request, priority, nbytes)
            lanes[priority].append(request)
            largest[priority] = max(largest[priority], cost_of(nbytes))
        elif len(queue):
            request = queue.pop()
            _, sent, nbytes = request
            assert lanes[sent].popleft() == request, "first come, first served within a priority"
            last_cost[sent] = cost_of(nbytes)
            passed[sent].clear()
            for waiting in IoPriority:
                if waiting is not sent and lanes[waiting]:
                    passed[waiting][sent] += cost_of(nbytes)
                    allowed = weights.of(sent) / weights.of(waiting) * last_cost[waiting] + largest[sent]
                    assert passed[waiting][sent] <= allowed + 1
    assert len(queue) == 0
    assert not any(lanes.values())


@given(weights=WEIGHTS, size=st.integers(LEAST_COST, 4 * MIB))
def test_under_load_each_priority_gets_the_share_of_its_weight(weights: PriorityWeights, size: int) -> None:
    queue, numbers, served = DispatchQueue[Request](weights), count(), Counter[IoPriority]()
    for priority in IoPriority:
        queue.push((next(numbers), priority, size), priority, size)
    total = sum(weights.of(priority) for priority in IoPriority)
    rounds = 20
    for _ in range(rounds * total):
        _, priority, _ = queue.pop()
        served[priority] += 1
        queue.push((next(numbers), priority, size), priority, size)
    for priority in IoPriority:
        assert abs(served[priority] - rounds * weights.of(priority)) <= 1


def test_a_priority_that_was_idle_saved_nothing_up() -> None:
    queue, numbers = DispatchQueue[tuple[IoPriority, int]](PriorityWeights(high=1, normal=1, low=1)), count()
    for _ in range(100):
        queue.push((LOW, next(numbers)), LOW, MIB)
    for _ in range(50):
        queue.pop()
    for _ in range(20):
        queue.push((HIGH, next(numbers)), HIGH, MIB)
    assert Counter(queue.pop()[0] for _ in range(20))[LOW] >= 9


def test_many_small_requests_are_charged_like_the_seeks_they_are() -> None:
    queue, numbers = DispatchQueue[tuple[IoPriority, int]](PriorityWeights(high=1, normal=1, low=1)), count()
    for _ in range(100):
        queue.push((NORMAL, next(numbers)), NORMAL, 100)
        queue.push((LOW, next(numbers)), LOW, LEAST_COST)
    assert Counter(queue.pop()[0] for _ in range(50)) == {NORMAL: 25, LOW: 25}


def test_one_that_gives_up_leaves_from_anywhere_and_costs_nothing() -> None:
    queue = DispatchQueue[str](PriorityWeights())
    for item in ("a", "b", "c"):
        queue.push(item, LOW, MIB)
    queue.remove("b", LOW)
    assert queue.waiting(LOW) == len(queue) == 2
    assert [queue.pop(), queue.pop()] == ["a", "c"]


def test_other_weights_count_from_now_on_and_nobody_is_lost() -> None:
    queue, numbers = DispatchQueue[tuple[IoPriority, int]](PriorityWeights()), count()
    for priority in (NORMAL, LOW):
        for _ in range(60):
            queue.push((priority, next(numbers)), priority, MIB)
    for _ in range(30):
        queue.pop()
    queue.reweigh(PriorityWeights(high=1, normal=1, low=1))
    assert Counter(queue.pop()[0] for _ in range(20)) == {NORMAL: 10, LOW: 10}
    assert len(queue.drain()) == 70
    assert len(queue) == 0


def test_a_weight_of_zero_is_refused_because_it_would_starve() -> None:
    with pytest.raises(InvalidValueError) as error:
        PriorityWeights(low=0)
    assert error.value.field == "low"
    assert "at least 1" in str(error.value)
