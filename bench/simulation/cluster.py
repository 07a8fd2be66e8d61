"""A modelled cluster with real controllers: `Cluster` sets it up, kills and restarts brokers, and holds the laws.

Every decision and every write of the controller is made by klog's own code: `Controller` with all its parts,
`ControllerElection`, klog's ZooKeeper client and its codec.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from bench.simulation.brokers import Connection, ModelBroker
from bench.simulation.costs import Assumed, Measured
from bench.simulation.link import Link
from bench.simulation.virtual_time import VirtualExecutors, VirtualLoop
from bench.simulation.zookeeper import ModelledZooKeeper, Server
from klog.config import BrokerConfig
from klog.coordination import cluster as registry_folders
from klog.coordination import partition_states, topics
from klog.coordination.brokers import Broker
from klog.coordination.partition_states import PartitionState
from klog.errors import CannotConnect, KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.codec import EncodedRequest
from klog.replication.placement import Site, place
from klog.security.client_security import ClientSecurity
from klog.server.authority import Authority
from klog.server.broker_probes import BrokerProbes
from klog.server.controller.broker_channels import BrokerChannel
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.controller.peers import Peers
from klog.server.executors import Purpose
from klog.server.former_brokers import FormerBrokers
from klog.server.image import ClusterImage
from klog.server.runtime import Identity, Runtime

ATTENDING_READS = 6
"""What each broker asks ZooKeeper when the controller's node goes: a few small reads."""
DECODED_MAX = 20
"""Requests that are kept decoded."""
LOOK_S = 0.01
"""How often the model looks whether a scenario has come to its end."""
CLOSED_WITHIN_S = 60.0
"""Of the model's time."""


class Process:
    """The controller's parts of one broker, which are klog's own."""

    def __init__(self, cluster: Cluster, broker: ModelBroker) -> None:
        self.cluster = cluster
        self.broker = broker
        loop = cluster.loop
        broker_id = broker.broker_id
        config = BrokerConfig.parse(
            {"broker.id": str(broker_id), "zookeeper.connect": "127.0.0.1:2181", "min.insync.replicas": "2"}
        )
        identity = Identity(broker_id)
        identity.registration = broker.registration
        executors = VirtualExecutors(loop)
        self.runtime = Runtime(config, identity, executors, broker.zookeeper, loop)
        self.runtime.connected.set()
        self.runtime.on_event = cluster.on_event
        authority = Authority(self.runtime)
        probes = BrokerProbes(identity, cluster.assumed.session_s)
        peers = Peers(self._reach, probes, self._answer_locally, self._answers, self._probe)
        self.image = ClusterImage()
        self.controller = Controller(self.runtime, self.image, authority, peers, FormerBrokers(loop.time))
        self.election = ControllerElection(self.runtime, authority, peers, self.controller)
        broker.on_end = self.kill

    def kill(self) -> None:
        """kill -9: nothing of it runs on."""
        self.runtime.cancel_tasks()
        self.controller._end()
        self.election.close()

    @property
    def is_quiet(self) -> bool:
        """Its controller has nothing to do, and every broker that lives has answered everything."""
        controller = self.controller
        state, channels = controller._state, controller._channels._channels
        return (
            not state.has_work.is_set()
            and not state.lock.locked()
            and all(not one.is_behind and one._acknowledged.is_set() for one in channels.values() if self._is_up(one))
        )

    def _is_up(self, channel: BrokerChannel) -> bool:
        return self.cluster.brokers[channel.broker_id].is_up

    async def _answer_locally(self, entity: Any) -> Any:
        """The controller's own broker: without bytes, and on the same loop."""
        loop = self.cluster.loop
        with loop.uncounted():
            answer, answered_s = self.broker.answer(entity)
        loop.meter.charge(max(0.0, answered_s - loop.time()))
        return answer

    async def _reach(self, there: Broker, /, *, timeout_s: float) -> Any:
        """TCP, ApiVersions and the introduction: three round trips, and their CPU time."""
        cluster = self.cluster
        broker = cluster.brokers[there.broker_id]
        await asyncio.sleep(2 * cluster.assumed.network_s)
        if not broker.is_up:
            raise CannotConnect("refused", is_refused=True)
        cluster.loop.meter.charge(3 * cluster.measured.channel_request_s)
        await asyncio.sleep(4 * cluster.assumed.network_s)
        return Connection(cluster, broker, self.runtime.identity.client_id)

    async def _answers(self, host: str, port: int, security: ClientSecurity, /, *, name: str | None) -> bool | None:
        await asyncio.sleep(2 * self.cluster.assumed.network_s)
        return self.cluster.brokers[port - 9092].is_up

    async def _probe(self, there: Broker, identity: Identity, /, *, timeout_s: float) -> None:
        await self._reach(there, timeout_s=timeout_s)


class Cluster:
    """Of so many brokers and partitions of factor 3, `per_host` brokers a host. Deterministic by its seed."""

    def __init__(
        self,
        *,
        brokers: int,
        partitions: int,
        per_host: int,
        per_topic: int,
        seed: int = 1,
        measured: Measured,
        assumed: Assumed = Assumed(),
        counts_cpu: bool = True,
    ) -> None:
        self.measured = measured
        self.assumed = assumed
        self.draw = random.Random(seed)
        self.loop = VirtualLoop(counts_cpu=counts_cpu)
        asyncio.set_event_loop(self.loop)
        self.server = Server(self.loop, measured, assumed)
        self.link = Link(self.loop, assumed)
        self.events: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.leaders_writes = 0
        self.longest_update_s = 0.0
        self._decoded: deque[tuple[bytes, Any]] = deque(maxlen=DECODED_MAX)
        self.assignment: dict[TopicPartition, tuple[int, ...]] = {}
        self.ids: dict[str, Any] = {}
        self.brokers = {one: ModelBroker(self, one, f"host-{(one - 1) // per_host}") for one in range(1, brokers + 1)}
        self._facts: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self._executors = VirtualExecutors(self.loop, is_counted=False)
        self._set_up(partitions, per_topic)
        self.processes: dict[int, Process] = {}

    # --- setting up ---------------------------------------------------------------------------------------------------

    def _set_up(self, partitions: int, per_topic: int) -> None:
        """Topics, states and registrations as klog writes them, without time."""
        self.server.is_instant = True
        zookeeper = ModelledZooKeeper(self.server)
        registry_folders.ensure_cluster(zookeeper)
        for broker in self.brokers.values():
            broker.register()
        sites = {one.broker_id: Site("", one.host) for one in self.brokers.values()}
        for at in range(0, partitions, per_topic):
            name = f"topic-{at // per_topic}"
            count = min(per_topic, partitions - at)
            assignment = place(sites, count, 3, start=self.draw.randrange(len(sites)))
            made = topics.create(zookeeper, name, assignment, {}, ())
            self.ids[name] = made.topic_id
            states = {}
            for number, replicas in assignment.items():
                self.assignment[TopicPartition(name, number)] = replicas
                incarnations = tuple(self.brokers[one].incarnation for one in replicas)
                states[TopicPartition(name, number)] = PartitionState(
                    replicas[0], 0, replicas, 0, incarnations=incarnations
                )
            partition_states.create_many(zookeeper, states, ())
        for partition, replicas in self.assignment.items():
            fact = {
                "topic": partition.topic,
                "partition_index": partition.partition,
                "topic_id": self.ids[partition.topic],
                "last_epoch": 0,
                "end_address": 1,
                "is_whole": True,
                "was_safe": True,
                "is_online": True,
            }
            for one in replicas:
                self._facts[one].append(fact)
        self.server.is_instant = False
        gc.collect()
        gc.freeze()  # the model's million objects are not the controller's to collect

    def facts_of(self, broker_id: int) -> list[dict[str, Any]]:
        """What the broker has on its disks, as DescribeReplicas tells it."""
        return self._facts[broker_id]

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_virtually(work)

    def close(self) -> None:
        """End what still runs: the garbage collector would find its tasks without their loop."""
        tasks = asyncio.all_tasks(self.loop)
        for one in tasks:
            one.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSED_WITHIN_S))
        self.loop.close()
        asyncio.set_event_loop(None)
        gc.unfreeze()

    async def until(self, holds: Callable[[], bool], within_s: float) -> float:
        """Wait until it holds; returns the time then. TimeoutError."""
        end_s = self.loop.time() + within_s
        while True:
            with self.loop.uncounted():
                if holds():
                    return self.loop.time()
            if self.loop.time() > end_s:
                raise TimeoutError
            await asyncio.sleep(LOOK_S)

    async def as_broker(self, work: Callable[[], Any]) -> Any:
        """Blocking calls to ZooKeeper by a modelled broker, uncounted."""
        return await self._executors.run(Purpose.OTHER, work)

    def process(self, broker_id: int) -> Process:
        """The broker with a controller of its own, which is a candidate from now on."""
        made = self.processes[broker_id] = Process(self, self.brokers[broker_id])
        return made

    @property
    def active(self) -> Process | None:
        return next((one for one in self.processes.values() if one.broker.is_up and one.controller.active), None)

    # --- what happens to brokers --------------------------------------------------------------------------------------

    def kill(self, broker_ids: Iterable[int]) -> None:
        """kill -9 of these, at once: connections are refused now, sessions end when their time is over."""
        with self.loop.uncounted():
            for one in broker_ids:
                self.brokers[one].die(session_ends_s=self.assumed.session_s)

    def caught_up(self, broker_id: int, incarnation: int, names: list[TopicPartition]) -> None:
        """A follower has everything: each of its leaders lets it in."""
        with self.loop.uncounted():
            if self.brokers[broker_id].incarnation != incarnation:
                return
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for name in names:
                by_leader[self.state(name).leader].append(name)
            for leader, led in by_leader.items():
                if leader in self.brokers:
                    self.brokers[leader].let_in(broker_id, incarnation, led)

    def report_isr(self, names: list[TopicPartition]) -> None:
        """ReportIsr has arrived at the controller."""
        process = self.active
        if process is None:
            return
        self.loop.meter.charge(self.measured.channel_request_s)
        self.requests["ReportIsr received"] += 1
        process.runtime.spawn(_report(process.controller, names))

    # --- what is counted ----------------------------------------------------------------------------------------------

    def on_event(self, kind: str, facts: Mapping[str, Any]) -> None:
        self.events[kind] += 1

    def count_request(self, entity: Any, size_bytes: int) -> None:
        name = ApiKey(int(entity.__api_key__)).name
        self.requests[name] += 1
        self.requests[f"{name} bytes"] += size_bytes

    def decoded(self, request: EncodedRequest) -> Any:
        """Of requests that share their bytes one is decoded; their head is not looked at."""
        rest = request.parts[-1]
        for known, entity in self._decoded:
            if known is rest:
                return entity
        entity = request.decoded()
        self._decoded.append((rest, entity))
        return entity

    # --- what is true -------------------------------------------------------------------------------------------------

    def state(self, name: TopicPartition) -> PartitionState:
        """As ZooKeeper has it now."""
        from klog.coordination import paths
        from klog.coordination.zookeeper import ZNode

        path = paths.partition_state(*name)
        node = self.server.nodes[path]
        stat = cast(Any, node.stat())
        return partition_states._decode(path, ZNode(node.data, stat))

    def wrong(self, *, whole: bool) -> list[str]:
        """Which laws do not hold, with examples. ``whole``: every replica that lives must be in sync too."""
        found: list[str] = []
        for name, replicas in self.assignment.items():
            state = self.state(name)
            leader = self.brokers.get(state.leader)
            if leader is None or not leader.is_up:
                found.append(f"{name} is led by {state.leader}, which is not alive")
            elif state.leader not in state.isr:
                found.append(f"{name}: leader {state.leader} is not in sync")
            elif not set(state.isr) <= set(replicas):
                found.append(f"{name}: in sync are {state.isr}, replicas are {replicas}")
            elif state.incarnations != tuple(self.brokers[one].incarnation for one in state.isr):
                found.append(f"{name}: an in-sync replica has another incarnation")
            elif leader.led.get(name, (-1, 0.0))[0] != state.leader_epoch:
                found.append(f"{name}: its leader was not sent epoch {state.leader_epoch}")
            elif whole and len(state.isr) != len(replicas):
                found.append(f"{name}: in sync are {state.isr} of {replicas}")
        return found


async def _report(controller: Controller, names: list[TopicPartition]) -> None:
    """As the handler of ReportIsr."""
    try:
        controller.require()
        await controller.isr_reported(names)
    except KlogError:
        pass
