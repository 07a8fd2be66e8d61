"""The controller and the coordinator without a broker around them: real ZooKeeper, brokers in memory, no sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from klog.config import BrokerConfig
from klog.coordination import brokers, cluster, group_slots, partition_states, paths
from klog.coordination import controller_election as registry
from klog.coordination.acts import Actor
from klog.coordination.brokers import Broker, Registration
from klog.coordination.group_slots import SlotHolder, slot_of
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import CannotConnect, KlogError, NotController, NotCoordinator, RebalanceInProgress
from klog.groups.members import Caller, Join, Sync
from klog.groups.outcomes import Joined, Refused, Synced
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.authority import Authority
from klog.server.broker_probes import BrokerProbes
from klog.server.controller.context import Context
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.controller.peers import Peers
from klog.server.executors import Executors
from klog.server.former_brokers import FormerBrokers
from klog.server.groups.coordinator import Coordinator
from klog.server.image import BrokerImage, ClusterImage
from klog.server.runtime import Identity, Runtime
from klog.server.zookeeper_admission import ZooKeeperAdmission
from tests.coordination.states import read_state, write_state

ME = 1
WITHIN_S = 30.0


class BrokerInMemory:
    """Obeys, keeps the states that it was sent, and is also the connection to itself."""

    address = "in memory"

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        """Partition -> leader and its epoch."""
        self.was_asked = asyncio.Event()
        """Who it is."""
        self.has_obeyed = asyncio.Event()
        self.ended = asyncio.Event()

    async def led_by(self, name: TopicPartition) -> tuple[int, int]:
        """The partition's leader and epoch, when they have been sent."""
        async with asyncio.timeout(WITHIN_S):
            while name not in self.leaders:
                self.has_obeyed.clear()
                await self.has_obeyed.wait()
        return self.leaders[name]

    async def request(self, entity: Any, *, timeout_s: float | None = None) -> Any:
        if entity.__api_key__ == ApiKey.DESCRIBE_SELF:
            self.was_asked.set()
        if entity.__api_key__ == ApiKey.LEADER_AND_ISR:
            for topic in entity.topics:
                for one in topic.partitions:
                    self.leaders[TopicPartition(topic.name, one.partition_index)] = one.leader, one.leader_epoch
            self.has_obeyed.set()
        identity = {"broker_id": self.registration.broker.broker_id, "incarnation": self.registration.incarnation}
        return SimpleNamespace(error_code=0, failed=(), replicas=(), **identity)

    async def wait_closed(self) -> None:
        await self.ended.wait()

    async def close(self) -> None:
        return


SLOW = object()
"""A request of this broker to itself that waits for `World.may_go_on`."""


class World:
    """This broker's parts, and three brokers, of which it is the first."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        config = BrokerConfig.parse({"broker.id": str(ME), "zookeeper.connect": str(zookeeper.address)})
        self.zookeeper = zookeeper
        self.image = ClusterImage()
        self.runtime = Runtime(config, Identity(ME), Executors(), zookeeper, asyncio.get_running_loop())
        self.runtime.connected.set()
        self.runtime.on_event = self._on_event
        self.events: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()
        self.brokers: dict[int, BrokerInMemory] = {}
        self.may_go_on = asyncio.Event()
        self.slow_ended: asyncio.Queue[bool] = asyncio.Queue()
        """Of `SLOW` requests: whether each ended by itself."""
        authority = Authority(self.runtime)
        peers = Peers(self._reach, BrokerProbes(self.runtime.identity, WITHIN_S), self._answer_locally)
        self.former_brokers = FormerBrokers(self.runtime.loop.time)
        self.controller = Controller(self.runtime, self.image, authority, peers, self.former_brokers)
        self.election = ControllerElection(self.runtime, authority, peers, self.controller)

    def register(self) -> None:
        cluster.ensure_cluster(self.zookeeper)
        for one in (ME, 2, 3):
            entry = brokers.register(self.zookeeper, Broker(one, "127.0.0.1", 1, (f"dir-{one}",)))
            self.brokers[one] = BrokerInMemory(entry)
        self.runtime.identity.registration = self.brokers[ME].registration

    def _on_event(self, kind: str, facts: Mapping[str, Any]) -> None:
        self.events.put_nowait((kind, facts))

    async def event(self, kind: str) -> Mapping[str, Any]:
        """The next of its kind."""
        async with asyncio.timeout(WITHIN_S):
            while (found := await self.events.get())[0] != kind:
                pass
        return found[1]

    async def _reach(self, there: Broker, /, *, timeout_s: float) -> Any:
        found = self.brokers[there.broker_id]
        if found.ended.is_set():
            raise CannotConnect("refused", is_refused=True)
        return found

    async def _answer_locally(self, entity: Any) -> Any:
        if entity is SLOW:
            try:
                await self.may_go_on.wait()
            finally:
                self.slow_ended.put_nowait(self.may_go_on.is_set())
            return entity
        return await self.brokers[ME].request(entity)

    async def create(self, topic: str, replicas: list[int]) -> TopicPartition:
        await self.controller.topics.create(
            topic,
            partitions=None,
            replication_factor=None,
            assignment={0: replicas},
            overrides={},
            actor=Actor("t", ""),
        )
        return TopicPartition(topic, 0)


@asynccontextmanager
async def world_of(zookeeper: ZooKeeper) -> AsyncIterator[World]:
    world = World(zookeeper)
    await asyncio.to_thread(world.register)
    try:
        yield world
    finally:
        world.election.close()
        world.runtime.cancel_tasks()
        world.runtime.executors.close()


async def test_a_controller_elects_leaders_and_sends_them_to_the_replicas(zk: ZooKeeper) -> None:
    async with world_of(zk) as world:
        await world.election.enter()
        assert world.controller.active and world.election.holder == ME
        name = await world.create("t", [2, 3])
        assert world.brokers[2].leaders[name] == (2, 0)
        assert name not in world.brokers[ME].leaders, "it has no replica"
        assert await world.brokers[3].led_by(name) == (2, 0)

        world.brokers[2].ended.set()
        assert (await world.event("broker-down"))["id"] == 2
        elected = await world.event("leader-elected")
        assert (elected["leader"], elected["leader_epoch"], elected["old_leader"]) == (3, 1, 2)
        state = (await asyncio.to_thread(partition_states.read_many, zk, [name]))[name]
        assert state is not None and (state.leader, state.isr) == (3, (3,))


@pytest.mark.slow
async def test_the_end_of_a_session_says_since_when_its_broker_was_silent(zk: ZooKeeper) -> None:
    async with world_of(zk) as world:
        await world.election.enter()
        await world.create("t", [2, 3])
        world.brokers[2].was_asked.clear()
        async with asyncio.timeout(WITHIN_S):
            await world.brokers[2].was_asked.wait()  # though nothing is to be sent
        await asyncio.to_thread(zk.delete, paths.broker(2))
        reason = (await world.event("broker-down"))["reason"]
        assert re.fullmatch(
            r"it stopped answering: its ZooKeeper session ended at [\d:]{8}; "
            r"it last answered the controller at [\d:]{8}, \d+\.\d s before",
            reason,
        ), reason


async def test_a_new_controller_has_the_time_of_a_loss_before_its_term(zk: ZooKeeper) -> None:
    async with world_of(zk) as world:
        images = {one: BrokerImage(one, "127.0.0.1", 1) for one in (ME, 2, 3)}
        await world.election.enter()
        world.controller.deposed()
        await asyncio.to_thread(zk.delete, paths.broker(2))
        world.former_brokers.note(images, {one: images[one] for one in (ME, 3)})
        world.former_brokers.left_ms[2] = 3_600_000
        await asyncio.to_thread(zk.delete, paths.CONTROLLER)
        await world.election.enter()
        found = world.controller.context.how_lost
        assert found.keys() == {2} and "01:00:00" in found[2]


async def test_a_leader_is_replaced_only_for_the_registered_incarnation(zk: ZooKeeper) -> None:
    async with world_of(zk) as world:
        await world.election.enter()
        name = await world.create("t", [2, 3])
        incarnation = world.brokers[2].registration.incarnation
        with pytest.raises(KlogError):
            await world.controller.give_up_leadership(2, incarnation - 1, [name])
        await world.controller.give_up_leadership(3, world.brokers[3].registration.incarnation, [name])
        assert world.controller.context.states[name].leader == 2, "3 does not lead it"
        await world.controller.give_up_leadership(2, incarnation, [name])
        assert world.controller.context.states[name].leader == 3


async def test_a_controller_reads_that_a_leader_has_cleared_the_mark_of_a_new_partition(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its next decision names an old version, and is refused together with a thousand others."""
    name, is_cleared = TopicPartition("t", 0), asyncio.Event()
    take = Context.take_states

    def take_states(context: Context, found: Mapping[TopicPartition, PartitionState | None]) -> None:
        take(context, found)
        state = context.states.get(name)
        if state is not None and (state.version, state.new) == (1, False):
            is_cleared.set()

    def clear() -> None:
        found = read_state(zk, name)
        assert found is not None and (found.version, found.new) == (0, True)
        write_state(zk, name, replace(found, new=False))

    monkeypatch.setattr(Context, "take_states", take_states)
    async with world_of(zk) as world:
        await world.election.enter()
        leader = world.brokers[2]

        async def obey(entity: Any, *, timeout_s: float | None = None) -> Any:
            if entity.__api_key__ == ApiKey.LEADER_AND_ISR and entity.topics:
                await asyncio.to_thread(clear)
            return await BrokerInMemory.request(leader, entity, timeout_s=timeout_s)

        monkeypatch.setattr(leader, "request", obey)
        await world.create("t", [2, 3])
        async with asyncio.timeout(WITHIN_S):
            await is_cleared.wait()


async def test_a_deposed_controller_changes_nothing(zk: ZooKeeper, connect: Callable[..., ZooKeeper]) -> None:
    async with world_of(zk) as world:
        await world.election.enter()
        name = await world.create("t", [2, 3])
        term = world.controller.require()
        before = await asyncio.to_thread(partition_states.read_many, zk, [name])
        other = await asyncio.to_thread(connect)
        await asyncio.to_thread(registry.elect, other, 2, term)
        with pytest.raises(KlogError) as raised:
            await world.controller.give_up_leadership(2, world.brokers[2].registration.incarnation, [name])
        assert isinstance(raised.value, NotController)
        assert await asyncio.to_thread(partition_states.read_many, zk, [name]) == before


def join(member_id: str = "", new_id: str = "m-1") -> Join:
    return Join(member_id, None, "test", "/127.0.0.1", 10_000, 10_000, "consumer", (("range", b""),), new_id)


async def test_a_coordinator_serves_the_groups_of_its_slots_and_lets_them_go_with_the_slot(zk: ZooKeeper) -> None:
    async with world_of(zk) as world:
        world.runtime.config = BrokerConfig.parse(
            {"zookeeper.connect": str(zk.address), "group.initial.rebalance.delay.ms": "0"}
        )
        groups = Coordinator(world.runtime, world.image, ZooKeeperAdmission(world.runtime))
        try:
            refused = await groups.join("g", join())
            assert isinstance(refused, Refused) and isinstance(refused.error, NotCoordinator)

            slot = slot_of("g")
            holder = SlotHolder(slot, ME, world.runtime.identity.incarnation, term=1)
            world.image.group_slots = dict(await asyncio.to_thread(group_slots.write_many, zk, [holder], ()))
            groups.cache.slots_changed()
            joined = await groups.join("g", join())
            assert isinstance(joined, Joined) and (joined.generation, joined.leader) == (1, "m-1")
            synced = await groups.sync("g", Sync(Caller("m-1", None, 1), ("consumer", "range"), {"m-1": b"all"}))
            assert isinstance(synced, Synced) and synced.assignment == b"all"
            assert groups.heartbeat("g", Caller("m-1", None, 1), None) is None

            waiting = asyncio.ensure_future(groups.join("g", join(new_id="m-2")))
            await asyncio.sleep(0)  # it has begun, and waits for the first member to join again
            assert isinstance(groups.heartbeat("g", Caller("m-1", None, 1), None), RebalanceInProgress)
            world.image.group_slots = {}
            groups.cache.slots_changed()
            let_go = await asyncio.wait_for(waiting, WITHIN_S)
            assert isinstance(let_go, Refused) and isinstance(let_go.error, NotCoordinator)
            assert groups.cache.groups == [] and groups.cache.slots == set()
        finally:
            groups.close()


async def test_what_the_controller_asks_itself_goes_on_when_the_time_is_over(zk: ZooKeeper) -> None:
    """A state that it has begun to write is to be sent: rule Z2."""
    async with world_of(zk) as world:
        await world.election.enter()
        with pytest.raises(NotController):
            await world.election.ask(SLOW, within_s=0.05)
        world.may_go_on.set()
        async with asyncio.timeout(WITHIN_S):
            assert await world.slow_ended.get(), "it was cancelled"
