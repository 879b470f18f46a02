import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import ScalabilityConfig, decide_consumers, decide_partitions

CONFIG = ScalabilityConfig(
    max_partitions=16, max_consumers=8, scale_up_threshold=0.8, max_lag_ms=10_000, target_throughput_per_partition=1_000
)


def consumers(current: int, **facts: float) -> int:
    values = {"lag": 0, "lag_ms": 0.0, "arrival_rate": 0.0, "capacity_per_consumer": 0.0, "partitions": 8} | facts
    return decide_consumers(current, config=CONFIG, **values).consumers  # type: ignore[arg-type]


def test_partitions_stay_while_the_topic_carries_less_than_the_threshold() -> None:
    decision = decide_partitions(4, records_per_s=3_200, config=CONFIG)
    assert decision.partitions == 4
    assert "80%" in decision.reason


def test_a_growth_makes_room_for_twice_the_rate() -> None:
    grown = decide_partitions(4, records_per_s=3_300, config=CONFIG)
    assert grown.partitions == 9
    assert decide_partitions(grown.partitions, records_per_s=6_600, config=CONFIG).partitions == grown.partitions


def test_partitions_never_pass_their_maximum_and_the_reason_says_so() -> None:
    assert decide_partitions(4, records_per_s=1e9, config=CONFIG).partitions == 16
    stuck = decide_partitions(16, records_per_s=1e9, config=CONFIG)
    assert stuck.partitions == 16
    assert "16 is the most" in stuck.reason


@given(current=st.integers(1, 16), rate=st.floats(0, 1e7))
def test_partitions_only_grow_and_a_second_look_at_the_same_rate_changes_nothing(current: int, rate: float) -> None:
    once = decide_partitions(current, records_per_s=rate, config=CONFIG).partitions
    assert current <= once <= max(current, CONFIG.max_partitions)
    assert decide_partitions(once, records_per_s=rate, config=CONFIG).partitions == once


def test_consumers_are_added_when_the_oldest_unread_record_is_too_old() -> None:
    assert consumers(2, lag=1_000, lag_ms=9_999) == 2
    assert consumers(2, lag=1_000, lag_ms=10_001) == 3


def test_as_many_consumers_are_added_as_catch_up_within_a_minute() -> None:
    # 400/s arrive and 12,000 wait: 600/s are needed, each reads 100/s.
    assert consumers(2, lag=12_000, lag_ms=60_000, arrival_rate=400, capacity_per_consumer=100) == 6


def test_there_are_never_more_consumers_than_partitions_or_than_allowed() -> None:
    assert consumers(2, lag=10**9, lag_ms=1e9, capacity_per_consumer=1, partitions=4) == 4
    assert consumers(2, lag=10**9, lag_ms=1e9, capacity_per_consumer=1, partitions=64) == 8
    assert consumers(8, lag=10**9, lag_ms=1e9) == 8
    assert consumers(20, partitions=4) == 4


def test_a_capacity_next_to_nothing_asks_for_all_that_are_allowed() -> None:
    assert consumers(2, lag=10**6, lag_ms=60_000, arrival_rate=1e6, capacity_per_consumer=5e-324) == 8


def test_one_consumer_leaves_at_a_time_and_only_when_the_others_would_be_half_idle() -> None:
    assert consumers(5, arrival_rate=150, capacity_per_consumer=100) == 4
    assert consumers(5, arrival_rate=210, capacity_per_consumer=100) == 5
    assert consumers(5, arrival_rate=10, capacity_per_consumer=100, lag=10, lag_ms=3_000) == 5
    assert consumers(1, arrival_rate=0, capacity_per_consumer=100) == 1


def test_a_group_without_consumers_gets_one_when_something_waits() -> None:
    assert consumers(0) == 0
    assert consumers(0, lag=1) == 1


FACTS = st.fixed_dictionaries(
    {
        "lag": st.integers(0, 10**9),
        "lag_ms": st.floats(0, 1e9),
        "arrival_rate": st.floats(0, 1e7),
        "capacity_per_consumer": st.floats(0, 1e6),
        "partitions": st.integers(1, 32),
    }
)


@given(current=st.integers(0, 20), facts=FACTS)
def test_whatever_is_decided_is_within_bounds_and_has_a_reason(current: int, facts: dict[str, float]) -> None:
    decision = decide_consumers(current, config=CONFIG, **facts)  # type: ignore[arg-type]
    assert 0 <= decision.consumers <= min(CONFIG.max_consumers, facts["partitions"])
    assert decision.reason


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"max_partitions": 0}, "max_partitions"),
        ({"max_consumers": 0}, "max_consumers"),
        ({"scale_up_threshold": 0.0}, "scale_up_threshold"),
        ({"scale_up_threshold": 1.1}, "scale_up_threshold"),
        ({"max_lag_ms": 0}, "max_lag_ms"),
        ({"target_throughput_per_partition": 0}, "target_throughput_per_partition"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_when_it_is_built(wrong: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        ScalabilityConfig(**wrong)  # type: ignore[arg-type]
    assert error.value.field == field
