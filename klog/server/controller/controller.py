"""The controller's term: what it reads when it is elected, and how it keeps every partition as it should be.

Everything it writes is a multi with a check of ``/controller_epoch`` (rule Z1), so that one who was deposed without
knowing can change nothing. What happens to brokers (they come, go, are refused, lose a disk, shut down) changes what is
known (`Context`), and the partitions that it may concern are *unsettled*: `_settle` asks the pure decision for each,
writes what has to be written, and tells those whom it concerns. A settling that fails is done again, by this controller
or, from what stands in ZooKeeper, by the next.

Acts that somebody asks for (topics, shutdown, elections) take the same lock as the settling: one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from klog.coordination import brokers, group_slots, partition_states, topics
from klog.coordination import controller as election_registry
from klog.coordination.brokers import Registration
from klog.coordination.controller import ControllerTerm
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.zookeeper import Check
from klog.errors import BadVersion, KlogError, NodeExists, NoNode, NotController, SessionLost, StaleBrokerEpoch
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.replication import election, partition_machine
from klog.replication.election import Decision
from klog.replication.partition_machine import PartitionStage
from klog.server.controller.balance import Balance
from klog.server.controller.context import Context
from klog.server.controller.elections import Elections
from klog.server.controller.handovers import Handovers
from klog.server.controller.links import Link
from klog.server.controller.reassigner import Reassigner
from klog.server.controller.registry_watch import RegistryWatch
from klog.server.controller.slots import Slots
from klog.server.controller.topic_acts import TopicActs
from klog.server.dispatch import answer_locally
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)
_T = TypeVar("_T")

SETTLE_TRIES = 10
AGAIN_S = 0.5
"""Before a settling that failed is tried again: ZooKeeper is away."""
MOMENT_S = 0.01
"""A wait is over when its time has passed, not when a timer that is a little early says so."""
TELL_WITHIN_S = 1.0
"""How long an act waits for brokers to know of it; those that do not answer learn of it later."""


class Controller:
    """Event loop only; ZooKeeper is asked in threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._term: ControllerTerm | None = None
        self._links: dict[int, Link] = {}
        self._unsettled: set[TopicPartition] = set()
        self._stirred = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        self._registry_is_doubted = False
        self.acting = asyncio.Lock()
        self.context = Context(broker.config)
        self.topics = TopicActs(self, broker)
        self.elections = Elections(self)
        self.reassigner = Reassigner(self, broker)
        self.slots = Slots(self, broker)
        self._balance = Balance(self, broker)
        self._handovers = Handovers(self, broker)
        self._registry_watch = RegistryWatch(self, broker)

    # --- the term ---------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._term is not None and self._broker.fenced is None

    def require(self) -> ControllerTerm:
        """NotController unless this broker is it."""
        if self._term is None or not self.active:
            raise NotController(f"broker {self._broker.broker_id} is not the controller")
        return self._term

    @property
    def fence(self) -> Sequence[Check]:
        """What every multi of the controller begins with."""
        if self._term is None:
            raise NotController(f"broker {self._broker.broker_id} is not the controller")
        return (self._term.fence,)

    async def begin(self, term: ControllerTerm) -> None:
        """Take over: know what is written, settle what is not right, tell everybody."""
        async with self.acting:
            self._end()
            context = self.context = Context(self._broker.config)
            context.wait_again = self._settle_later
            registered = await self._broker.executors.run(Purpose.ELECTIONS, self._read, term, context)
            self._term = term
            self._broker.authority.begin(term.epoch)
            log.info("controller, epoch %d: %d brokers, %d topics", term.epoch, len(registered), len(context.topics))
            context.registered = {one.broker.broker_id: one for one in registered}
            own = context.registered.get(self._broker.broker_id)
            if own is not None:
                context.heard[self._broker.broker_id] = own.incarnation
                asked = codec.request(
                    ApiKey.DESCRIBE_REPLICAS, 0, controller_epoch=term.epoch, incarnation=own.incarnation
                )
                self.told_facts(own, (await answer_locally(self._broker, asked)).replicas)
            self.slots.start()
            await self.slots.settle()
            await self._settle(set(context.partitions()))
            for one in registered:
                self._link(one)
            self.unsettle(self.reassigner.all_in_progress())
            self._settling = self._broker.spawn(self._keep_settled(term))
            self._balance.start()
            self.reassigner.start()
            self._handovers.start()
            self._registry_watch.start()
            self._broker.tell("controller-elected", controller=term.broker_id, controller_epoch=term.epoch)
        await self.told({self._broker.broker_id}, within_s=None)
        await self.topics.go_on()

    def _read(self, term: ControllerTerm, context: Context) -> list[Registration]:
        """In a thread: all that the registries say."""
        fence = (term.fence,)
        damage: topics.Damage = {}
        found = [topics.give_id(self._zookeeper, topic, fence) for topic in topics.read_all(self._zookeeper, damage)]
        topics.remember_ids(self._zookeeper, found, fence)
        context.topics = {topic.name: topic for topic in found}
        unreadable: dict[TopicPartition, str] = {}
        states = partition_states.read_many(self._zookeeper, list(context.partitions()), unreadable)
        for partition, what in unreadable.items():
            context.topics.pop(partition.topic, None)
            damage[str(partition)] = what
        context.take_states({name: state for name, state in states.items() if name.topic in context.topics})
        names = list(context.topics)
        context.first_epochs = topics.first_leader_epochs(self._zookeeper, names)
        configs = topics.configs(self._zookeeper, names, damage)
        context.overrides = {name: config.settings for name, config in configs.items()}
        marked = set(topics.being_deleted(self._zookeeper)) & set(names)
        context.deleting = topics.deletions_begun(self._zookeeper, sorted(marked))
        if self._broker.config["delete.topic.enable"]:
            for name in marked - context.deleting:
                topics.take_on_deletion(self._zookeeper, name, fence)
            context.deleting = marked
        for what in damage.values():
            log.error("left out: %s", what)
        context.group_slots = group_slots.read_all(self._zookeeper)
        return brokers.live(self._zookeeper, self._watch_registry)

    def end(self) -> None:
        """Be controller no more."""
        if self._term is not None:
            log.info("no longer the controller: epoch %d is over", self._term.epoch)
        self._end()

    def _end(self) -> None:
        self._term = None
        self._balance.stop()
        self.reassigner.stop()
        self.slots.stop()
        self._handovers.stop()
        self._registry_watch.stop()
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._unsettled.clear()

    def deposed(self) -> None:
        """A broker knows a later controller, or a write was fenced."""
        if self._term is not None:
            log.warning("another controller has been elected: epoch %d is over", self._term.epoch)
            self._end()
            self._broker.office.look_again()

    # --- settling ---------------------------------------------------------------------------------------------------

    def unsettle(self, names: Iterable[TopicPartition]) -> None:
        """Something has changed that may concern these partitions."""
        self._unsettled.update(names)
        self._stirred.set()

    def _settle_later(self, name: TopicPartition, after_s: float) -> None:
        self._broker.loop.call_later(after_s + MOMENT_S, self.unsettle, [name])

    async def _keep_settled(self, term: ControllerTerm) -> None:
        while self._term is term:
            await self._stirred.wait()
            await asyncio.sleep(0)  # what happens together is settled together
            async with self.acting:
                self._stirred.clear()
                names, self._unsettled = self._unsettled, set()
                try:
                    if self._registry_is_doubted:
                        await self._read_registry()
                        names |= self._unsettled
                        self._unsettled = set()
                    await self.slots.settle()
                    await self._settle(names)
                    await self.reassigner.advance(names)
                except KlogError as error:
                    if self._term is not term:
                        return
                    log.warning("%d partitions are not settled: %s; trying again", len(names), error.message)
                    self.unsettle(names)
                else:
                    continue
            await self._broker.pause(
                AGAIN_S
            )  # not under the lock: who asks for something meanwhile is to be told why not

    async def _settle(self, names: Iterable[TopicPartition]) -> None:
        """Bring these partitions to where they belong; under the lock. Raises KlogError where ZooKeeper does."""
        await self.change(names, self.context.decide)

    async def change(
        self, names: Iterable[TopicPartition], decide: Callable[[TopicPartition], Decision | None]
    ) -> dict[TopicPartition, Decision]:
        """Write what ``decide`` says of each partition until it has no more to say, and tell; under the lock.

        A state that its leader has changed meanwhile is read again and decided anew.
        """
        done: dict[TopicPartition, Decision] = {}
        context = self.context
        left = {name for name in names if context.knows(name) and name.topic not in context.deleting}
        for _ in range(SETTLE_TRIES):
            decided = {name: found for name in left if (found := decide(name)) is not None}
            if not decided:
                return done
            before = {name: context.states.get(name) for name in decided}
            began_s = time.perf_counter()
            try:
                written = await self.writing(self._write, decided, before)
            except (BadVersion, NodeExists, NoNode):
                await self._broker.executors.run(Purpose.ELECTIONS, self.check_term)
                damage: dict[TopicPartition, str] = {}
                states = await self._broker.executors.run(
                    Purpose.ELECTIONS, partition_states.read_many, self._zookeeper, left, damage
                )
                for name, what in damage.items():
                    log.error("%s is left as it is: %s", name, what)
                context.take_states(states)
                left -= damage.keys()
                continue
            context.take_states(written)
            if self._announce(before, decided):
                self._broker.measures.elections.took((time.perf_counter() - began_s) * 1000)
            done.update(decided)
            left = set(decided)
        raise NotController(f"{len(left)} partitions did not come to rest in {SETTLE_TRIES} tries")

    def _write(
        self, decided: Mapping[TopicPartition, Decision], before: Mapping[TopicPartition, PartitionState | None]
    ) -> dict[TopicPartition, PartitionState]:
        """In a thread."""
        epoch = self.require().epoch
        new = {name: found.applied(None, epoch) for name, found in decided.items() if before[name] is None}
        again = {name: found.applied(before[name], epoch) for name, found in decided.items() if name not in new}
        written: dict[TopicPartition, PartitionState] = {}
        if new:
            written |= partition_states.create_many(self._zookeeper, new, self.fence)
        if again:
            written |= partition_states.write_many(self._zookeeper, again, self.fence)
        return written

    async def writing(self, write: Callable[..., _T], *arguments: Any) -> _T:
        """What an act writes, in a thread. Raises what ``write`` does.

        When it cannot be found out whether it is written (rule Z2: ZooKeeper is away for longer than anybody waits),
        whoever asked is told of the error, and what may stand there must be known all the same, and gone on with: the
        term begins anew, from what is written, as that of a next controller would.
        """
        try:
            return await self._broker.executors.run(Purpose.ELECTIONS, write, *arguments)
        except SessionLost:
            if self._term is not None:
                log.warning("what was written last is not known: all is read again when ZooKeeper answers")
                self._broker.office.begin_again()
            raise

    def check_term(self) -> None:
        """In a thread: NotController once another has been elected."""
        term = self.require()
        now = election_registry.current(self._zookeeper)
        if now is None or now.epoch_version != term.epoch_version or now.session != term.session:
            self._broker.from_thread(self.deposed)
            raise NotController(f"controller epoch {term.epoch} is over")

    def _announce(
        self, before: Mapping[TopicPartition, PartitionState | None], decided: Mapping[TopicPartition, Decision]
    ) -> int:
        """Tell the replicas whom it concerns, and everybody for Metadata; how many have a new leader."""
        led_anew = 0
        states: dict[int, list[TopicPartition]] = defaultdict(list)
        stops: dict[int, dict[TopicPartition, tuple[UUID | None, int, bool]]] = defaultdict(dict)
        for name, found in decided.items():
            old = before[name]
            partition_machine.check(_stage(old), _stage(found), name)
            is_led_anew = old is None or old.leader_epoch != found.leader_epoch
            led_anew += is_led_anew
            stop = (self.context.topics[name.topic].topic_id, found.leader_epoch, False)
            told = (
                self.context.replicas(name)
                if old is None or is_led_anew
                else (found.leader, *{*old.isr} - {*found.isr})
            )
            for one in told:
                if one in self.context.leaving and one != found.leader:
                    stops[one][name] = stop
                elif is_led_anew or one == found.leader:
                    states[one].append(name)
            self._tell_story(name, old, found, is_led_anew=is_led_anew)
        for broker_id, names in states.items():
            self.tell_states(broker_id, names)
        for broker_id, what in stops.items():
            self.tell_stop(broker_id, what)
        self.tell_metadata(decided)
        if led_anew:
            log.info("%d partitions are led anew", led_anew)
        return led_anew

    def _tell_story(
        self, name: TopicPartition, old: PartitionState | None, found: Decision, *, is_led_anew: bool
    ) -> None:
        if found.unclean:
            log.error("%s: unclean election of %d: %s", name, found.leader, found.reason)
        facts: dict[str, Any] = {
            "topic": name.topic,
            "partition": name.partition,
            "leader": found.leader,
            "leader_epoch": found.leader_epoch,
            "isr": list(found.isr),
            "reason": found.reason,
        }
        if found.leader == NO_LEADER:
            log.error("%s has no leader: %s", name, found.reason)
            self._broker.tell("partition-offline", **facts)
        elif is_led_anew:
            log.debug("%s: leader %d, epoch %d: %s", name, found.leader, found.leader_epoch, found.reason)
            kind = "unclean-election" if found.unclean else "leader-elected"
            self._broker.tell(kind, **facts, old_leader=NO_LEADER if old is None else old.leader)
        else:
            self._broker.tell("isr-changed", **facts, old_isr=[] if old is None else list(old.isr))

    # --- telling ----------------------------------------------------------------------------------------------------

    def tell_metadata(
        self, names: Iterable[TopicPartition] = (), topics_whole: Iterable[str] = (), gone: Mapping[str, Any] = {}
    ) -> None:
        """Everybody's Metadata: of these partitions, of whole topics, of topics that are gone; the brokers always."""
        changed: dict[str, set[int] | None] = defaultdict(set)
        for name in names:
            numbers = changed[name.topic]
            if numbers is not None:
                numbers.add(name.partition)
        for topic in topics_whole:
            changed[topic] = None
        for link in self._links.values():
            link.tell_metadata(changed, gone)

    def tell_stop(self, broker_id: int, stops: Mapping[TopicPartition, tuple[UUID | None, int, bool]]) -> None:
        """One broker's replicas stop; one that is away is told by whoever goes on with the act when it is back."""
        if broker_id in self._links:
            self._links[broker_id].tell_stop(stops)

    def tell_states(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        if broker_id in self._links:
            self._links[broker_id].tell_states(names)

    def tell_slots(self) -> None:
        """Everybody: who coordinates which groups."""
        for link in self._links.values():
            link.tell_slots()

    async def told(self, broker_ids: Iterable[int] | None = None, within_s: float | None = TELL_WITHIN_S) -> bool:
        """Wait until these brokers (all that live) know what is to be known; False when the time was too short."""
        wanted = self.context.live if broker_ids is None else broker_ids
        waiting = [asyncio.ensure_future(self._links[one].quiet()) for one in wanted if one in self._links]
        if not waiting:
            return True
        _, late = await asyncio.wait(waiting, timeout=within_s)
        for one in late:
            one.cancel()
        return not late

    def _link(self, registration: Registration) -> None:
        broker_id = registration.broker.broker_id
        old = self._links.pop(broker_id, None)
        if old is not None:
            old.close()
        term = self.require()
        link = self._links[broker_id] = Link(self, registration, term.epoch, broker=self._broker)
        link.tell_all()
        link.start()

    # --- who lives --------------------------------------------------------------------------------------------------

    def _watch_registry(self, _: object) -> None:
        """In kazoo's thread."""
        self._broker.from_thread(self.registry_doubted)

    def registry_doubted(self) -> None:
        """Who is registered has to be read again."""
        self._registry_is_doubted = True
        self._stirred.set()

    async def _read_registry(self) -> None:
        self._registry_is_doubted = False
        try:
            found = await self._broker.executors.run(
                Purpose.ELECTIONS, brokers.live, self._zookeeper, self._watch_registry
            )
        except KlogError:
            self._registry_is_doubted = True
            raise
        context = self.context
        now = {one.broker.broker_id: one for one in found}
        before, context.registered = context.registered, now
        for broker_id in before.keys() | now.keys():
            was, new = before.get(broker_id), now.get(broker_id)
            if was is not None and new is not None and was.incarnation == new.incarnation:
                continue
            for known in (context.refused, context.heard, context.leaving, context.facts, context.lost):
                known.pop(broker_id, None)
            if new is None:
                self._links.pop(broker_id).close()
                log.warning("broker %d is gone: its registration has ended", broker_id)
                self._broker.tell("broker-down", id=broker_id, reason="its session has ended")
            else:
                log.info("broker %d is there, incarnation %d", broker_id, new.incarnation)
                self._broker.tell("broker-up", id=broker_id, host=new.broker.host, port=new.broker.port)
                self._link(new)
            self.unsettle(context.hosted(broker_id))
        self.tell_metadata()

    def refused(self, registration: Registration) -> None:
        """Nobody listens where this broker did: it counts as dead, unless that was said of it falsely before."""
        context, broker_id = self.context, registration.broker.broker_id
        if not context.is_registered(registration):
            return
        if registration.incarnation in context.trusted:
            log.warning("broker %d refuses connections again: its session decides", broker_id)
            return
        log.warning("broker %d is dead: nobody listens at %s", broker_id, registration.broker.bind)
        context.refused[broker_id] = registration.incarnation
        self._broker.tell("broker-down", id=broker_id, reason="nobody listens where it did")
        self.unsettle(context.hosted(broker_id))
        self.tell_metadata()

    def answered(self, registration: Registration) -> None:
        context, broker_id = self.context, registration.broker.broker_id
        context.heard[broker_id] = registration.incarnation
        if context.refused.get(broker_id) == registration.incarnation:
            log.warning("broker %d answers: it was not dead", broker_id)
            del context.refused[broker_id]
            context.trusted.add(registration.incarnation)
            self._broker.tell("broker-up", id=broker_id, reason="it answers again")
            self.tell_metadata()
        self.unsettle(context.hosted(broker_id))
        self._broker.spawn(self.topics.go_on())

    def silent(self, registration: Registration) -> None:
        """The connection has ended: that it lives is not known any more."""
        if self.context.heard.get(registration.broker.broker_id) == registration.incarnation:
            del self.context.heard[registration.broker.broker_id]

    def told_facts(self, registration: Registration, facts: Iterable[Any]) -> None:
        context, broker_id = self.context, registration.broker.broker_id
        if not context.is_registered(registration):
            return
        found = {TopicPartition(one.topic, one.partition_index): one for one in facts}
        context.facts[broker_id] = found
        context.lost[broker_id] = {name for name, one in found.items() if not one.is_online}
        self.reassigner.sweep(broker_id)
        self.unsettle(context.hosted(broker_id))

    def not_obeyed(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        failed = set(names)
        log.error("broker %d cannot serve %s", broker_id, ", ".join(map(str, sorted(failed)[:10])))
        self.context.lost.setdefault(broker_id, set()).update(failed)
        self.unsettle(failed)

    def follows(self, broker_id: int, names: set[TopicPartition]) -> None:
        """A replica that could not lead and follows now is lost no more: its log is there, or there again."""
        there = self.context.lost.get(broker_id, set()) & names
        if there:
            self.context.lost[broker_id] -= there
            self.unsettle(there)
            self.tell_metadata(there)

    def stopped(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        self.topics.stopped(broker_id, names)

    # --- what brokers report ----------------------------------------------------------------------------------------

    async def isr_reported(self, names: Iterable[TopicPartition]) -> None:
        """Leaders have changed these states: know it, and let everybody know."""
        there = [name for name in names if self.context.knows(name)]
        found = await self._broker.executors.run(Purpose.ELECTIONS, partition_states.read_many, self._zookeeper, there)
        if self._term is not None:
            self.context.take_states(found)
            self.tell_metadata(there)
            for name, state in ((name, state) for name, state in found.items() if self.context.knows(name)):
                # Who is out may wait to be: a log that is gone is not made anew while the ISR counts it (rule R1).
                for one in set(self.context.replicas(name)) - set(() if state is None else state.isr):
                    self.tell_states(one, [name])
            self.unsettle(there)

    def replicas_lost(self, broker_id: int, incarnation: int, names: Iterable[TopicPartition]) -> None:
        """A disk of a broker is lost (rule L5): its replicas count as dead."""
        self._check_incarnation(broker_id, incarnation)
        gone = set(names)
        log.error("broker %d has lost the disk of %d replicas", broker_id, len(gone))
        self.context.lost.setdefault(broker_id, set()).update(gone)
        self._broker.tell("replicas-offline", id=broker_id, partitions=[str(name) for name in sorted(gone)[:100]])
        self.unsettle(gone)

    async def give_up_leadership(
        self, broker_id: int, incarnation: int, names: Iterable[TopicPartition], why: str = "gives it up"
    ) -> None:
        """A leader cannot flush in time (rule R4), or is cut off: another in-sync replica leads, if there is one."""
        self._check_incarnation(broker_id, incarnation)

        def decide(name: TopicPartition) -> Decision | None:
            state = self.context.states.get(name)
            if state is None or state.leader != broker_id:
                return None
            found = election.leaving(state, self.context.replicas(name), broker_id, self.context.situation(name))
            return replace(found, reason=f"broker {broker_id} {why}") if isinstance(found, Decision) else None

        async with self.acting:
            self.require()
            await self.change(names, decide)

    async def leave(self, broker_id: int, incarnation: int) -> int:
        """Controlled shutdown: this broker leads nothing and coordinates nothing any more, as far as others can.

        How many partitions it leads still.
        """
        async with self.acting:
            self.require()
            self._check_incarnation(broker_id, incarnation)
            log.info("broker %d is shutting down", broker_id)
            self.context.leaving[broker_id] = incarnation
            hosted = self.context.hosted(broker_id)
            await self.slots.settle()
            await self._settle(hosted)
        await self.told()
        return sum(self.context.states[name].leader == broker_id for name in hosted if name in self.context.states)

    def _check_incarnation(self, broker_id: int, incarnation: int) -> None:
        found = self.context.registered.get(broker_id)
        if found is None or found.incarnation != incarnation:
            self.registry_doubted()
            raise StaleBrokerEpoch(f"incarnation {incarnation} of broker {broker_id} is not the one that is registered")


def _stage(state: PartitionState | Decision | None) -> PartitionStage:
    if state is None:
        return PartitionStage.NEW
    return PartitionStage.OFFLINE if state.leader == NO_LEADER else PartitionStage.ONLINE
