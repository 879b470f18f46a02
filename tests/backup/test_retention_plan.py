"""Retention: the limits hold, and whatever they say, what must stay stays."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.backup import ExpiryPlan, HeldBackup, RetentionPolicy, plan_expiry
from tests.backup.test_repository_plans import NOW, header

UNLIMITED = RetentionPolicy(max_count=None, max_age=None, max_bytes=None)
SIZES = {f"o{number}": 10**number for number in range(5)}


def backup(days_ago: float, *objects: str, table: str = "t", policy: str = "p") -> HeldBackup:
    return HeldBackup(header(days_ago, table=table, policy=policy), objects)


def kept(plan: ExpiryPlan) -> list[str]:
    return [each.backup_id for each in plan.keep]


def test_count_keeps_the_newest_that_restore() -> None:
    backups = [backup(days) for days in (5, 4, 3, 2, 1)]
    policy = RetentionPolicy(max_count=2, max_age=None, max_bytes=None)
    assert kept(plan_expiry(backups, {}, policy, now=NOW)) == [backups[3].id, backups[4].id]
    plan = plan_expiry(backups, {}, policy, now=NOW, broken={backups[4].id})
    assert kept(plan) == [backups[2].id, backups[3].id, backups[4].id]
    assert plan.reasons[backups[0].id] == "3 newer backups restore, 2 are kept"


def test_age_is_taken_from_when_the_backup_was_made() -> None:
    backups = [backup(days) for days in (91, 90, 1)]
    plan = plan_expiry(backups, {}, RetentionPolicy(), now=NOW)
    assert [each.backup_id for each in plan.remove] == [backups[0].id]
    assert "90d" in plan.reasons[backups[0].id]


def test_size_counts_each_object_once_and_frees_it_with_its_last_user() -> None:
    backups = [backup(3, "o3", "o1"), backup(2, "o3", "o2"), backup(1, "o3")]
    policy = RetentionPolicy(max_count=None, max_age=None, max_bytes=1105)
    plan = plan_expiry(backups, SIZES, policy, now=NOW)
    assert (plan.bytes_before, plan.bytes_after) == (1110, 1100)
    assert kept(plan) == [backups[1].id, backups[2].id]
    assert plan.above_limit == {}


def test_size_takes_broken_backups_first() -> None:
    backups = [backup(3, "o1"), backup(2, "o2"), backup(1, "o0")]
    policy = RetentionPolicy(max_count=None, max_age=None, max_bytes=20)
    assert kept(plan_expiry(backups, SIZES, policy, now=NOW, broken={backups[1].id})) == [backups[0].id, backups[2].id]


def test_a_table_larger_than_the_limit_keeps_its_newest_backup_and_the_plan_says_by_how_much() -> None:
    backups = [backup(2, "o4"), backup(1, "o4")]
    plan = plan_expiry(backups, SIZES, RetentionPolicy(max_bytes=9_999), now=NOW)
    assert kept(plan) == [backups[1].id]
    assert plan.above_limit == {("t", "p"): 1}


def test_the_newest_that_restores_outlives_age_and_a_newer_broken_one() -> None:
    backups = [backup(300), backup(200), backup(100)]
    assert kept(plan_expiry(backups, {}, RetentionPolicy(), now=NOW)) == [backups[2].id]
    assert kept(plan_expiry(backups, {}, RetentionPolicy(), now=NOW, broken={backups[2].id})) == [backups[1].id]
    everything = {each.id for each in backups}
    assert kept(plan_expiry(backups, {}, RetentionPolicy(), now=NOW, broken=everything)) == [backups[2].id]


def test_tables_and_policies_have_limits_of_their_own() -> None:
    policy = {"p": RetentionPolicy(max_count=1), "q": RetentionPolicy(max_count=2)}
    backups = [backup(days, policy=name) for name in ("p", "q", "gone") for days in (3.1, 2.1, 1.1)]
    plan = plan_expiry(backups, {}, policy, now=NOW)
    found = {name: sum(each.policy == name for each in plan.keep) for name in ("p", "q", "gone")}
    assert found == {"p": 1, "q": 2, "gone": 3}


def test_a_pinned_backup_stays_and_does_not_save_others() -> None:
    backups = [backup(200), backup(150), backup(1)]
    plan = plan_expiry(backups, {}, RetentionPolicy(), now=NOW, pins={backups[0].id})
    assert kept(plan) == [backups[0].id, backups[2].id]


objects = st.sets(st.sampled_from(sorted(SIZES)), max_size=4)
histories = st.lists(
    st.builds(
        lambda days, names, table, policy: backup(days, *names, table=table, policy=policy),
        st.floats(0, 400),
        objects,
        st.sampled_from("tu"),
        st.sampled_from("pq"),
    ),
    max_size=25,
)
policies = st.builds(
    RetentionPolicy,
    max_count=st.none() | st.integers(1, 10),
    max_age=st.none() | st.integers(1, 300).map(lambda days: timedelta(days=days)),
    max_bytes=st.none() | st.integers(1, 20_000),
)


@settings(max_examples=300, deadline=None)
@given(history=histories, policy=policies, data=st.data())
def test_for_any_history_limits_hold_and_what_must_stay_stays(
    history: list[HeldBackup], policy: RetentionPolicy, data: st.DataObject
) -> None:
    ids = sorted(each.id for each in history)
    pins = data.draw(st.sets(st.sampled_from(ids)) if ids else st.just(set[str]()))
    broken = data.draw(st.sets(st.sampled_from(ids)) if ids else st.just(set[str]()))
    plan = plan_expiry(history, SIZES, policy, now=NOW, pins=pins, broken=broken)
    keep, remove = set(kept(plan)), {each.backup_id for each in plan.remove}
    assert keep | remove == set(ids)
    assert not keep & remove
    assert remove == plan.reasons.keys()
    assert pins <= keep
    safe = set(pins)
    for table in "tu":
        mine = [each for each in ids if each in {held.id for held in history if held.header.table == table}]
        whole = [each for each in mine if each not in broken]
        if mine:
            safe.add((whole or mine)[-1])
    assert safe <= keep
    for table, name in {(held.header.table, held.header.policy) for held in history}:
        group = sorted((held for held in history if held.group == (table, name)), key=lambda held: held.id)
        rest = [held for held in group if held.id in keep and held.id not in safe]
        for held in rest:
            newer = [other for other in group if other.id > held.id and other.id not in broken]
            assert policy.max_count is None or len(newer) < policy.max_count
            assert policy.max_age is None or NOW - held.header.created <= policy.max_age
        used = {each for held in group if held.id in keep for each in held.objects}
        excess = sum(SIZES[each] for each in used) - (policy.max_bytes or 10**9)
        assert excess <= 0 or (rest == [] and plan.above_limit[table, name] == excess)


@settings(max_examples=100, deadline=None)
@given(history=histories, policy=policies)
def test_a_plan_carried_out_leaves_nothing_for_the_next(history: list[HeldBackup], policy: RetentionPolicy) -> None:
    plan = plan_expiry(history, SIZES, policy, now=NOW)
    left = [each for each in history if each.id in set(kept(plan))]
    assert plan_expiry(left, SIZES, policy, now=NOW).remove == ()


@settings(max_examples=100, deadline=None)
@given(history=histories)
def test_without_limits_nothing_goes(history: list[HeldBackup]) -> None:
    plan = plan_expiry(history, SIZES, UNLIMITED, now=NOW)
    assert plan.remove == ()
    assert plan.bytes_before == plan.bytes_after


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_in_which_backups_are_given_does_not_matter(order: int) -> None:
    backups = [backup(days, "o1") for days in (3, 2, 1)][::order]
    plan = plan_expiry(backups, SIZES, RetentionPolicy(max_count=1), now=NOW)
    assert [each.created for each in plan.remove] == [NOW - timedelta(days=3), NOW - timedelta(days=2)]
