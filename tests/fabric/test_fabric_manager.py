from datetime import timedelta

import pytest

from dw_platform.fabric import (
    FabricLimits,
    NodeState,
    NoRoomError,
    SwitchMode,
    TopologyChoice,
    TopologyFixedError,
    TopologyKind,
)
from dw_platform.fabric.records import STATES, TOPOLOGY, ReportKind, decode_verdict, node_key
from dw_platform.fabric.topology_records import TopologyRecord
from dw_platform.scaling import LimitCatalogue, LimitControl, PressureLevel, ScalingRegistry
from dw_platform.store import Entry, MemoryStore, StoreUnavailableError
from tests.fabric.fabric_town import Puppet, Town


def topology(town: Town) -> TopologyRecord:
    entry = town.store.get(TOPOLOGY)
    assert entry is not None
    return TopologyRecord.decode(entry)


def test_nodes_that_join_are_told_once_and_stay_while_they_beat() -> None:
    town = Town()
    town.join("a", "b")
    town.pass_time(300)
    assert sorted(town.events()) == ["joined", "joined"]
    assert set(town.states().values()) == {NodeState.ALIVE}


def test_a_silent_node_is_suspected_after_30_s_and_removed_after_45_s() -> None:
    town = Town()
    town.join("a", "b")
    town.all_beat()
    town.pass_time(27, silent=("b",))
    assert town.states()["b"] is NodeState.ALIVE
    town.pass_time(6, silent=("b",))
    assert town.states()["b"] is NodeState.SUSPECT
    town.pass_time(9, silent=("b",))
    assert town.states()["b"] is NodeState.SUSPECT
    town.pass_time(6, silent=("b",))
    assert town.states() == {"a": NodeState.ALIVE, "b": NodeState.REMOVED}
    assert town.events("b") == ["joined", "suspected", "removed"]
    assert town.ended == [("b", town.puppets["b"].registration.incarnation)]


def test_a_suspect_that_beats_again_recovers() -> None:
    town = Town()
    town.join("a")
    town.pass_time(36, silent=("a",))
    town.pass_time(15)
    assert town.events() == ["joined", "suspected", "recovered"]
    assert town.ended == []


def test_a_goodbye_is_told_at_once_and_names_the_life_that_ended() -> None:
    town = Town()
    town.join("a")
    town.pass_time(15)
    life = town.puppets["a"].registration.incarnation
    town.puppets.pop("a").registration.leave()
    town.pass_time(3)
    assert town.events() == ["joined", "left"]
    assert town.ended == [("a", life)]


def test_another_process_of_the_same_name_ends_the_life_of_the_first() -> None:
    town = Town()
    town.join("a")
    town.pass_time(15)
    first = town.puppets["a"].registration.incarnation
    town.puppets["a"] = Puppet(town, "a", life="2")
    town.pass_time(15)
    assert town.events() == ["joined", "rejoined"]
    assert town.ended == [("a", first)]
    assert town.puppets["a"].registration.incarnation > first


def test_a_removed_node_comes_back_in_a_new_life() -> None:
    town = Town()
    town.join("a")
    town.pass_time(60, silent=("a",))
    assert town.states()["a"] is NodeState.REMOVED
    first = town.puppets["a"].registration.incarnation
    town.puppets["a"].registration.join(None)
    town.pass_time(3)
    assert town.states()["a"] is NodeState.ALIVE
    assert town.puppets["a"].registration.incarnation > first
    assert town.ended == [("a", first)]


def test_a_manager_that_was_late_removes_nobody() -> None:
    town = Town()
    town.join("a", "b")
    town.pass_time(30)
    town.clock.advance(600)
    # Nobody has beaten either: the whole machine was asleep, or the store was away for all.
    town.managers[0].look()
    town.pass_time(120)
    assert town.events() == ["joined", "joined"]


def test_time_in_which_the_manager_did_not_look_counts_against_nobody() -> None:
    town = Town()
    town.join("a")
    town.all_beat()
    town.pass_time(12, silent=("a",))
    town.clock.advance(600)
    town.pass_time(15, silent=("a",))
    assert town.states()["a"] is NodeState.ALIVE  # 27 s were watched, not 627
    town.pass_time(21, silent=("a",))
    assert town.states()["a"] is NodeState.REMOVED


class FlakyStore(MemoryStore):
    """A store that can be away."""

    away = False

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        if self.away:
            raise StoreUnavailableError("memory://", "it is away")
        return super().compare_and_set(key, value, expected=expected)


def test_a_store_that_takes_no_writes_for_a_minute_removes_nobody() -> None:
    store = FlakyStore()
    town = Town(store=store)
    town.join("a")
    town.pass_time(30)
    store.away = True
    for _ in range(30):
        town.clock.advance(3)
        with pytest.raises(StoreUnavailableError):
            town.managers[0].look()
    store.away = False
    town.pass_time(12, silent=("a",))
    town.pass_time(60)
    assert town.events() == ["joined"]


def test_a_node_that_flaps_every_20_s_makes_no_storm_of_events() -> None:
    town = Town()
    for number in range(60):
        town.puppets["a"] = Puppet(town, "a", life=str(number))  # restarted by whoever supervises it
        town.clock.advance(20)
        town.managers[0].look()
    assert town.events() == ["joined", *["rejoined"] * 5, "flapping"]
    assert len(town.ended) == 59  # work is handed on all the same
    town.pass_time(615)
    assert town.events()[-1] == "settled"


def test_of_several_managers_one_acts_and_another_takes_over_after_a_heartbeat() -> None:
    town = Town()
    town.managers.append(town.manager("second"))
    town.join("a", "b")
    town.pass_time(30)
    assert [manager.acts for manager in town.managers] == [True, False]
    first = town.managers.pop(0)  # it dies without a goodbye
    town.pass_time(18)
    assert town.managers[0].acts
    town.pass_time(60, silent=("b",))
    assert town.events("b") == ["joined", "suspected", "removed"]
    first.look()
    assert not first.acts


def test_a_manager_that_is_closed_lets_another_act_at_once() -> None:
    town = Town()
    second = town.manager("second")
    town.pass_time(3)
    second.look()
    town.managers[0].close()
    second.look()
    assert second.acts


def test_a_manager_that_acts_again_knows_what_another_did_in_between() -> None:
    town = Town()
    first, second = town.managers[0], town.manager("second")
    town.join("a")
    town.pass_time(15)
    first.close()
    town.managers = [second]
    town.pass_time(60, silent=("a",))
    second.close()
    town.managers = [first]
    town.pass_time(60, silent=("a",))
    assert town.events() == ["joined", "suspected", "removed"]


def test_an_operator_s_choice_is_forgotten_when_the_limits_set_a_topology() -> None:
    town = Town(FabricLimits(dwell=timedelta(0)))
    town.managers[0].switch(TopologyKind.FEDERATED, by="operator", reason="")
    town.pass_time(15)
    town.managers[0].reconfigure_limits(FabricLimits(dwell=timedelta(0), topology=TopologyChoice.FEDERATED))
    town.pass_time(15)
    town.managers[0].reconfigure_limits(FabricLimits(dwell=timedelta(0)))
    town.pass_time(15)
    assert topology(town).kind is TopologyKind.STAR


def test_a_manager_that_takes_over_tells_what_its_predecessor_did_not() -> None:
    town = Town()
    town.join("a", "b")
    town.pass_time(15)
    town.managers.pop(0).close()
    town.puppets.pop("a").registration.leave()
    town.join("c")
    town.managers.append(town.manager("second"))
    town.pass_time(15)
    assert town.events() == ["joined", "joined", "left", "joined"]


def test_what_was_written_but_not_told_is_told_by_the_next_look() -> None:
    town = Town()
    town.join("a")
    town.pass_time(3)
    for key in list(town.store.list_versions(STATES)):
        town.store.delete(key)  # as if the manager had died between the journal and this
    town.managers = [town.manager("second")]
    town.pass_time(18)
    assert town.events("a") == ["joined", "joined"]


def test_beyond_the_limit_nodes_are_refused_and_taken_in_when_there_is_room() -> None:
    town = Town(FabricLimits(star=2, star_switch=2, mode=SwitchMode.RECOMMEND))
    town.join("a", "b", "c")
    town.pass_time(15)
    assert town.states() == {"a": NodeState.ALIVE, "b": NodeState.ALIVE, "c": NodeState.REMOVED}
    assert town.events("c") == ["refused"]
    town.puppets.pop("a").registration.leave()
    town.puppets["c"].registration.join(None)
    town.pass_time(15)
    assert town.states()["c"] is NodeState.ALIVE
    assert town.managers[0].backpressure_state().level is PressureLevel.SHEDDING


def test_a_growing_star_becomes_the_first_topology_with_room() -> None:
    town = Town(FabricLimits(star=10, star_switch=8, mesh=5, mesh_switch=4, cell_size=3, dwell=timedelta(seconds=30)))
    town.join(*[f"n{number}" for number in range(8)], address=("127.0.0.1", 9))
    town.pass_time(27)
    assert topology(town).kind is TopologyKind.STAR
    town.pass_time(9)
    assert topology(town).kind is TopologyKind.FEDERATED
    (switched,) = [event for event in town.told if event.event == "switched"]
    assert (switched.before, switched.after) == ("star", "federated")
    assert set(town.states().values()) == {NodeState.ALIVE}
    view = town.managers[0].topology_view()
    assert sum(len(group.members) for group in view.groups) == 8


def test_in_recommend_mode_a_due_switch_is_told_once_and_not_made() -> None:
    town = Town(FabricLimits(star=10, star_switch=3, mode=SwitchMode.RECOMMEND, dwell=timedelta(0)))
    town.join("a", "b", "c")
    town.pass_time(60)
    assert town.events().count("recommended") == 1
    assert topology(town).kind is TopologyKind.STAR
    assert "advice: switch to mesh" in town.managers[0].topology_view().render()
    town.puppets.pop("c").registration.leave()
    town.pass_time(15)
    assert topology(town).advice == ""


def test_an_operator_switches_from_any_process_and_the_fabric_stays_there() -> None:
    town = Town()
    town.join("a", "b", address=("127.0.0.1", 9))
    town.pass_time(15)
    town.manager("somewhere else").switch(TopologyKind.MESH, by="operator", reason="to try it")
    town.pass_time(120)
    assert (topology(town).kind, topology(town).by, topology(town).reason) == (
        TopologyKind.MESH,
        "operator",
        "to try it",
    )
    assert town.events().count("switched") == 1
    assert set(town.states().values()) == {NodeState.ALIVE}


def test_a_switch_that_the_limits_do_not_allow_is_refused_with_what_to_do() -> None:
    town = Town(FabricLimits(mesh=1, mesh_switch=1))
    town.join("a", "b")
    town.pass_time(15)
    with pytest.raises(NoRoomError, match="dw scale set fabric mesh=2") as refused:
        town.managers[0].switch(TopologyKind.MESH, by="operator", reason="")
    assert (refused.value.nodes, refused.value.most) == (2, 1)
    fixed = Town(FabricLimits(topology=TopologyChoice.STAR))
    with pytest.raises(TopologyFixedError, match="topology=mesh"):
        fixed.managers[0].switch(TopologyKind.MESH, by="operator", reason="")


def test_a_switch_counts_everybody_as_heard_so_it_removes_nobody() -> None:
    town = Town()
    town.join("a", "b")
    town.all_beat()
    town.pass_time(39, silent=("b",))  # 6 s before it would be removed
    town.managers[0].switch(TopologyKind.FEDERATED, by="operator", reason="")
    town.pass_time(27, silent=("b",))
    assert town.states()["b"] is not NodeState.REMOVED


def test_limits_change_while_it_runs_and_nodes_hear_of_the_pace() -> None:
    town = Town()
    manager = town.managers[0]
    registry = ScalingRegistry(town.store, node="gateway@host1", clock=town.clock)
    registry.register(manager)
    control = LimitControl(town.store, LimitCatalogue({"fabric": town.limits}), clock=town.clock)
    control.set("fabric", {"heartbeat": "5s", "topology": "mesh"}, changed_by="operator", reason="test")
    registry.poll()
    manager.look()
    assert topology(town).pace.heartbeat_s == 5
    assert topology(town).kind is TopologyKind.MESH
    registry.unregister("fabric")


def test_a_faster_pace_counts_for_removal_when_nodes_have_had_time_to_learn_it() -> None:
    town = Town()
    town.join("a")
    town.pass_time(15)
    town.managers[0].reconfigure_limits(FabricLimits(heartbeat=timedelta(seconds=6)))
    town.pass_time(42)  # still every 15 s, which 18 s would bear, but not 12 s until suspected
    assert town.events() == ["joined"]
    town.pass_time(30, silent=("a",))
    assert town.states()["a"] is NodeState.REMOVED


def test_nodes_that_are_gone_are_forgotten_after_a_while() -> None:
    town = Town(FabricLimits(forget_after=timedelta(minutes=5)))
    town.join("a", "b")
    town.pass_time(15)
    town.puppets.pop("b").registration.leave()
    town.pass_time(240)
    assert town.states()["b"] is NodeState.LEFT
    town.pass_time(90)
    assert town.states() == {"a": NodeState.ALIVE}
    assert [key for key in town.store.list_versions("dw://internal/fabric/") if key.endswith("/b")] == []


def test_a_summary_of_a_hub_is_worth_what_its_ages_say() -> None:
    town = Town()
    town.join("hub", "member")
    town.pass_time(15)
    for _ in range(20):
        town.puppets["hub"].report(ReportKind.SUMMARY, {"member": 1.0})
        town.pass_time(3, silent=("member",))
    assert town.states()["member"] is NodeState.ALIVE
    age = 1.0
    while age < 40:
        age += 3
        town.puppets["hub"].report(ReportKind.SUMMARY, {"member": age})
        town.pass_time(3, silent=("member",))
    assert town.states()["member"] is NodeState.SUSPECT
    town.pass_time(6, silent=("member",))
    assert town.states()["member"] is NodeState.REMOVED


def test_a_record_that_cannot_be_read_hides_no_other() -> None:
    town = Town()
    town.store.put(node_key("broken"), b"not json")
    town.store.put(TOPOLOGY, b"not json")
    town.join("a")
    town.pass_time(15)
    assert town.states() == {"a": NodeState.ALIVE}


def test_what_was_told_can_be_read_as_rows_from_a_position_on() -> None:
    town = Town()
    town.join("a")
    town.pass_time(3)
    first = town.managers[0].events()
    assert [row["event"] for row in first.rows()] == ["joined"]
    town.join("b")
    town.pass_time(3)
    second = town.managers[0].events(first.position)
    (row,) = second.rows()
    assert (row["node"], row["kind"], row["before"], row["after"]) == ("b", "worker", None, "alive")
    assert town.managers[0].events(second.position).rows() == []


def test_the_metrics_count_nodes_by_state_and_say_who_acts() -> None:
    town = Town()
    town.join("a", "b")
    town.pass_time(60, silent=("b",))
    metrics = town.managers[0].scaling_metrics()
    assert (metrics["acts"], metrics["nodes_alive"], metrics["nodes_removed"], metrics["limit"]) == (1, 1, 1, 1_000)
    assert metrics["events_removed"] == 1


def test_the_state_in_the_store_names_the_life_it_is_about() -> None:
    town = Town()
    town.join("a")
    town.pass_time(60, silent=("a",))
    (entry,) = town.store.list(STATES)
    verdict = decode_verdict(entry)
    assert (verdict.state, verdict.incarnation) == (NodeState.REMOVED, town.puppets["a"].registration.incarnation)
