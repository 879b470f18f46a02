"""A store, a clock that moves when told to, managers, and nodes that do what a test tells them to do."""

from datetime import timedelta

from dw_platform.fabric import FabricEvent, FabricLimits, FabricScalingManager, NodeKind, NodeState
from dw_platform.fabric.membership import Address, NodeRecord
from dw_platform.fabric.records import Beat, Report, ReportKind, beat_key, report_key
from dw_platform.fabric.registration import Registration
from dw_platform.foundation import FakeClock
from dw_platform.store import MemoryStore, PersistentStore


class Puppet:
    """A node without threads: it writes what it is told to write."""

    def __init__(self, town: "Town", name: str, *, address: Address | None = None, life: str = "1") -> None:
        self.town, self.name, self.address = town, name, address
        record = NodeRecord(
            name=name,
            kind=NodeKind.WORKER,
            host="host1",
            pid=1,
            address=address,
            life=life,
            joined_at=town.clock.now(),
        )
        self.registration = Registration(town.store, record, clock=town.clock)
        self.registration.join(address)

    def beat(self) -> None:
        at = self.town.clock.now()
        beat = Beat(incarnation=self.registration.incarnation, because="", at=at)
        self.town.store.put(beat_key(self.name), beat.encode())

    def report(self, kind: ReportKind, ages: dict[str, float | None]) -> None:
        report = Report(reporter=self.name, kind=kind, ages=ages, at=self.town.clock.now())
        self.town.store.put(report_key(self.name), report.encode())


class Town:
    """One fabric; `pass_time` lets nodes beat and managers look in their rhythm."""

    def __init__(self, limits: FabricLimits | None = None, store: PersistentStore | None = None) -> None:
        self.store, self.clock = store or MemoryStore(), FakeClock()
        self.limits = limits or FabricLimits(dwell=timedelta(0))
        self.told: list[FabricEvent] = []
        self.ended: list[tuple[str | None, int | None]] = []
        self.puppets: dict[str, Puppet] = {}
        self.managers = [self.manager("first")]

    def manager(self, name: str) -> FabricScalingManager:
        manager = FabricScalingManager(self.store, manager=name, limits=self.limits, clock=self.clock)
        manager.on_event(self.told.append)
        manager.on_ended(lambda event: self.ended.append((event.node, event.ended)))
        return manager

    def join(self, *names: str, address: Address | None = None) -> None:
        for name in names:
            self.puppets[name] = Puppet(self, name, address=address)

    def pass_time(self, seconds: float, *, silent: tuple[str, ...] = ()) -> None:
        """All but the silent nodes beat every 15 s, at the beginning first; managers look every 3 s."""
        ticks = round(seconds / 3)
        for tick in range(ticks):
            if tick % 5 == 0:
                for name in self.puppets.keys() - silent:
                    self.puppets[name].beat()
            for manager in self.managers:
                manager.look()
            self.clock.advance(3)
        for manager in self.managers:
            manager.look()

    def all_beat(self) -> None:
        """Let every node beat now, and the managers see it."""
        for puppet in self.puppets.values():
            puppet.beat()
        for manager in self.managers:
            manager.look()

    def states(self) -> dict[str, NodeState]:
        return {node.name: node.state for node in self.managers[0].nodes()}

    def events(self, node: str | None = None) -> list[str]:
        return [event.event.value for event in self.told if node in {None, event.node}]
