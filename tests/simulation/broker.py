"""A broker: a host with a disk, and the processes that run on it one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from tests.faulty_filesystem import FaultyFileSystem
from tests.simulation.controller_term import Term
from tests.simulation.network import Call
from tests.simulation.registry import OK, Check, Node, Put, Remove, Session
from tests.simulation.replica import Replica
from tests.simulation.states import AGAIN_S
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

TICK_S = 0.2
CHECKPOINT_EVERY = 4
"""Ticks."""
CLEAN = "/data/clean"
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"


class Host:
    """What stays when the process dies."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.slow_disk_s = 0.0
        self.process: BrokerProcess | None = None
        self.disk = new_disk()

    def start(self) -> None:
        if self.process is None:
            self.process = BrokerProcess(self)

    def die(self, disk: FaultyFileSystem) -> None:
        """The process is gone; ``disk`` is what the next one finds."""
        process, self.process = self.process, None
        if process is not None:
            process.is_alive = False
            self.cluster.network.process_died(self.broker_id)
        self.disk = disk

    def stop(self) -> None:
        """A clean stop: everything is flushed, and said to be."""
        process = self.process
        if process is None or process.is_paused:
            return
        replica = process.replica
        replica.checkpoint()
        if replica.log is not None:
            self.disk.sync_everything("/data")
        self.disk.replace(CLEAN, b"kept" if replica.nothing_lost else b"lost")
        self.die(self.disk.kill())


def new_disk() -> FaultyFileSystem:
    disk = FaultyFileSystem()
    disk.make_folder("/data")
    return disk


class BrokerProcess(Process):
    def __init__(self, host: Host) -> None:
        super().__init__(host.cluster.world, f"broker {host.broker_id}")
        self.host = host
        self.incarnation = -1
        self.fence = Check(f"/registrations/{host.broker_id}", -1)
        self.alive: dict[int, int] = {}
        self.controller_epoch = -1
        self.term: Term | None = None
        self.is_listening = True
        self._is_looking = False
        self._probing_since = -9.0
        self._ticks = 0
        self.stopped_with = host.disk.read(CLEAN)
        if self.stopped_with is not None:
            host.disk.remove(CLEAN)
            host.disk.sync_folder("/data")
        self.replica = Replica(self)
        self.session = self._connect()
        self.world.say(
            "broker %d starts, %s, log end %s",
            host.broker_id,
            "not stopped cleanly" if self.stopped_with is None else "stopped cleanly",
            None if self.replica.log is None else self.replica.log.end.address,
        )
        self._register()
        self.after(TICK_S * self.world.draw.random(), self._tick)

    # --- The registry -------------------------------------------------------------------------------------------------

    def _connect(self) -> Session:
        return self.host.cluster.registry.connect(self, self.host.broker_id, self._registry_changed)

    def _register(self) -> None:
        """One multi: the fence beside it and the entry; an entry of an earlier process of ours is replaced (R7)."""
        entry, beside = f"/ids/{self.host.broker_id}", f"/registrations/{self.host.broker_id}"
        session = self.session

        def look(outcome: str, nodes: dict[str, Node | None]) -> None:
            if session is not self.session:
                return
            if outcome != OK:
                self.after(AGAIN_S, self._register)
                return
            here, fence = nodes[entry], nodes[beside]
            assert fence is not None
            if here is not None and here.owner == session.number:
                self.incarnation = here.created
                self.fence = Check(beside, fence.version)
                self.world.say("broker %d is registered, incarnation %d", self.host.broker_id, self.incarnation)
                self.look_for_controller()
                return
            gone = [] if here is None else [Remove(entry, here.version)]
            session.multi([Put(beside, None, fence.version), *gone, Put(entry, None, -1, True)], done)

        def done(outcome: str, zxid: int) -> None:
            self.after(0.0 if outcome == OK else AGAIN_S, session.read, [entry, beside], look)

        session.read([entry, beside], look)

    def _registry_changed(self) -> None:
        self.look_for_controller()
        if self.term is not None:
            self.term.doubt()

    def _expired(self) -> None:
        self.world.say("broker %d finds its session expired", self.host.broker_id)
        self.incarnation = -1
        self.term = None
        self.alive = {}
        self.replica.suspend()
        self.session = self._connect()
        self._register()

    # --- the controller --------------------------------------------------------------------------------------------

    def look_for_controller(self) -> None:
        """Stand for election unless there is a controller."""
        if self._is_looking or self.incarnation < 0:
            return
        self._is_looking = True
        session = self.session

        def look(outcome: str, nodes: dict[str, Node | None]) -> None:
            self._is_looking = False
            if outcome != OK or session is not self.session:
                self.after(AGAIN_S, self.look_for_controller)
                return
            holder, epoch = nodes[CONTROLLER], nodes[CONTROLLER_EPOCH]
            assert epoch is not None
            if holder is None:
                self._is_looking = True
                raised = epoch.data + 1
                session.multi(
                    [
                        Put(CONTROLLER_EPOCH, raised, epoch.version),
                        Put(CONTROLLER, (self.host.broker_id, raised), -1, True),
                    ],
                    done,
                )
            elif holder.owner == session.number:
                if self.term is None or self.term.epoch != epoch.data:
                    self.term = Term(self, epoch.data, Check(CONTROLLER_EPOCH, epoch.version))
            else:
                self.term = None
                self.controller = holder.data

        def done(outcome: str, zxid: int) -> None:
            self._is_looking = False
            self.look_for_controller()

        session.read([CONTROLLER, CONTROLLER_EPOCH], look)

    controller: tuple[int, int] = (-1, -1)
    """Who is controller, and its epoch, as far as we know."""

    def _probe_controller(self) -> None:
        """Rule of quick failover: a controller that refuses is deposed, fenced by its epoch (rule Z1)."""
        holder, epoch = self.controller
        if holder in (-1, self.host.broker_id) or self.world.now - self._probing_since < 1.0:
            return
        self._probing_since = self.world.now

        def done(answer: Any) -> None:
            self._probing_since = -9.0
            if isinstance(answer, tuple) or self.controller != (holder, epoch) or not self.session.is_connected:
                return
            fence = [Check(CONTROLLER_EPOCH, epoch)] if self.host.cluster.rules.holds("Z1 depose") else []
            self.world.say("broker %d deposes controller %d", self.host.broker_id, holder)
            self.session.multi(
                [*fence, Remove(CONTROLLER, 0, (holder, epoch))], lambda outcome, zxid: self.look_for_controller()
            )

        self.ask(holder, "ping", (), done)

    # --- Speaking -----------------------------------------------------------------------------------------------------

    def ask(self, target: int, verb: str, arguments: tuple[Any, ...], done: Callable[[Any], object]) -> None:
        """A call to another broker, or to this one, which cannot be lost."""
        network = self.host.cluster.network
        if target == self.host.broker_id:
            self.after(0.0, self.serve, Call(network, target, self, target, verb, arguments, done, self.world.now))
        else:
            network.call(self.host.broker_id, self, target, verb, arguments, done)

    def serve(self, call: Call) -> None:
        try:
            answer = getattr(self, f"_serve_{call.verb}")(call, *call.arguments)
        except KlogError as error:
            answer = error
        if answer is not None:
            call.answer(answer)

    def _serve_ping(self, call: Call) -> Any:
        return "alive", self.incarnation

    def _serve_describe(self, call: Call) -> Any:
        return "facts", self.incarnation, self.replica.facts()

    def _serve_leader_and_isr(
        self, call: Call, controller_epoch: int, incarnation: int, state: Any, alive: dict[int, int]
    ) -> Any:
        if controller_epoch < self.controller_epoch and self.host.cluster.rules.holds("Z1 controller epoch"):
            return "stale", self.controller_epoch
        self.controller_epoch = controller_epoch
        if incarnation != self.incarnation:
            return "another", self.incarnation
        self.alive = dict(alive)
        return self.replica.obey(state) if state is not None else "ok", 0

    def _serve_leave(self, call: Call, broker_id: int, incarnation: int) -> Any:
        return ("stays" if self.term is None else self.term.leave(broker_id, incarnation)), 0

    def _serve_report_isr(self, call: Call) -> Any:
        if self.term is not None:
            self.term.doubt()
        return "ok", 0

    def _serve_fetch(self, call: Call, position: Any, is_report: bool) -> Any:
        self.replica.fetched(call, position, is_report)

    def _serve_produce(self, call: Call, leader_epoch: int, batch: bytes) -> Any:
        self.replica.produce(call, leader_epoch, batch)

    def _serve_consume(self, call: Call, leader_epoch: int, offset: int) -> Any:
        return self.replica.consume(leader_epoch, offset)

    def _serve_latest(self, call: Call, leader_epoch: int) -> Any:
        return self.replica.latest(leader_epoch)

    def _serve_metadata(self, call: Call) -> Any:
        return "metadata", self.replica.leader, self.replica.leader_epoch

    def connection_ended(self, broker_id: int) -> None:
        if self.term is not None:
            self.term.silent(broker_id)

    def report_isr(self) -> None:
        """To whoever may be controller."""
        for broker_id in self.host.cluster.hosts:
            self.ask(broker_id, "report_isr", (), lambda answer: None)

    def leave(self, tries: int = 5) -> None:
        """Controlled shutdown: until nothing rests on us, or we have asked often enough."""

        def done(answer: Any) -> None:
            if isinstance(answer, tuple) and answer[0] == "gone":
                self.world.say("broker %d is let go", self.host.broker_id)
                self.host.stop()

        if tries == 0:
            self.host.stop()
            return
        holder = self.controller[0] if self.term is None else self.host.broker_id
        if holder > 0:
            self.ask(holder, "leave", (self.host.broker_id, self.incarnation), done)
        self.after(AGAIN_S, self.leave, tries - 1)

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.after(TICK_S, self._tick)
        self._ticks += 1
        if not self.session.ping():
            self._expired()
        self.replica.tick()
        if self.term is not None:
            self.term.tick()
        elif self.incarnation >= 0:
            self._probe_controller()
        if self._ticks % CHECKPOINT_EVERY == 0:
            self.replica.checkpoint()
