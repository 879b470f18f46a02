import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import PressureThresholds, apply_changes, describe_limits, limits_to_json
from tests.scaling.sample_queue import QueueLimits, Sync

KEYS = tuple(limits_to_json(QueueLimits()))
TYPED = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["0.6", "64KiB", "5s"])
)

LIMITS = st.builds(
    QueueLimits,
    partitions=st.integers(1, 10**6),
    max_bytes=st.integers(1, 2**60),
    linger=st.timedeltas(min_value=timedelta(microseconds=1)),
    sample_rate=st.floats(0, 1),
    max_items=st.none() | st.integers(),
    paused=st.booleans(),
    owner=st.text(),
    sync=st.sampled_from(Sync),
    critical_topics=st.lists(st.text()).map(tuple),
    thresholds=st.builds(PressureThresholds, warning=st.floats(0.61, 0.84)),
)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("partitions", "16", QueueLimits(partitions=16)),
        ("max_bytes", "1MiB", QueueLimits(max_bytes=2**20)),
        ("max_bytes", "4096", QueueLimits(max_bytes=4096)),
        ("linger", "1.5s", QueueLimits(linger=timedelta(seconds=1.5))),
        ("sample_rate", "1", QueueLimits(sample_rate=1.0)),
        ("max_items", "500", QueueLimits(max_items=500)),
        ("max_items", "none", QueueLimits()),
        ("paused", "yes", QueueLimits(paused=True)),
        ("paused", "FALSE", QueueLimits()),
        ("owner", "5s", QueueLimits(owner="5s")),
        ("sync", "never", QueueLimits(sync=Sync.NEVER)),
        ("critical_topics", "orders, payments", QueueLimits(critical_topics=("orders", "payments"))),
        ("critical_topics", "", QueueLimits()),
        ("thresholds.warning", "0.65", QueueLimits(thresholds=PressureThresholds(warning=0.65))),
    ],
)
def test_text_from_the_command_line_becomes_what_the_field_declares(key: str, text: str, expected: QueueLimits) -> None:
    assert apply_changes(QueueLimits(), {key: text}) == expected


@given(limits=LIMITS)
def test_what_is_stored_reads_back_as_it_was(limits: QueueLimits) -> None:
    assert apply_changes(QueueLimits(), limits_to_json(limits)) == limits


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partitions", "0"),
        ("partitions", 0),
        ("partitions", 1.0),
        ("partitions", True),
        ("partitions", None),
        ("partitions", "eight"),
        ("partitions", "9" * 5000),
        ("max_bytes", "64 apples"),
        ("max_bytes", 1.5),
        ("max_bytes", "-1"),
        ("linger", "5"),
        ("linger", 5),
        ("linger", "0s"),
        ("sample_rate", "nan"),
        ("sample_rate", math.inf),
        ("sample_rate", 1.01),
        ("sample_rate", 10**400),
        ("sample_rate", False),
        ("max_items", "many"),
        ("paused", "maybe"),
        ("paused", 1),
        ("owner", 7),
        ("sync", "sometimes"),
        ("critical_topics", 3),
        ("critical_topics", [1, 2]),
        ("thresholds.warning", "0.9"),
        ("thresholds.warning", math.nan),
        ("thresholds.critical_exit", 0.99),
    ],
)
def test_a_bad_value_is_refused_by_the_key_that_was_given_or_broken(key: str, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        apply_changes(QueueLimits(), {key: value})
    assert caught.value.field.split(".")[0] == key.split(".", maxsplit=1)[0]


@given(changes=st.dictionaries(st.sampled_from(KEYS), TYPED))
def test_a_change_is_taken_as_a_whole_or_leaves_the_limits_equal(changes: dict[str, Any]) -> None:
    limits = QueueLimits()
    before = limits_to_json(limits)
    try:
        changed = limits_to_json(apply_changes(limits, changes))
    except InvalidValueError:
        pass
    else:
        assert {key for key in KEYS if changed[key] != before[key]} <= changes.keys()
    assert limits == QueueLimits()


def test_thresholds_that_are_only_valid_together_move_together() -> None:
    limits = QueueLimits()
    with pytest.raises(InvalidValueError) as caught:
        apply_changes(limits, {"thresholds.warning": 0.6})
    assert caught.value.field == "thresholds.warning_exit"
    changed = apply_changes(limits, {"thresholds.warning": "0.6", "thresholds.warning_exit": "0.5"})
    assert changed.thresholds == PressureThresholds(warning=0.6, warning_exit=0.5)


def test_nested_changes_mean_the_same_as_dotted_ones() -> None:
    limits = QueueLimits()
    nested = apply_changes(limits, {"partitions": 2, "thresholds": {"warning": 0.65}})
    assert nested == apply_changes(limits, {"partitions": 2, "thresholds.warning": 0.65})


@pytest.mark.parametrize("key", ["partitons", "thresholds", "thresholds.worry", "partitions.count", ""])
def test_an_unknown_key_is_refused_with_the_keys_that_exist(key: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        apply_changes(QueueLimits(), {key: "1"})
    assert caught.value.field == key
    assert "partitions, max_bytes, linger" in caught.value.allowed
    assert "thresholds.warning_exit" in caught.value.allowed


@pytest.mark.parametrize(
    "changes",
    [{"partitions": 0}, {"partitions": "8"}, {"sample_rate": math.nan}, {"linger": "5s"}, {"critical_topics": ["a"]}],
)
def test_limits_built_in_code_are_checked_like_typed_ones(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        replace(QueueLimits(), **changes)
    assert [caught.value.field] == list(changes)


def test_operators_see_every_limit_with_its_unit_and_reason() -> None:
    described = {info.key: info for info in describe_limits(QueueLimits(partitions=3))}
    assert tuple(described) == KEYS
    assert (described["partitions"].value, described["partitions"].unit) == (3, "partitions")
    assert described["partitions"].reason == "one for each core"
    assert described["linger"].value == "5ms"
    assert described["thresholds.shedding"].value == 0.95


@dataclass(frozen=True)
class Unwritable:
    table: dict[str, int] | int = 0


def test_a_field_that_no_text_can_express_is_the_authors_mistake() -> None:
    with pytest.raises(TypeError, match="table"):
        apply_changes(Unwritable(), {"table": "1"})
