"""Conversations of nodes over a network that the test is: it delivers, loses, delays and repeats datagrams."""

import random
from collections.abc import Callable

import pytest

from dw_platform.fabric.beating import BeatPlan
from dw_platform.fabric.limits import FabricLimits, TopologyKind
from dw_platform.fabric.membership import Address
from dw_platform.fabric.messages import Message, MessageKind
from dw_platform.fabric.part import Part
from dw_platform.fabric.peers import Peers, Send
from dw_platform.fabric.topology import Group, Seat, plan_groups, roles_of

PACE = FabricLimits().pace
Lost = Callable[[Send], bool]


class Net:
    """Some nodes, and what is between them; time passes in steps of half a second."""

    def __init__(self, kind: TopologyKind, count: int) -> None:
        self.now, self.sent = 0.0, list[tuple[Address, Send]]()
        self.lost: Lost = lambda _: False
        self.asleep: set[str] = set()
        seats = [Seat(f"n{number}", f"host{number}", (f"10.0.0.{number}", 7)) for number in range(count)]
        self.address = {seat.name: seat.address for seat in seats}
        self.name = {seat.address: seat.name for seat in seats}
        (self.group,) = plan_groups(kind, seats, cells=1)
        self.peers = {seat.name: Peers(seat.name, PACE, now=0.0) for seat in seats}
        self.follow(self.group)

    def follow(self, group: Group, *names: str, version: int = 1, incarnation: int = 1) -> None:
        for name, role in roles_of(group).items():
            if not names or name in names:
                part = Part(group.kind, PACE, role, version)
                self.peers[name].take(part, incarnation=incarnation, now=self.now)

    @property
    def hub(self) -> str:
        assert self.group.hub is not None
        return self.group.hub

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.now += 0.5
            for name, peers in self.peers.items():
                if name not in self.asleep:
                    self._deliver(name, peers.tick(self.now) if self.now >= peers.next_at else [])

    def _deliver(self, sender: str, sends: list[Send]) -> None:
        for send in sends:
            source = self.address[sender]
            self.sent.append((source, send))
            receiver = self.name[send.address]
            if receiver not in self.asleep and not self.lost(send):
                self._deliver(receiver, self.peers[receiver].receive(send.message, source, self.now))

    def between(self, one: str, other: str) -> Lost:
        return lambda send: {send.message.sender, self.name[send.address]} == {one, other}


def test_members_of_a_cell_are_heard_by_their_hub() -> None:
    net = Net(TopologyKind.FEDERATED, 5)
    net.pass_time(60)
    ages = net.peers[net.hub].ages(net.now)
    assert ages.keys() == net.peers.keys() - {net.hub}
    assert max(ages.values()) <= PACE.heartbeat_s
    assert [peers.unheard for peers in net.peers.values()] == [0] * 5


def test_a_lost_heartbeat_is_repeated_until_it_is_acknowledged() -> None:
    net = Net(TopologyKind.FEDERATED, 2)
    net.pass_time(10)
    lost = iter([True, True, True, False])
    net.lost = lambda send: send.message.kind is MessageKind.BEAT and next(lost, False)
    net.pass_time(10)
    assert next(lost, None) is None
    assert sum(peers.unheard for peers in net.peers.values()) == 0


def test_a_member_whose_hub_does_not_answer_knows_it_within_a_third_of_a_heartbeat() -> None:
    net = Net(TopologyKind.FEDERATED, 3)
    net.pass_time(14.5)
    net.asleep.add(net.hub)
    member = min(net.peers.keys() - {net.hub})
    net.pass_time(5.5)
    assert net.peers[member].unheard == 1
    assert net.peers[member].unanswered
    assert net.peers[member].look_wanted
    net.asleep.clear()
    net.pass_time(15)
    assert net.peers[member].unheard == 1
    assert not net.peers[member].unanswered


def test_who_is_no_hub_any_more_accepts_no_heartbeats_so_nobody_relies_on_it() -> None:
    net = Net(TopologyKind.FEDERATED, 3)
    net.pass_time(5)
    others = [seat for seat in net.group.members if seat.name != net.hub]
    successor = others[0].name
    changed = Group(0, TopologyKind.FEDERATED, net.group.members, successor)
    net.follow(changed, net.hub, successor, version=2)
    net.pass_time(20)
    follower = others[1].name
    assert net.peers[follower].unheard > 0
    assert net.peers[follower].look_wanted
    net.follow(changed, follower, version=2)
    net.pass_time(20)
    assert net.peers[successor].ages(net.now).keys() == {net.hub, follower}


def test_watchers_accuse_a_dead_node_and_nobody_else() -> None:
    net = Net(TopologyKind.MESH, 8)
    net.pass_time(60)
    net.asleep.add("n3")
    net.pass_time(45)
    watchers = {seat.name for seat in roles_of(net.group)["n3"].reports_to}
    for name in net.peers.keys() - {"n3"}:
        assert net.peers[name].silent(net.now).keys() == ({"n3"} if name in watchers else set())


def test_a_node_that_is_cut_off_from_one_watcher_is_heard_through_others() -> None:
    net = Net(TopologyKind.MESH, 8)
    watcher = roles_of(net.group)["n3"].reports_to[0].name
    net.lost = net.between("n3", watcher)
    net.pass_time(300)
    assert net.peers[watcher].silent(net.now) == {}
    assert net.peers[watcher].ages(net.now)["n3"] < PACE.suspect_after_s
    asked = [send for _, send in net.sent if send.message.kind is MessageKind.ASK]
    assert {send.message.about for send in asked} == {"n3"}
    assert net.peers["n3"].unheard == 0  # its other watchers hear it


def test_a_node_that_most_of_its_watchers_do_not_answer_uses_the_store() -> None:
    net = Net(TopologyKind.MESH, 8)
    cut_off = [net.between("n3", seat.name) for seat in roles_of(net.group)["n3"].reports_to[:2]]
    net.lost = lambda send: any(lost(send) for lost in cut_off)
    net.pass_time(60)
    assert net.peers["n3"].unheard >= 3
    assert net.peers["n3"].unanswered


def test_a_watcher_accuses_a_node_that_it_never_heard_after_it_has_asked_others() -> None:
    net = Net(TopologyKind.MESH, 8)
    net.asleep.add("n3")
    net.pass_time(PACE.heartbeat_s + 1)
    for seat in roles_of(net.group)["n3"].reports_to:
        assert net.peers[seat.name].silent(net.now) == {"n3": None}


def test_a_hub_that_was_paused_does_not_find_its_cell_silent_when_it_wakes() -> None:
    net = Net(TopologyKind.FEDERATED, 5)
    net.pass_time(60)
    net.asleep.add(net.hub)
    net.pass_time(600)
    assert max(net.peers[net.hub].ages(net.now).values()) <= PACE.heartbeat_s


def test_a_heartbeat_that_comes_again_later_is_no_sign_of_life() -> None:
    net = Net(TopologyKind.FEDERATED, 2)
    net.pass_time(20)
    (member,) = net.peers.keys() - {net.hub}
    source, old = next((source, send) for source, send in reversed(net.sent) if send.message.kind is MessageKind.BEAT)
    net.asleep.add(member)
    net.pass_time(20)
    before = net.peers[net.hub].ages(net.now)[member]
    net.peers[net.hub].receive(old.message, source, net.now)
    assert net.peers[net.hub].ages(net.now)[member] == before >= 20


@pytest.mark.parametrize("kind", [MessageKind.PONG, MessageKind.VOUCH])
def test_an_answer_to_a_question_that_nobody_asked_is_no_sign_of_life(kind: MessageKind) -> None:
    net = Net(TopologyKind.FEDERATED, 2)
    net.pass_time(20)
    (member,) = net.peers.keys() - {net.hub}
    net.asleep.add(member)
    net.pass_time(20)
    before = net.peers[net.hub].ages(net.now)[member]
    forged = Message(kind=kind, sender=member, receiver=net.hub, incarnation=1, number=7, about=member)
    net.peers[net.hub].receive(forged, net.address[member], net.now)
    assert net.peers[net.hub].ages(net.now)[member] == before


def test_a_message_for_somebody_else_is_ignored() -> None:
    net = Net(TopologyKind.FEDERATED, 2)
    message = Message(kind=MessageKind.PING, sender="n0", receiver="n7", incarnation=1, number=1)
    assert net.peers["n1"].receive(message, net.address["n0"], 1.0) == []


def test_questions_for_others_are_bounded_and_forgotten() -> None:
    net = Net(TopologyKind.FEDERATED, 3)
    asked = 0
    for number in range(1_000):
        message = Message(
            kind=MessageKind.ASK,
            sender="n0",
            receiver="n1",
            incarnation=1,
            number=number,
            about="n2",
            address=net.address["n2"],
        )
        asked += len(net.peers["n1"].receive(message, net.address["n0"], net.now))
    assert asked == 256
    net.pass_time(2 * PACE.heartbeat_s)
    assert len(net.peers["n1"].receive(message, net.address["n0"], net.now)) == 1


def test_under_a_fifth_of_lost_datagrams_nobody_is_accused() -> None:
    net = Net(TopologyKind.MESH, 12)
    dice = random.Random(7)
    net.lost = lambda _: dice.random() < 0.2
    for _ in range(120):
        net.pass_time(10)
        assert [peers.silent(net.now) for peers in net.peers.values()] == [{}] * 12


def plan_of(kind: TopologyKind, *, hub: bool = False, alone: bool = False) -> BeatPlan:
    seats = [Seat(f"n{number}", "host", ("10.0.0.1", number + 1)) for number in range(1 if alone else 4)]
    plan = BeatPlan(Part(TopologyKind.STAR, PACE))
    plan.begin(0.0, spread=0.5)
    for group in plan_groups(kind, seats, cells=1):
        name = group.hub if hub else next(seat.name for seat in seats if alone or seat.name != group.hub)
        plan.take(Part(kind, PACE, roles_of(group)[name or ""]))
    return plan


def beats(plan: BeatPlan, seconds: int) -> int:
    count = 0
    for now in range(seconds):
        if now >= plan.next_at():
            plan.written(float(now))
            count += 1
    return count


def test_a_node_of_a_star_writes_every_heartbeat_and_so_does_one_that_is_alone_in_a_mesh() -> None:
    assert beats(plan_of(TopologyKind.STAR), 600) == 40
    assert beats(plan_of(TopologyKind.MESH, alone=True), 600) == 40


def test_a_node_of_a_mesh_writes_three_times_until_its_watchers_are_settled_then_rarely() -> None:
    assert beats(plan_of(TopologyKind.MESH), 600) == 3 + 9


def test_a_member_of_a_cell_writes_once_and_then_only_when_nobody_answered() -> None:
    plan = plan_of(TopologyKind.FEDERATED)
    assert beats(plan, 600) == 1
    plan.not_heard(1)
    assert beats(plan, 600) == 1
    plan.not_heard(1)
    assert beats(plan, 600) == 0


def test_a_hub_writes_no_heartbeats_because_its_summary_is_one() -> None:
    assert beats(plan_of(TopologyKind.FEDERATED, hub=True), 600) == 0


def test_a_suspect_writes_at_once() -> None:
    plan = plan_of(TopologyKind.FEDERATED, hub=True)
    plan.hurry()
    assert beats(plan, 600) == 1
