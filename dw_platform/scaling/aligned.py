"""How many consumers a load needs when partitions are dealt out whole.

A group is as fast as its busiest member. With 16 partitions, 5, 6 and 7 consumers leave somebody with 3 or 4 of them,
so only some counts make a difference: 1, 2, 3, 4, 6, 8 and 16. Counts in between cost a consumer and move partitions
without making anybody faster, so none of them is ever decided.
"""

import math


def most_partitions(consumers: int, partitions: int) -> int:
    """Return how many partitions the busiest of `consumers` reads."""
    return math.ceil(partitions / consumers)


def useful_consumers(at_most: int, partitions: int) -> int:
    """Return the fewest consumers that are as fast as `at_most` of them."""
    if at_most < 1 or partitions < 1:
        return max(at_most, 0)
    return math.ceil(partitions / most_partitions(min(at_most, partitions), partitions))


def share_of_busiest(load: float, consumers: int, partitions: int, capacity: float) -> float:
    """Return which share of its capacity the busiest consumer needs for its part of `load` records a second."""
    if consumers < 1 or partitions < 1 or capacity <= 0:
        return math.inf if load > 0 else 0.0
    return load * most_partitions(consumers, partitions) / partitions / capacity


def consumers_for(load: float, partitions: int, capacity: float) -> int:
    """Return the fewest consumers of whom none is asked for more than `capacity` records a second.

    A load that is too much for a partition's own consumer gets one consumer a partition: more cannot help.
    """
    if load <= 0 or partitions < 1:
        return 0
    held = partitions * capacity / load
    if held < 1:
        return partitions
    return math.ceil(partitions / math.floor(min(held, partitions)))
