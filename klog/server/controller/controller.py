"""The controller: its terms, and its reactions when brokers come, go, fail or shut down.

An event of a broker changes what is known (`Context`) and marks affected partitions *dirty*. Reconciling asks the pure
functions of `klog.replication.leader_election` for the state of each dirty partition, writes it, and sends it to the
brokers concerned. What fails is retried, by this controller or, from ZooKeeper, by the next.

Requests of clients (topics, shutdown, elections) take the same lock as reconciling: one at a time.

    controller_election   which broker is the controller
    controller_state      the term, its fence, the lock, what is dirty
    context               knowledge of the cluster, and decisions from it
    liveness              which brokers live, by registrations and channels
    partition_writer      writes and sends leaders and in-sync sets
    broker_channels       requests to each broker
    topic_manager, elections, reassigner, group_slots, leadership_transfer, registry_watch, act_publisher,
    deleted_topics: one task each
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from klog.coordination import brokers, group_slots, partition_states, topic_deletion, topics
from klog.coordination.brokers import Registration
from klog.coordination.controller_election import ControllerTerm
from klog.errors import KlogError
from klog.names import TopicPartition, counted
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.authority import Authority
from klog.server.controller.act_publisher import ActPublisher
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.context import Context, KnownBroker
from klog.server.controller.controller_election import ControllerElection
from klog.server.controller.controller_part import Tools
from klog.server.controller.controller_state import AGAIN_S, ControllerState
from klog.server.controller.deleted_topics import DeletedTopics
from klog.server.controller.elections import Elections
from klog.server.controller.group_slots import GroupSlots
from klog.server.controller.leadership_transfer import LeadershipTransfer
from klog.server.controller.liveness import Liveness
from klog.server.controller.partition_writer import PartitionWriter
from klog.server.controller.peers import Peers
from klog.server.controller.reassigner import Reassigner
from klog.server.controller.registry_watch import RegistryWatch, read_facts
from klog.server.controller.topic_manager import TopicManager
from klog.server.former_brokers import FormerBrokers
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)


class Controller:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(
        self, runtime: Runtime, image: ClusterImage, authority: Authority, peers: Peers, former_brokers: FormerBrokers
    ) -> None:
        self._runtime = runtime
        self._zookeeper = runtime.zookeeper
        self._authority = authority
        self._peers = peers
        state = self._state = ControllerState(runtime, self.deposed)
        self._liveness = Liveness(runtime, image, state, former_brokers)
        channels = self._channels = BrokerChannels(runtime, peers, state, self._liveness)
        self._partitions = PartitionWriter(runtime, state, channels)
        tools = Tools(runtime, state, channels, self._partitions)
        self.topics = TopicManager(tools, image)
        self.elections = Elections(tools)
        self.reassigner = Reassigner(tools, self.elections)
        self._slots = GroupSlots(runtime, state, channels)
        self._transfer = LeadershipTransfer(runtime, state, self.elections, peers)
        self._registry_watch = RegistryWatch(tools, self.topics)
        self._act_publisher = ActPublisher(runtime, state)
        self.deleted_topics = DeletedTopics(tools, self.topics)

    # --- the term ---------------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """What is known in this term."""
        return self._state.context

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._state.active

    def require(self) -> ControllerTerm:
        """NotController unless this broker is the controller."""
        return self._state.require()

    async def begin(self, term: ControllerTerm, election: ControllerElection) -> None:
        """Take over: read ZooKeeper, reconcile, and send the state to all brokers. Raises KlogError if the term cannot
        begin."""
        state, broker_id = self._state, self._runtime.broker_id
        async with state.lock:
            self._end()
            context = state.context = Context(self._runtime.config, self._runtime.loop.time)
            context.wait_again = state.mark_dirty_later
            registered = await state.run(self._read, term, context)
            state.begin(term, election)
            self._authority.begin(term.epoch)
            there = counted(len(registered), "broker"), counted(len(context.topics), "topic")
            log.info("controller, epoch %d: %s, %s", term.epoch, *there)
            context.brokers = {one.broker.broker_id: KnownBroker(one) for one in registered}
            self._liveness.begin()
            own = context.brokers.get(broker_id)
            if own is not None:
                own.is_heard = True
                request = codec.request(
                    ApiKey.DESCRIBE_REPLICAS, 0, controller_epoch=term.epoch, incarnation=own.incarnation
                )
                described = await self._peers.answer_locally(request)
                if not int(described.error_code):  # else it is asked again, over its channel
                    self._liveness.described(own.registration, described.replicas)
            self._slots.start()
            await self._slots.reconcile()
            await self._partitions.reconcile(set(context.partitions()))
            for one in registered:
                self._channels.open(term.epoch, one)
            state.mark_dirty(self.reassigner.all_in_progress())
            state.spawn(self._keep_reconciling(term))
            state.keep_up(self._liveness.has_news, self._tell_who_is_back, "brokers are not told who is back")
            self.topics.start()
            self.elections.start()
            self.reassigner.start()
            self._transfer.start()
            self._registry_watch.start()
            self._act_publisher.start()
            self.deleted_topics.start()
            self._runtime.tell("controller-elected", controller=term.broker_id, controller_epoch=term.epoch)
        await self._channels.acknowledged({broker_id}, within_s=None)

    def _read(self, term: ControllerTerm, context: Context) -> list[Registration]:
        """In a thread: read everything from ZooKeeper."""
        fence = (term.fence,)
        damage: topics.Damage = {}
        context.ever_registered = brokers.ever_registered(self._zookeeper)
        marks = topics.being_deleted(self._zookeeper)
        there = topics.read_all(self._zookeeper, damage)
        context.deleted = {one.name: one for one in there if one.deletion is not None and one.name not in marks}
        found = [topics.give_id(self._zookeeper, one, fence) for one in there if one.name not in context.deleted]
        topics.remember_ids(self._zookeeper, found, fence)
        for one in read_facts(self._zookeeper, found, damage):
            context.add_topic(one.topic, one.settings, one.first_epoch)
            context.take_states(one.states)
            if one.is_deletion_begun:
                context.begin_deletion(one.topic)
        if self._runtime.config["delete.topic.enable"]:
            for name in (set(marks) & context.topics.keys()) - context.deleting.keys():
                topic_deletion.take_on_deletion(self._zookeeper, name, fence)
                context.begin_deletion(context.topics[name])
        for name in context.deleting:
            log.info("finishing the deletion of topic %s", name)
        for what in damage.values():
            log.error("ignored: %s", what)
        context.group_slots = group_slots.read_all(self._zookeeper)
        registered = brokers.live(self._zookeeper, self._watch_registry)
        context.ever_registered |= {one.broker.broker_id for one in registered}  # some may have come meanwhile
        context.left = brokers.left_in_order(self._zookeeper)  # after that: one that has just shut down was not lost
        return registered

    def end(self) -> None:
        """The term is over: another broker is the controller, or the session has expired."""
        if self._state.term is not None:
            log.info("no longer the controller: epoch %d is over", self._state.term.epoch)
        self._end()

    def _end(self) -> None:
        self._state.end()
        self._channels.close_all()

    def deposed(self) -> None:
        """A broker knows a later controller, or a write was fenced."""
        if self._state.term is not None:
            log.warning("another controller has been elected: epoch %d is over", self._state.term.epoch)
            self._end()
            self._state.look_again()

    # --- reconciling ------------------------------------------------------------------------------------------------

    async def _keep_reconciling(self, term: ControllerTerm) -> None:
        state = self._state
        while state.term is term:
            await state.has_work.wait()
            await asyncio.sleep(0)  # events of the same moment are reconciled together
            async with state.lock:
                state.has_work.clear()
                names = state.take_dirty()
                try:
                    if state.is_registry_doubted:
                        await self._read_registry()
                        names |= state.take_dirty()
                    await self._slots.reconcile()
                    await self._partitions.reconcile(names)
                    await self.reassigner.advance(names)
                except KlogError as error:
                    if state.term is not term:
                        return
                    found = counted(len(names), "changed partition")
                    log.warning("%s not reconciled yet, trying again: %s", found, error.message)
                    state.mark_dirty(names)
                else:
                    continue
                finally:
                    if self._liveness.take_loss():
                        self._channels.send_metadata()
            # Not under the lock: a client that asks for something meanwhile gets its own error.
            await self._runtime.pause(AGAIN_S)

    async def _tell_who_is_back(self) -> None:
        self._channels.send_metadata(self._liveness.take_followed())

    # --- which brokers live -----------------------------------------------------------------------------------------

    def _watch_registry(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self._state.doubt_registry)

    async def _read_registry(self) -> None:
        state = self._state
        state.is_registry_doubted = False
        try:
            found = await state.run(brokers.live, self._zookeeper, self._watch_registry)
        except KlogError:
            state.is_registry_doubted = True
            raise
        gone, come = self._liveness.registered(found)
        for broker_id in gone:
            self._channels.close(broker_id)
        for one in come:
            self._channels.open(state.require().epoch, one)
        self._channels.send_metadata()

    # --- what brokers report ----------------------------------------------------------------------------------------

    async def isr_reported(self, names: Iterable[TopicPartition]) -> None:
        """Leaders have changed these in-sync sets: read them, and send them to all brokers."""
        context = self.context
        there = [name for name in names if context.knows(name)]
        found = await self._state.run(partition_states.read_many, self._zookeeper, there)
        if self._state.term is not None:
            context = self.context
            context.take_states(found)
            self._channels.send_metadata(there)
            for name, state in ((name, state) for name, state in found.items() if context.knows(name)):
                # A replica may wait to be out of the in-sync set: while it is in, a lost log is not created again
                # (rule R1).
                for one in set(context.replicas(name)) - set(() if state is None else state.isr):
                    self._channels.send_states(one, [name])
            self._state.mark_dirty(there)

    def replicas_lost(self, broker_id: int, incarnation: int, names: Iterable[TopicPartition]) -> None:
        """A disk of a broker is offline (rule L5): its replicas count as dead."""
        self._state.check_incarnation(broker_id, incarnation)
        gone = set(names)
        log.error("broker %d has lost the disk of %s", broker_id, counted(len(gone), "replica"))
        self.context.brokers[broker_id].lost |= gone
        self._runtime.tell("replicas-offline", id=broker_id, partitions=[str(name) for name in sorted(gone)[:100]])
        self._state.mark_dirty(gone)

    async def give_up_leadership(self, broker_id: int, incarnation: int, names: Iterable[TopicPartition]) -> None:
        """A leader cannot flush in time (rule R4): elect another in-sync replica, if there is one."""
        await self.elections.replace_leader(broker_id, incarnation, names, "cannot flush in time")

    async def leave(self, broker_id: int, incarnation: int) -> int:
        """Controlled shutdown: move leaders and group slots away from this broker, as far as others can take them.

        Returns the number of partitions that it still leads.
        """
        state = self._state
        async with state.lock:
            state.require()
            state.check_incarnation(broker_id, incarnation)
            log.info("broker %d is shutting down", broker_id)
            context = state.context
            context.leaving.add(broker_id)
            hosted = context.hosted(broker_id)
            await self._slots.reconcile()
            await self._partitions.reconcile(hosted)
        await self._channels.acknowledged(self.context.live)
        states = self.context.states
        return sum(states[name].leader == broker_id for name in hosted if name in states)
