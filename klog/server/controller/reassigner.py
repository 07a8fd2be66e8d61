"""Carries out reassignments: begins them, by Kafka's requests or 0.8's queue, and takes each step when it is due.

`klog.replication.reassignment_steps` decides the steps; this module writes and sends them. `advance` is called with all
reconciled partitions, so each report of an in-sync set, each broker that comes or goes and each new controller leads to
the next step of the partitions concerned.

A broker that was dead when its replica was removed still has the log. When it is back and describes its disks,
`Context.find_stray_logs` notes it. It is deleted if it belongs to this very topic, the partition has a live leader, and
the broker has no replica of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from klog.coordination import reassignments, topics
from klog.coordination.acts import Act, Actor, new_act
from klog.coordination.partition_states import NO_LEADER
from klog.coordination.reassignments import Queue
from klog.coordination.zookeeper import Watch, ZooKeeper
from klog.errors import (
    BadVersion,
    InvalidRequest,
    KlogError,
    NodeExists,
    NoNode,
    NotController,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.replication import reassignment_steps
from klog.replication.isr import check_flush_rule
from klog.replication.leader_election import Decision
from klog.replication.reassignment_steps import Removal, ReplicaAssignment, Stalled
from klog.server.controller.controller_part import ControllerPart, Tools
from klog.server.controller.controller_state import AGAIN_S
from klog.server.controller.elections import Elections
from klog.server.controller.requests import Stop

log = logging.getLogger(__name__)

QUEUE = Actor("reassign_partitions", "zookeeper")
ELECTION_QUEUE = Actor("preferred_replica_election", "zookeeper")
"""The actors of 0.8's queues: ZooKeeper does not tell which program wrote them."""

Target = Sequence[int] | None
"""Broker ids, the preferred leader first; None cancels."""


class Underway(NamedTuple):
    """A partition under reassignment. `reason`: why it is stalled, "" while it is copied."""

    name: TopicPartition
    entry: ReplicaAssignment
    leader: int
    missing: tuple[int, ...]
    reason: str


class Reassigner(ControllerPart):
    def __init__(self, tools: Tools, elections: Elections) -> None:
        super().__init__(tools)
        self._elections = elections
        self._queue_changed = asyncio.Event()
        self._stalled: dict[TopicPartition, str] = {}
        """The reason of each stalled partition, as last logged."""

    def start(self) -> None:
        """The term has begun: watch the queues."""
        self._stalled.clear()
        self._queue_changed.set()
        self._state.keep_up(
            self._queue_changed, self._take_queues, "cannot read the queues of reassignments and elections"
        )

    # --- requests ---------------------------------------------------------------------------------------------------

    async def alter(
        self, wanted: Mapping[TopicPartition, Target], throttle: int = reassignment_steps.NO_THROTTLE, *, actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """Begin, replace and cancel reassignments; partition -> error.

        `throttle`: bytes per second that each broker may copy for these, 0: no limit. Raises NotController.
        """
        state = self._state
        async with state.lock:
            state.require()
            outcome = await self._alter(wanted, throttle, actor)
            await self.advance(wanted)
        await self._channels.acknowledged(state.context.live)
        return outcome

    async def _alter(
        self, wanted: Mapping[TopicPartition, Target], throttle: int, actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """Under the lock."""
        outcome: dict[TopicPartition, KlogError | None] = {}
        entries: dict[TopicPartition, ReplicaAssignment] = {}
        for name, target in wanted.items():
            try:
                if throttle < 0:
                    raise InvalidRequest(f"the throttle must be 0 or more bytes per second, got {throttle}")
                entries[name] = self._next_entry(name, target, throttle)
                outcome[name] = None
            except KlogError as error:
                outcome[name] = error.bare()
        before = {name: self._entry(name) for name in entries}
        changed = {name: entry for name, entry in entries.items() if entry != before[name]}
        async for names, failure in self._write(changed, actor):
            outcome |= dict.fromkeys(names, failure)
            for name in names if failure is None else ():
                self._begun(name, before[name], changed[name])
        # A later request overrides an entry in 0.8's queue.
        await self._unqueue([name for name, error in outcome.items() if error is None], wanted)
        return outcome

    def _next_entry(self, name: TopicPartition, target: Target, throttle: int) -> ReplicaAssignment:
        context = self._state.context
        if not context.knows(name) or name.topic in context.deleting:
            raise UnknownTopicOrPartition(f"partition {name} does not exist")
        entry = self._entry(name)
        if target is None:
            return reassignment_steps.cancel(entry)
        reassignment_steps.check_target(entry, target, context.live)
        if len(target) > 1:
            check_flush_rule(context.log_config(name.topic), context.config.integer("replica.lag.time.max.ms"))
        return reassignment_steps.begin(entry, target, throttle)

    def _begun(self, name: TopicPartition, before: ReplicaAssignment, entry: ReplicaAssignment) -> None:
        """After the write: send it to the brokers concerned."""
        if entry.target == before.target and entry.in_progress:
            log.info("%s: its reassignment has a throttle of %d bytes per second", name, entry.throttle)
        else:
            log.info("%s: reassigned from %s to %s", name, list(before.replicas), list(entry.target))
            kind = "reassignment-cancelled" if entry.is_cancelled else "reassignment-begun"
            self._runtime.tell(
                kind if entry.in_progress else "reassignment-done",
                topic=name.topic,
                partition=name.partition,
                replicas=list(before.replicas),
                target=list(entry.target),
                throttle=entry.throttle,
            )
        self._partitions.send([name])
        self._channels.send_metadata([name])

    # --- in progress ------------------------------------------------------------------------------------------------

    def underway(self) -> list[Underway]:
        """Every partition under reassignment, in order."""
        context = self._state.context
        found = []
        for name in self.all_in_progress():
            entry, state, step = self._entry(name), context.states.get(name), self._next_step(name)
            isr = () if state is None else state.isr
            missing = tuple(one for one in entry.target if one not in isr)
            leader = NO_LEADER if state is None else state.leader
            found.append(Underway(name, entry, leader, missing, step.reason if isinstance(step, Stalled) else ""))
        return sorted(found)

    def all_in_progress(self) -> list[TopicPartition]:
        """The partitions that are being reassigned."""
        context = self._state.context
        return [
            TopicPartition(topic.name, number)
            for topic in context.topics.values()
            if topic.name not in context.deleting
            for number in reassignment_steps.in_progress(topic)
        ]

    def _in_progress(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        context = self._state.context
        return [
            name
            for name in names
            if context.knows(name)
            and name.topic not in context.deleting
            and (
                name.partition in context.topics[name.topic].adding
                or name.partition in context.topics[name.topic].removing
            )
        ]

    def _entry(self, name: TopicPartition) -> ReplicaAssignment:
        return reassignment_steps.entry_of(self._state.context.topics[name.topic], name.partition)

    async def advance(self, names: Iterable[TopicPartition]) -> None:
        """Take the steps that are due for these partitions, under the lock.

        Raises KlogError from ZooKeeper; the next reconciliation calls it again.
        """
        names = list(names)
        self._delete_stray_logs(names)
        todo = self._in_progress(names)
        while todo:
            steps = {name: self._next_step(name) for name in todo}
            self._log_stalled(steps)
            removals = {name: step for name, step in steps.items() if isinstance(step, Removal)}
            if not removals:
                return
            todo = await self._remove(removals)

    def _next_step(self, name: TopicPartition) -> reassignment_steps.Step | None:
        context = self._state.context
        return reassignment_steps.next_step(self._entry(name), context.states.get(name), context.election_input(name))

    def _log_stalled(self, steps: Mapping[TopicPartition, reassignment_steps.Step | None]) -> None:
        """Log each reason once."""
        for name, step in steps.items():
            reason = step.reason if isinstance(step, Stalled) else ""
            if self._stalled.get(name, "") == reason:
                continue
            self._stalled[name] = reason
            if reason:
                log.warning("%s: its reassignment is stalled: %s", name, reason)
                self._runtime.tell("reassignment-stalled", topic=name.topic, partition=name.partition, reason=reason)
            else:
                log.info("%s: its reassignment continues", name)

    async def _remove(self, removals: Mapping[TopicPartition, Removal]) -> list[TopicPartition]:
        """Remove replicas. Returns the partitions with more to do."""
        context = self._state.context
        before = {name: self._entry(name) for name in removals}
        planned = {name: step.decision for name, step in removals.items()}

        def decide(name: TopicPartition) -> Decision | None:
            """As planned, or planned again when the leader has changed the state meanwhile; None once it is written."""
            state, decision = context.states.get(name), planned.get(name)
            if decision is None or state is None:
                return None
            if (state.leader_epoch, state.isr) == (decision.leader_epoch, decision.isr):
                return None
            step = reassignment_steps.next_step(before[name], state, context.election_input(name))
            if not isinstance(step, Removal):
                del planned[name]
                return None
            planned[name] = step.decision
            return step.decision

        # From here on brokers are sent only the replicas that stay: a leader that gets the new epoch with the removed
        # ones would add them to its ISR again.
        self._assume({name: step.entry for name, step in removals.items()})
        done: dict[TopicPartition, ReplicaAssignment] = {}
        try:
            await self._partitions.change(removals, decide)
            async for names, failure in self._write({name: removals[name].entry for name in planned}):
                if isinstance(failure, NotController):
                    raise failure.bare()
                if failure is None:
                    done |= {name: removals[name].entry for name in names}
                else:
                    log.warning("the reassignment of %s is not written: %s; trying again", names[0], failure.message)
                    self._runtime.loop.call_later(AGAIN_S, self._state.mark_dirty, names)
        except BaseException:
            self._assume(before)
            raise
        self._assume({name: before[name] for name in removals.keys() - done.keys()})
        for name in done:
            self._removed(name, removals[name], before[name])
        self._channels.send_metadata(removals)
        over = [name for name, entry in done.items() if not entry.in_progress]
        await self._unqueue(over)
        return [name for name, entry in done.items() if entry.in_progress]

    def _removed(self, name: TopicPartition, step: Removal, before: ReplicaAssignment) -> None:
        context = self._state.context
        state, topic = context.states[name], context.topics[name.topic]
        for broker_id in step.gone:
            self._channels.send_stop(broker_id, {name: Stop(topic.topic_id, state.leader_epoch, delete=True)})
        if step.entry.in_progress:
            return
        self._stalled.pop(name, None)
        log.info("%s: reassigned, its replicas are on %s", name, list(step.entry.replicas))
        self._runtime.tell(
            "reassignment-done",
            topic=name.topic,
            partition=name.partition,
            replicas=list(step.entry.replicas),
            origin=list(before.origin),
        )

    def _assume(self, entries: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Change the known assignment without writing it."""
        known = self._state.context.topics
        for name, entry in entries.items():
            if name.topic in known:
                known[name.topic] = reassignment_steps.with_entry(known[name.topic], name.partition, entry)

    async def _write(
        self, entries: Mapping[TopicPartition, ReplicaAssignment], actor: Actor | None = None
    ) -> AsyncIterator[tuple[list[TopicPartition], KlogError | None]]:
        """Write topic by topic: the partitions of each, and its error. With an actor it is an act; without, a step of a
        reassignment."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = defaultdict(dict)
        for name, entry in entries.items():
            by_topic[name.topic][name.partition] = entry
        for topic, changed in by_topic.items():
            failure: KlogError | None = None
            try:
                written = await self._state.write(self._write_topic, topic, changed, actor)
                self._state.context.topics[topic] = written
            except KlogError as error:
                failure = error.bare()
            yield [TopicPartition(topic, number) for number in changed], failure

    def _write_topic(self, topic: str, entries: Mapping[int, ReplicaAssignment], actor: Actor | None) -> topics.Topic:
        """In a thread."""

        def change(there: topics.Topic) -> topics.Topic:
            for number, entry in entries.items():
                there = reassignment_steps.with_entry(there, number, entry)
            return there

        def act_of(there: topics.Topic, changed: topics.Topic) -> Act | None:
            return None if actor is None else _act(there, changed, entries, actor)

        return self._state.rewrite(topic, change, act_of)

    # --- logs that removed replicas have left behind ----------------------------------------------------------------

    def _delete_stray_logs(self, names: Iterable[TopicPartition]) -> None:
        """Delete those of partitions with a live leader; the others wait until they have one."""
        context = self._state.context
        for name in context.stray.keys() & set(names):
            state = context.states.get(name)
            if state is None or not context.is_live(state.leader):
                continue
            for broker_id in context.stray.pop(name):
                if context.is_stray(broker_id, name) and broker_id not in state.isr:
                    log.info("deleting the log of %s on broker %d, which was reassigned from it", name, broker_id)
                    stop = Stop(context.topics[name.topic].topic_id, state.leader_epoch, delete=True)
                    self._channels.send_stop(broker_id, {name: stop})

    # --- 0.8's queues -----------------------------------------------------------------------------------------------

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self._queue_changed.set)

    async def _take_queues(self) -> None:
        await self._take(reassignments.reassignments, self._take_reassignments)
        await self._take(reassignments.elections, self._take_elections)

    async def _take(
        self, read: Callable[[ZooKeeper, Watch], Queue | None], take: Callable[[Queue], Awaitable[None]]
    ) -> None:
        queue = await self._state.run(read, self._zookeeper, self._watch)
        if queue is None:
            return
        for nonsense in queue.nonsense:
            log.error("ignored: %s", nonsense)
        async with self._state.lock:
            self._state.require()
            await take(queue)

    async def _take_reassignments(self, queue: Queue) -> None:
        """Under the lock. Reassignments to the queue's targets that are in progress continue."""
        context = self._state.context
        begun = {
            name: target
            for name, target in queue.wanted.items()
            if not context.knows(name) or self._entry(name).target != target
        }
        outcome = await self._alter(begun, reassignment_steps.NO_THROTTLE, QUEUE) if begun else {}
        for name, error in outcome.items():
            if error is not None:
                log.error("cannot reassign %s as 0.8's queue in ZooKeeper asks: %s", name, error.message)
        await self.advance(begun)
        over = [name for name in queue.wanted if not self._in_progress([name])]
        if over or queue.nonsense:
            await self._state.run(reassignments.finish_reassignments, self._zookeeper, over, self._state.fence)

    async def _take_elections(self, queue: Queue) -> None:
        """Under the lock."""
        outcome = await self._elections.elect_preferred_locked(list(queue.wanted) or None, ELECTION_QUEUE)
        for name, error in outcome.items():
            if error is not None:
                log.info("%s: cannot elect its preferred leader: %s", name, error.message)
        await self._state.run(reassignments.finish_elections, self._zookeeper, queue, self._state.fence)

    async def _unqueue(
        self, names: Sequence[TopicPartition], wanted: Mapping[TopicPartition, Target] | None = None
    ) -> None:
        """Remove these from 0.8's queue: they are done, or (with `wanted`) the queue has another target."""
        if not names:
            return

        def unqueue() -> None:
            queue = reassignments.reassignments(self._zookeeper)
            if queue is None:
                return
            gone = [one for one in names if wanted is None or queue.wanted.get(one) != tuple(wanted[one] or ())]
            reassignments.finish_reassignments(self._zookeeper, gone, self._state.fence)

        try:
            await self._state.run(unqueue)
        except (BadVersion, NodeExists, NoNode):
            await self._state.run(self._state.check_term)


def _act(there: topics.Topic, changed: topics.Topic, numbers: Iterable[int], actor: Actor) -> Act | None:
    """The act of a topic: partition -> replicas at the end of the reassignment. None if only throttles change."""
    before = {str(number): list(reassignment_steps.entry_of(there, number).target) for number in numbers}
    after = {str(number): list(reassignment_steps.entry_of(changed, number).target) for number in numbers}
    if before == after:
        return None
    return new_act("reassignment", actor, topic=there.name, before=before, after=after)
