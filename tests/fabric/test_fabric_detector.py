import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric.detector import Accusation, WatchedTime, heard_in_mesh, is_unheard, judge, next_look_s
from dw_platform.fabric.limits import FabricLimits, Pace
from dw_platform.fabric.membership import NodeState

PACE = FabricLimits().pace
PACES = st.builds(Pace, st.floats(0.05, 60), st.integers(2, 6))
# Rounding of floats, far below anything a clock can tell.
TINY_S = 1e-6


def test_the_default_suspects_after_30_s_and_removes_after_45_s() -> None:
    assert (PACE.suspect_after_s, PACE.remove_after_s, PACE.look_every_s) == (30, 45, 3)


@settings(deadline=None)
@given(pace=PACES, phase=st.floats(0, 1), early=st.lists(st.floats(0.01, 1), max_size=20))
def test_a_silent_node_is_removed_not_before_its_time_and_at_most_one_tick_after(
    pace: Pace, phase: float, early: list[float]
) -> None:
    heard, state, suspected = 0.0, NodeState.ALIVE, False
    watch, pauses = WatchedTime(phase * pace.look_every_s), iter(early)
    now = watch.looked_at
    while state is not NodeState.REMOVED:
        # Somebody may make the manager look earlier than it would.
        now += next_look_s([now - heard], pace) * next(pauses, 1.0) + TINY_S
        watch, late = watch.look(now, longest_gap_s=pace.heartbeat_s)
        assert not late
        state = judge(state, now - heard, pace, late=late)
        suspected = suspected or state is NodeState.SUSPECT
        assert now - heard >= pace.remove_after_s or state is not NodeState.REMOVED
    assert suspected
    assert now - heard <= pace.remove_after_s + pace.look_every_s


@settings(deadline=None)
@given(silence_s=st.floats(0, 1e6), state=st.sampled_from([NodeState.ALIVE, NodeState.SUSPECT]))
def test_a_late_look_makes_no_state_worse(silence_s: float, state: NodeState) -> None:
    assert judge(state, silence_s, PACE, late=True) <= state


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1))
def test_only_time_in_which_one_has_looked_counts(gaps: list[float]) -> None:
    watch, now, watched = WatchedTime(0.0), 0.0, 0.0
    for gap in gaps:
        now += gap
        gap_s = now - watch.looked_at
        watch, late = watch.look(now, longest_gap_s=15)
        assert late == (gap_s > 15)
        watched += 0 if late else gap_s
    assert abs(watch.seconds - watched) < TINY_S


def test_a_clock_that_seems_to_go_back_takes_nothing_away() -> None:
    watch, _ = WatchedTime(10.0, 5.0).look(9.0, longest_gap_s=15)
    assert watch == WatchedTime(10.0, 5.0)


def test_a_heartbeat_makes_a_suspect_alive_again() -> None:
    assert judge(NodeState.SUSPECT, 3, PACE, late=False) is NodeState.ALIVE


def test_nobody_is_removed_without_having_been_suspected() -> None:
    assert judge(NodeState.ALIVE, 1_000, PACE, late=False) is NodeState.SUSPECT


@pytest.mark.parametrize(("accusers", "watchers"), [(0, 1), (1, 2), (1, 3)])
def test_watchers_vouch_for_a_node_unless_more_than_half_accuse_it(accusers: int, watchers: int) -> None:
    names = [f"w{number}" for number in range(watchers)]
    accusations = {name: Accusation(3.0) for name in names[:accusers]}
    assert heard_in_mesh(vouched=10, now=40, watchers=names, accusations=accusations) == 40


def test_when_more_than_half_accuse_the_newest_of_their_memories_counts() -> None:
    # The third has died itself a moment ago, which nobody knows yet.
    accusations = {"a": Accusation(3.0), "b": Accusation(7.0)}
    assert heard_in_mesh(vouched=39, now=40, watchers=["a", "b", "c"], accusations=accusations) == 7


def test_a_node_that_nobody_watches_keeps_what_is_known() -> None:
    assert heard_in_mesh(vouched=20, now=40, watchers=[], accusations={}) == 20


@settings(deadline=None)
@given(listeners=st.integers(1, 3), missing=st.integers(0, 3))
def test_a_node_uses_the_store_before_its_watchers_can_have_it_removed(listeners: int, missing: int) -> None:
    names = [f"w{number}" for number in range(listeners)]
    accusations = {name: Accusation(0.0) for name in names[:missing]}
    given_up = heard_in_mesh(vouched=40, now=40, watchers=names, accusations=accusations) < 40
    assert given_up <= is_unheard(missing, listeners)


def test_watchers_that_never_heard_a_node_do_not_say_since_when_it_is_silent() -> None:
    assert heard_in_mesh(vouched=20, now=40, watchers=["a"], accusations={"a": Accusation(None)}) == 20
