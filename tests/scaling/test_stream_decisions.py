import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import ScalabilityConfig, decide_partitions

CONFIG = ScalabilityConfig(
    max_partitions=16, max_consumers=8, scale_up_threshold=0.8, max_lag_ms=10_000, target_throughput_per_partition=1_000
)


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
