"""The controller: its terms, and its reactions when brokers come, go, fail or shut down.

An event of a broker changes what is known (`Context`) and marks affected partitions *dirty*. Reconciling asks the pure
functions of `klog.replication.leader_election` for the state of each dirty partition, writes it, and sends it to the
brokers concerned. What fails is retried, by this controller or, from ZooKeeper, by the next.

Requests of clients (topics, shutdown, elections) take the same lock as reconciling: one at a time.

    controller_election   which broker is the controller
    controller_state      the term, its fence, the lock, what is dirty
    context               knowledge of the cluster, and decisions from it
    partition_writer      writes and sends leaders and in-sync sets
    broker_channels       requests to each broker
    topic_manager, elections, reassigner, group_slots, leadership_transfer, registry_watch, act_publisher,
    deleted_topics: one task each
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from klog.coordination import brokers, group_slots, partition_states, topic_deletion, topics
from klog.coordination.brokers import Broker, Registration
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
from klog.server.controller.controller_state import AGAIN_S, ControllerState
from klog.server.controller.deleted_topics import DeletedTopics
from klog.server.controller.elections import Elections
from klog.server.controller.group_slots import GroupSlots
from klog.server.controller.leadership_transfer import LeadershipTransfer
from klog.server.controller.partition_writer import PartitionWriter
from klog.server.controller.peers import Peers
from klog.server.controller.reassigner import Reassigner
from klog.server.controller.registry_watch import RegistryWatch, read_facts
from klog.server.controller.topic_manager import TopicManager
from klog.server.former_brokers import FormerBrokers
from klog.server.image import BrokerImage, ClusterImage
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
        self._image = image
        self._former_brokers = former_brokers
        state = self._state = ControllerState(runtime, self.deposed)
        channels = self._channels = BrokerChannels(runtime, peers, self)
        partitions = self._partitions = PartitionWriter(runtime, state, channels)
        self.topics = TopicManager(runtime, image, state, channels, partitions)
        self.elections = Elections(runtime.zookeeper, state, channels, partitions)
        self.reassigner = Reassigner(runtime, state, channels, partitions, self.elections)
        self._slots = GroupSlots(runtime, state, channels)
        self._transfer = LeadershipTransfer(runtime, state, self.elections, peers)
        self._registry_watch = RegistryWatch(runtime, state, channels, partitions, self.topics)
        self._act_publisher = ActPublisher(runtime, state)
        self.deleted_topics = DeletedTopics(runtime, state, channels, partitions, self.topics)
        self._has_lost_broker = False
        """A broker refuses connections, which the others learn after the elections that it causes: a thousand
        requests before them would delay them."""

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
            self._report_lost(context)
            self._report_arrived(context)
            own = context.brokers.get(broker_id)
            if own is not None:
                own.is_heard = True
                request = codec.request(
                    ApiKey.DESCRIBE_REPLICAS, 0, controller_epoch=term.epoch, incarnation=own.incarnation
                )
                described = await self._peers.answer_locally(request)
                if not int(described.error_code):  # else it is asked again, over its channel
                    self.described(own.registration, described.replicas)
            self._slots.start()
            await self._slots.reconcile()
            await self._partitions.reconcile(set(context.partitions()))
            for one in registered:
                self._channels.open(context, term.epoch, one)
            state.mark_dirty(self.reassigner.all_in_progress())
            state.spawn(self._keep_reconciling(term))
            self.elections.start()
            self.reassigner.start()
            if context.facts_of(broker_id):
                self.reassigner.find_stray_logs(broker_id)  # the channel to have them deleted over is there now
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
                    self._tell_of_lost_brokers()
            # Not under the lock: a client that asks for something meanwhile gets its own error.
            await self._runtime.pause(AGAIN_S)

    def _tell_of_lost_brokers(self) -> None:
        if self._has_lost_broker:
            self._has_lost_broker = False
            self._channels.send_metadata()

    # --- which brokers live -----------------------------------------------------------------------------------------

    def _watch_registry(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self.registry_doubted)

    def registry_doubted(self) -> None:
        """The registrations of brokers may have changed."""
        self._state.doubt_registry()

    async def _read_registry(self) -> None:
        state = self._state
        state.is_registry_doubted = False
        try:
            found = await state.run(brokers.live, self._zookeeper, self._watch_registry)
        except KlogError:
            state.is_registry_doubted = True
            raise
        context = state.context
        now = {one.broker.broker_id: one for one in found}
        context.ever_registered |= now.keys()
        for broker_id in context.brokers.keys() | now.keys():
            was, new = context.brokers.get(broker_id), now.get(broker_id)
            if was is not None and new is not None and was.incarnation == new.incarnation:
                was.registration = new
                continue
            how = ""
            if was is not None:
                session_ended = f"its ZooKeeper session ended at {_clock_time()}{self._silence(broker_id)}"
                how = self._how_lost(was, f"stopped answering: {session_ended}")
            context.leaving.discard(broker_id)
            if new is None:
                assert was is not None
                del context.brokers[broker_id]
                self._channels.close(broker_id)
                log.warning("broker %d is gone: its registration has ended", broker_id)
                if not was.is_refused:  # else that was told
                    self._tell("broker-down", was.registration.broker, reason=f"it {how}")
            else:
                context.brokers[broker_id] = KnownBroker(new)
                log.info("broker %d has registered, incarnation %d", broker_id, new.incarnation)
                self._tell("broker-up", new.broker)
                self._channels.open(context, state.require().epoch, new)
            state.mark_dirty(context.hosted(broker_id))
        self._channels.send_metadata()

    def _report_arrived(self, context: Context) -> None:
        """Report brokers that registered without a controller: this one does not know them from the last one's
        updates."""
        for broker_id, one in sorted(context.brokers.items()):
            if broker_id not in self._image.brokers:
                self._tell("broker-up", one.registration.broker)

    def _report_lost(self, context: Context) -> None:
        """Report brokers that were known from the last controller, and whose registrations ended before this term.
        Often it is that controller: one that hangs is replaced only when its session ends. Earlier losses were reported
        by the last controller; the time is that of this broker's updates."""
        for broker_id, left_ms in self._former_brokers.left_ms.items():
            if broker_id not in context.brokers:
                context.how_lost[broker_id] = f"was lost at {_clock_time(left_ms)}, by the last controller's metadata"
        for broker_id, one in sorted(self._image.brokers.items()):
            if broker_id in context.brokers:
                continue
            has_left = broker_id in context.left
            how = "shut down by" if has_left else "stopped answering: its ZooKeeper session ended by"
            how = context.how_lost[broker_id] = f"{how} {_clock_time()}"
            log.warning("broker %d is gone: its registration ended before this term", broker_id)
            self._tell("broker-down", one, reason=f"it {how}")

    def _tell(self, kind: str, broker: Broker | BrokerImage, **more: str) -> None:
        self._runtime.tell(kind, id=broker.broker_id, host=broker.host, port=broker.port, **more)

    def _how_lost(self, was: KnownBroker, seen: str) -> str:
        """How a broker was lost, for reasons in logs and events; ``seen``: unless it shut down, or was lost before."""
        context, broker_id = self.context, was.registration.broker.broker_id
        if broker_id in context.leaving:
            seen = f"shut down at {_clock_time()}"
        elif was.is_refused:
            seen = context.how_lost.get(broker_id, seen)
        context.how_lost[broker_id] = seen
        return seen

    def _silence(self, broker_id: int) -> str:
        """How long a broker has been silent; empty if this incarnation was never heard."""
        answered_ms = self._channels.answered_ms(broker_id)
        if answered_ms is None:
            return ""
        silent_s = max(0, self._zookeeper.clock.now_ms() - answered_ms) / 1000
        return f"; it last answered the controller at {_clock_time(answered_ms)}, {silent_s:.1f} s before"

    def refused(self, registration: Registration) -> None:
        """Connections are refused where this broker listened: it counts as dead, unless that was wrong once before."""
        context, broker_id = self.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        if known.is_trusted:
            log.warning("broker %d refuses connections again: waiting for the end of its session", broker_id)
            return
        log.warning("broker %d is dead: connections to %s are refused", broker_id, registration.broker.bind)
        how = self._how_lost(known, f"stopped answering at {_clock_time()}: connections are refused")
        known.is_refused = True
        self._tell("broker-down", registration.broker, reason=f"it {how}")
        self._has_lost_broker = True
        self._state.mark_dirty(context.hosted(broker_id))

    def answered(self, registration: Registration) -> None:
        """This incarnation answers: it lives, and a refusal before was wrong."""
        context, broker_id = self.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        known.is_heard = True
        if known.is_refused:
            log.warning("broker %d answers: it was not dead", broker_id)
            known.is_refused, known.is_trusted = False, True
            self._runtime.tell("broker-up", id=broker_id, reason="it answers again")
            self._channels.send_metadata()
        self._state.mark_dirty(context.hosted(broker_id))
        self.topics.advance_deletions()

    def disconnected(self, registration: Registration) -> None:
        """The connection has ended: whether the broker lives is unknown."""
        known = self.context.known(registration)
        if known is not None:
            known.is_heard = False

    def described(self, registration: Registration, replicas: Iterable[Any]) -> None:
        """The broker has these logs on its disks (`ReplicaFacts`)."""
        context, broker_id = self.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        known.facts = {TopicPartition(one.topic, one.partition_index): one for one in replicas}
        known.lost = {name for name, one in known.facts.items() if not one.is_online}
        self.reassigner.find_stray_logs(broker_id)
        self._state.mark_dirty(context.hosted(broker_id))

    def replicas_failed(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas could not carry out LeaderAndIsr: they count as lost."""
        failed = set(names)
        log.error("broker %d cannot serve %s", broker_id, ", ".join(map(str, sorted(failed)[:10])))
        self.context.brokers[broker_id].lost |= failed
        self._state.mark_dirty(failed)

    def replicas_follow(self, broker_id: int, names: set[TopicPartition]) -> None:
        """These lost replicas follow again, so their logs are there: they are no longer lost."""
        lost = self.context.brokers[broker_id].lost
        there = lost & names
        if there:
            lost -= there
            self._state.mark_dirty(there)
            self._channels.send_metadata(there)

    def replicas_begun(self, names: set[TopicPartition]) -> None:
        """Leaders have cleared the marks of these new partitions (rule R1): read the states.

        Else the next change names an old version: after a leader's death a thousand elections would be refused
        together, read and decided again.
        """
        self._runtime.spawn(self._read_states(names))

    async def _read_states(self, names: set[TopicPartition]) -> None:
        context = self.context
        there = [name for name in names if context.knows(name)]
        try:
            found = await self._state.run(partition_states.read_many, self._zookeeper, there, {})
        except KlogError as error:  # the next change of each reads it
            log.debug("the states of %d new partitions were not read: %s", len(there), error.message)
            return
        if self._state.term is not None and self.context is context:
            context.take_states({name: state for name, state in found.items() if context.knows(name)})

    def replicas_deleted(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas are stopped, and their logs deleted."""
        self.topics.replicas_deleted(broker_id, names)

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


def _clock_time(at_ms: int | None = None) -> str:
    """Wall-clock time, default now. Events have the date."""
    at = datetime.now(UTC) if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%H:%M:%S}"
