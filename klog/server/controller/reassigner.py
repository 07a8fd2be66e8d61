"""Reassignments, done: what is asked for, over Kafka's requests or 0.8's queue, and the steps of what is under way.

The steps are decided in `klog.server.controller.reassignment`; here they are written and told. `advance` is called with
whatever partitions have been settled, so every report of an ISR, every broker that comes or goes and every take-over
asks for the next step of what it concerns.

What a replica leaves behind on a broker that was dead when it was removed is deleted when that broker is back
(`sweep`): a log under the topic's UUID, of a partition that others lead and that the broker has no part in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.coordination import reassignments, topics
from klog.coordination.partition_states import NO_LEADER
from klog.coordination.reassignments import Queue
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
from klog.replication.election import Decision
from klog.replication.isr import check_flush_rule
from klog.server.controller import reassignment
from klog.server.controller.reassignment import Entry, Shed, Stalled
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Before what could not be read or written is tried again: ZooKeeper is away."""
WRITE_TRIES = 10

Target = Sequence[int] | None
"""Broker ids, the preferred leader first; None: back to where it was."""


class Underway(NamedTuple):
    """One partition that is being reassigned. `reason` says what it stands still for, "" while it is copied."""

    name: TopicPartition
    entry: Entry
    leader: int
    missing: tuple[int, ...]
    reason: str


class Reassigner:
    """Event loop only; ZooKeeper is asked in threads."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._task: asyncio.Task[None] | None = None
        self._queue_changed = asyncio.Event()
        self._stalled: dict[TopicPartition, str] = {}
        """Why each that stands still does so, as it was last said."""
        self._left_behind: dict[TopicPartition, set[int]] = defaultdict(set)
        """Brokers that have a log of a partition that they have no part in any more."""

    def start(self) -> None:
        """The term has begun: heed the queues."""
        self._stalled.clear()
        self._left_behind.clear()
        self._queue_changed.set()
        self._task = self._broker.spawn(self._heed_queues())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- what is asked for ------------------------------------------------------------------------------------------

    async def alter(
        self, wanted: Mapping[TopicPartition, Target], throttle: int = reassignment.NO_THROTTLE
    ) -> dict[TopicPartition, KlogError | None]:
        """Begin, replace and cancel reassignments; partition -> why not.

        `throttle`: bytes a second that each broker may take in for these, 0 without. NotController is raised.
        """
        controller = self._controller
        async with controller.acting:
            controller.require()
            outcome = await self._alter(wanted, throttle)
            await self.advance(wanted)
        await controller.told()
        return outcome

    async def _alter(
        self, wanted: Mapping[TopicPartition, Target], throttle: int
    ) -> dict[TopicPartition, KlogError | None]:
        """Under the lock."""
        outcome: dict[TopicPartition, KlogError | None] = {}
        entries: dict[TopicPartition, Entry] = {}
        for name, target in wanted.items():
            try:
                if throttle < 0:
                    raise InvalidRequest(f"a throttle of {throttle} bytes a second; expected 0 or more")
                entries[name] = self._next_entry(name, target, throttle)
                outcome[name] = None
            except KlogError as error:
                outcome[name] = error.bare()
        by_topic: dict[str, dict[int, Entry]] = defaultdict(dict)
        for name, entry in entries.items():
            if entry != self._entry(name):
                by_topic[name.topic][name.partition] = entry
        for topic, changed in by_topic.items():
            before = self._controller.context.topics[topic]
            try:
                await self._write(topic, changed)
            except KlogError as error:
                outcome |= {TopicPartition(topic, number): error.bare() for number in changed}
                continue
            for number, entry in changed.items():
                self._begun(TopicPartition(topic, number), reassignment.entry_of(before, number), entry)
        # A wish in 0.8's queue is overtaken by one that came otherwise.
        await self._unqueue([name for name, error in outcome.items() if error is None], wanted)
        return outcome

    def _next_entry(self, name: TopicPartition, target: Target, throttle: int) -> Entry:
        context = self._controller.context
        if not context.knows(name) or name.topic in context.deleting:
            raise UnknownTopicOrPartition(f"there is no partition {name}")
        entry = self._entry(name)
        if target is None:
            return reassignment.cancel(entry)
        reassignment.check_target(entry, target, context.live)
        if len(target) > 1:
            check_flush_rule(context.log_config(name.topic), context.config.integer("replica.lag.time.max.ms"))
        return reassignment.begin(entry, target, throttle)

    def _begun(self, name: TopicPartition, before: Entry, entry: Entry) -> None:
        """It is written: tell those whom it concerns."""
        if entry.target == before.target and entry.in_progress:
            log.info("%s: its reassignment has a throttle of %d bytes a second", name, entry.throttle)
        else:
            log.info("%s: reassigned from %s to %s", name, list(before.replicas), list(entry.target))
            kind = "reassignment-cancelled" if entry.is_cancelled else "reassignment-begun"
            self._broker.tell(
                kind if entry.in_progress else "reassignment-done",
                topic=name.topic,
                partition=name.partition,
                replicas=list(before.replicas),
                target=list(entry.target),
                throttle=entry.throttle,
            )
        for broker_id in entry.replicas:
            self._controller.tell_states(broker_id, [name])
        self._controller.tell_metadata([name])

    # --- what is under way ------------------------------------------------------------------------------------------

    def underway(self) -> list[Underway]:
        """Every partition that is being reassigned, in order."""
        context = self._controller.context
        found = []
        for name in self.all_in_progress():
            entry, state = self._entry(name), context.states.get(name)
            step = reassignment.next_step(entry, state, context.situation(name))
            isr = () if state is None else state.isr
            missing = tuple(one for one in entry.target if one not in isr)
            leader = NO_LEADER if state is None else state.leader
            found.append(Underway(name, entry, leader, missing, step.reason if isinstance(step, Stalled) else ""))
        return sorted(found)

    def all_in_progress(self) -> list[TopicPartition]:
        """The partitions that are being reassigned."""
        context = self._controller.context
        return [
            TopicPartition(topic.name, number)
            for topic in context.topics.values()
            if topic.name not in context.deleting
            for number in reassignment.in_progress(topic)
        ]

    def _in_progress(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        context = self._controller.context
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

    def _entry(self, name: TopicPartition) -> Entry:
        return reassignment.entry_of(self._controller.context.topics[name.topic], name.partition)

    async def advance(self, names: Iterable[TopicPartition]) -> None:
        """Do what is due for those of these partitions that are being reassigned; under the controller's lock.

        Raises KlogError where ZooKeeper does; whoever settles again asks again.
        """
        names = list(names)
        self._delete_left_behind(names)
        todo = self._in_progress(names)
        while todo:
            steps = {name: self._next_step(name) for name in todo}
            self._say_stalled(steps)
            sheds = {name: step for name, step in steps.items() if isinstance(step, Shed)}
            if not sheds:
                return
            todo = await self._shed(sheds)

    def _next_step(self, name: TopicPartition) -> reassignment.Step | None:
        context = self._controller.context
        return reassignment.next_step(self._entry(name), context.states.get(name), context.situation(name))

    def _say_stalled(self, steps: Mapping[TopicPartition, reassignment.Step | None]) -> None:
        """Once for each reason."""
        for name, step in steps.items():
            reason = step.reason if isinstance(step, Stalled) else ""
            if self._stalled.get(name, "") == reason:
                continue
            self._stalled[name] = reason
            if reason:
                log.warning("%s: its reassignment stands still: %s", name, reason)
                self._broker.tell("reassignment-stalled", topic=name.topic, partition=name.partition, reason=reason)
            else:
                log.info("%s: its reassignment goes on", name)

    async def _shed(self, sheds: Mapping[TopicPartition, Shed]) -> list[TopicPartition]:
        """Let replicas go; the partitions that have more to do."""
        controller, context = self._controller, self._controller.context
        before = {name: self._entry(name) for name in sheds}
        planned = {name: step.decision for name, step in sheds.items()}

        def decide(name: TopicPartition) -> Decision | None:
            """As planned; anew when the leader has changed the state meanwhile; nothing more once it is written."""
            state, decision = context.states.get(name), planned.get(name)
            if decision is None or state is None:
                return None
            if (state.leader_epoch, state.isr) == (decision.leader_epoch, decision.isr):
                return None
            step = reassignment.next_step(before[name], state, context.situation(name))
            if not isinstance(step, Shed):
                del planned[name]
                return None
            planned[name] = step.decision
            return step.decision

        # From here on brokers are told of the replicas that stay and of no other: a leader must not hear of the new
        # epoch with those that go, and take them back in.
        self._show({name: step.entry for name, step in sheds.items()})
        done: dict[TopicPartition, Entry] = {}
        try:
            await controller.change(sheds, decide)
            done = await self._write_all({name: sheds[name].entry for name in planned})
        except BaseException:
            self._show(before)
            raise
        self._show({name: before[name] for name in sheds.keys() - done.keys()})
        for name in done:
            self._let_go(name, sheds[name], before[name])
        controller.tell_metadata(sheds)
        over = [name for name, entry in done.items() if not entry.in_progress]
        await self._unqueue(over)
        return [name for name, entry in done.items() if entry.in_progress]

    async def _write_all(self, entries: Mapping[TopicPartition, Entry]) -> dict[TopicPartition, Entry]:
        """Those that are written. A topic that cannot be written now keeps no other from it, and is tried again."""
        by_topic: dict[str, dict[int, Entry]] = defaultdict(dict)
        for name, entry in entries.items():
            by_topic[name.topic][name.partition] = entry
        written: dict[TopicPartition, Entry] = {}
        for topic, changed in by_topic.items():
            names = [TopicPartition(topic, number) for number in changed]
            try:
                await self._write(topic, changed)
            except NotController:
                raise
            except KlogError as error:
                log.warning("the reassignment of %s is not written: %s; trying again", names[0], error.message)
                self._broker.loop.call_later(AGAIN_S, self._controller.unsettle, names)
            else:
                written |= {name: entries[name] for name in names}
        return written

    def _let_go(self, name: TopicPartition, step: Shed, before: Entry) -> None:
        context = self._controller.context
        state, topic = context.states[name], context.topics[name.topic]
        for broker_id in step.gone:
            self._controller.tell_stop(broker_id, {name: (topic.topic_id, state.leader_epoch, True)})
        if step.entry.in_progress:
            return
        self._stalled.pop(name, None)
        log.info("%s: is on %s now", name, list(step.entry.replicas))
        self._broker.tell(
            "reassignment-done",
            topic=name.topic,
            partition=name.partition,
            replicas=list(step.entry.replicas),
            origin=list(before.origin),
        )

    def _show(self, entries: Mapping[TopicPartition, Entry]) -> None:
        """What is known, without writing it."""
        known = self._controller.context.topics
        for name, entry in entries.items():
            if name.topic in known:
                known[name.topic] = reassignment.with_entry(known[name.topic], name.partition, entry)

    async def _write(self, topic: str, entries: Mapping[int, Entry]) -> None:
        self._controller.context.topics[topic] = await self._controller.writing(self._write_entries, topic, entries)

    def _write_entries(self, topic: str, entries: Mapping[int, Entry]) -> topics.Topic:
        """In a thread. What else has changed in the topic's node (a tool has added partitions) is kept."""
        for _ in range(WRITE_TRIES):
            there = topics.find(self._zookeeper, topic)
            if there is None:
                raise UnknownTopicOrPartition(f"there is no topic {topic!r}")
            changed = there
            for number, entry in entries.items():
                changed = reassignment.with_entry(changed, number, entry)
            if changed == there:
                return there
            try:
                return topics.replace_assignment(self._zookeeper, changed, self._controller.fence)
            except BadVersion:
                self._controller.check_term()
        raise BadVersion(f"topic {topic}: others keep changing its node")

    # --- what is left of those that have gone -----------------------------------------------------------------------

    def sweep(self, broker_id: int) -> None:
        """A broker has said what is on its disks: what it has no part in any more is to be deleted."""
        context = self._controller.context
        for brokers in self._left_behind.values():
            brokers.discard(broker_id)
        names = [name for name in context.facts.get(broker_id, {}) if self._has_no_part(broker_id, name)]
        for name in names:
            self._left_behind[name].add(broker_id)
        self._delete_left_behind(names)

    def _has_no_part(self, broker_id: int, name: TopicPartition) -> bool:
        """The log is of this very topic, and the broker is no replica of the partition."""
        context = self._controller.context
        if not context.knows(name) or name.topic in context.deleting or broker_id in context.replicas(name):
            return False
        facts = context.facts.get(broker_id, {}).get(name)
        return facts is not None and facts.topic_id == context.topics[name.topic].topic_id

    def _delete_left_behind(self, names: Iterable[TopicPartition]) -> None:
        """Those of partitions that others lead; the rest waits until they are led."""
        context = self._controller.context
        for name in self._left_behind.keys() & set(names):
            state = context.states.get(name)
            if state is None or not context.is_live(state.leader):
                continue
            for broker_id in self._left_behind.pop(name):
                if self._has_no_part(broker_id, name) and broker_id not in state.isr:
                    log.info("broker %d has a log of %s, which was reassigned from it", broker_id, name)
                    what = (context.topics[name.topic].topic_id, state.leader_epoch, True)
                    self._controller.tell_stop(broker_id, {name: what})

    # --- 0.8's queues -----------------------------------------------------------------------------------------------

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._broker.from_thread(self._queue_changed.set)

    async def _heed_queues(self) -> None:
        while True:
            await self._queue_changed.wait()
            self._queue_changed.clear()
            try:
                await self._heed(reassignments.reassignments, self._take_reassignments)
                await self._heed(reassignments.elections, self._take_elections)
            except KlogError as error:
                if not self._controller.active:
                    return
                log.warning("the queues of reassignments and elections could not be read: %s", error.message)
                await self._broker.pause(AGAIN_S)
                self._queue_changed.set()

    async def _heed(self, read: Callable[..., Queue | None], take: Callable[[Queue], Awaitable[None]]) -> None:
        queue = await self._broker.executors.run(Purpose.ELECTIONS, read, self._zookeeper, self._watch)
        if queue is None:
            return
        for nonsense in queue.nonsense:
            log.error("left out: %s", nonsense)
        async with self._controller.acting:
            self._controller.require()
            await take(queue)

    async def _take_reassignments(self, queue: Queue) -> None:
        """Under the lock. Those under way to where the queue wants them go on; what is there already is done."""
        context = self._controller.context
        begun = {
            name: target
            for name, target in queue.wanted.items()
            if not context.knows(name) or self._entry(name).target != target
        }
        outcome = await self._alter(begun, reassignment.NO_THROTTLE) if begun else {}
        for name, error in outcome.items():
            if error is not None:
                log.error("%s is not reassigned as ZooKeeper asks: %s", name, error.message)
        await self.advance(begun)
        over = [name for name in queue.wanted if not self._in_progress([name])]
        if over or queue.nonsense:
            await self._broker.executors.run(
                Purpose.ELECTIONS, reassignments.finish_reassignments, self._zookeeper, over, self._controller.fence
            )

    async def _take_elections(self, queue: Queue) -> None:
        """Under the lock."""
        names = list(queue.wanted) or list(self._controller.context.partitions())
        outcome = await self._controller.elections.elect_locked(names, unclean=False)
        for name, error in outcome.items():
            if error is not None:
                log.info("%s: its preferred leader is not elected: %s", name, error.message)
        await self._broker.executors.run(
            Purpose.ELECTIONS, reassignments.finish_elections, self._zookeeper, queue, self._controller.fence
        )

    async def _unqueue(
        self, names: Sequence[TopicPartition], wanted: Mapping[TopicPartition, Target] | None = None
    ) -> None:
        """Take these out of 0.8's queue: they are over, or (with `wanted`) the queue asks for something else."""
        if not names:
            return

        def unqueue() -> None:
            queue = reassignments.reassignments(self._zookeeper)
            if queue is None:
                return
            gone = [one for one in names if wanted is None or queue.wanted.get(one) != tuple(wanted[one] or ())]
            reassignments.finish_reassignments(self._zookeeper, gone, self._controller.fence)

        try:
            await self._broker.executors.run(Purpose.ELECTIONS, unqueue)
        except (BadVersion, NodeExists, NoNode):
            await self._broker.executors.run(Purpose.ELECTIONS, self._controller.check_term)
