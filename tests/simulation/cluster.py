"""One world from its seed: three brokers, a registry, clients, chaos; then quiet, and the laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klog.config.topic import LogConfig
from klog.storage.log import Log
from tests.simulation.broker import CONTROLLER_EPOCH, Host
from tests.simulation.chaos import WEIGHTS, Chaos
from tests.simulation.clients import Producer, Reader
from tests.simulation.laws import Laws
from tests.simulation.network import Network
from tests.simulation.registry import Node, Registry
from tests.simulation.replica import REPLICAS
from tests.simulation.states import STATE, TOPIC, state_of
from tests.simulation.world import Violation, World

LONG_MAX = 2**63 - 1
CHAOS_S = 8.0
SET_BACK_WAIT_S = 4.0
"""Nobody who is killed stays away for longer."""
QUIET_S = 25.0
"""Longest time to come to rest: some sessions, some lags, some leaders."""
EVERY_FLUSH = LogConfig(flush_messages=1)
SOON = LogConfig(flush_messages=LONG_MAX, flush_ms=150)
NEVER = LogConfig(flush_messages=LONG_MAX, flush_ms=LONG_MAX)


@dataclass(frozen=True)
class Plan:
    """What kind of world; None: drawn from the seed. `without` are the rules that are taken out."""

    without: frozenset[str] = frozenset()
    config: LogConfig | None = None
    min_insync: int | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    every_s: float | None = None
    chaos_s: float = CHAOS_S
    lost_share: float | None = None
    """Of requests to the registry."""
    late_share: float | None = None
    """Of messages."""
    silence_s_max: float | None = None
    """The longest time without an acknowledgement, where the faults leave a leader alive."""


class Rules:
    """Which of the rules hold in this world."""

    def __init__(self, without: frozenset[str]) -> None:
        self._without = without

    def holds(self, rule: str) -> bool:
        return rule not in self._without


class Cluster:
    def __init__(self, seed: int, plan: Plan) -> None:
        world = self.world = World(seed)
        draw = world.draw
        if plan.late_share is not None:
            world.late_share = plan.late_share
        self.plan = plan
        self.restart_wait_s = SET_BACK_WAIT_S if "set back" in plan.weights else seed % 2
        """unclean.restart.wait.ms"""
        self.rules = Rules(plan.without)
        self.laws = Laws(world)
        config = plan.config or draw.choices((EVERY_FLUSH, SOON, NEVER), (6, 2, 2))[0]
        self.is_waiting = False
        """In the end nobody may lead, and an operator has to decide."""
        self.emptied: set[int] = set()
        """Incarnations whose disk was emptied."""
        self.flushes_in_time = config.flush_ms < LONG_MAX
        self.log_config = LogConfig(
            flush_messages=config.flush_messages,
            flush_ms=config.flush_ms,
            segment_bytes=draw.choice((1500, 1 << 20)),
            min_insync_replicas=plan.min_insync or draw.choice((1, 2)),
        )
        self.hosts: dict[int, Host] = {}
        self.registry = Registry(world)
        if plan.lost_share is not None:
            self.registry.lost_share = plan.lost_share
        self.registry.nodes |= {f"/registrations/{one}": Node(None, 0, 0, None) for one in REPLICAS}
        self.registry.nodes |= {CONTROLLER_EPOCH: Node(0, 0, 0, None), TOPIC: Node(None, 0, 0, None)}
        self.hosts |= {one: Host(self, one) for one in REPLICAS}
        self.network = Network(world, self.hosts)
        world.say("flush after %d or %d ms, min.insync.replicas %d", *_flush(self.log_config))
        for host in self.hosts.values():
            world.after(draw.random() * 0.3, host.start)
        self.producers = [Producer(self, number, 0.03 + draw.random() * 0.15) for number in (1, 2)]
        self.readers = [Reader(self, number, 0.15) for number in (3, 4)]
        every_s = plan.every_s or draw.choice((0.4, 0.8, 1.6))
        self.chaos = Chaos(self, plan.chaos_s, plan.weights, every_s)

    def run(self) -> None:
        """Raises Violation."""
        world = self.world
        world.run(self.plan.chaos_s)
        if self.plan.silence_s_max is not None:
            self.laws.go_on(self.plan.silence_s_max)
        self.chaos.heal()
        world.run(world.now + 1.5)
        for host in self.hosts.values():
            host.start()  # who was still shutting down
        for producer in self.producers:
            producer.is_stopping = True
        ends_s = world.now + QUIET_S
        while True:
            world.run(world.now + 0.25)
            why = self._unrest()
            if why is None:
                break
            if world.now >= ends_s:
                if self._is_lost():
                    self.is_waiting = True
                    return
                raise Violation("everything comes to rest", why)
        state = state_of(self.registry.nodes[STATE])
        assert state is not None
        self.laws.end(state.leader, {one: log for one, host in self.hosts.items() if (log := _log(host)) is not None})

    def _is_lost(self) -> bool:
        """All that is left in the ISR had its disk emptied: the partition rightly waits for somebody to decide.

        Others may have everything, but left the ISR before the emptied one was known to be dead.
        """
        state = state_of(self.registry.nodes.get(STATE))
        return state is not None and state.leader < 0 and set(state.incarnations) <= self.emptied

    def _unrest(self) -> str | None:
        """What is still under way; None when all is quiet."""
        state = state_of(self.registry.nodes.get(STATE))
        if state is None or state.leader < 0:
            return f"there is no leader: {state}"
        if sorted(state.isr) != sorted(REPLICAS):
            return f"the ISR is {state.isr}"
        leader = self.hosts[state.leader].process
        partition = None if leader is None else leader.replica.partition
        if partition is None or partition.leader_epoch != state.leader_epoch:
            return f"broker {state.leader} does not lead in epoch {state.leader_epoch}"
        if not all(producer.is_done for producer in self.producers):
            return "a producer waits for an acknowledgement"
        end = partition.log.end.address
        if partition.high_watermark.address != end:
            return f"the high watermark is {partition.high_watermark.address} of {end}"
        for reader in self.readers:
            if reader.offset < partition.high_watermark.offset:
                return f"reader {reader.number} is at {reader.offset}"
        for one, host in self.hosts.items():
            log = _log(host)
            if log is None or log.end.address != end:
                return f"broker {one} is at {None if log is None else log.end.address} of {end}"
        return None


def _log(host: Host) -> Log | None:
    return None if host.process is None else host.process.replica.log


def _flush(config: LogConfig) -> tuple[int, int, int]:
    return config.flush_messages, config.flush_ms, config.min_insync_replicas
