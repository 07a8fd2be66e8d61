"""Topics with a delayed deletion (`klog.coordination.topics.Deletion`): restores them, or purges them when due.

A deleted topic keeps its node, its states, its logs and the offsets of groups in place. It is hidden from the rest of
the controller (`Context.deleted`), so its partitions have no leader, and no client sees it. Restoring it is one write;
then its leaders are elected like those of any topic whose brokers may have come and gone.

Times are ZooKeeper's. While its clock is in doubt (rule L7), nothing is purged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from klog.coordination import partition_states, paths, topics
from klog.coordination.acts import Actor, new_act
from klog.coordination.partition_states import NO_LEADER
from klog.coordination.topics import Deletion, Topic
from klog.coordination.zookeeper import Operation
from klog.errors import KlogError, UnknownTopicId, UnknownTopicOrPartition
from klog.server.controller.controller_part import ControllerPart, Tools
from klog.server.controller.topic_manager import TopicManager, may_replace
from klog.storage.retention import RetentionClock

log = logging.getLogger(__name__)

LOOK_EVERY_MIN_S = 0.25
LOOK_EVERY_MAX_S = 10.0
LOOKS_A_RETENTION = 4
LED_WITHIN_S = 10.0


class DeletedTopics(ControllerPart):
    def __init__(self, tools: Tools, topic_manager: TopicManager) -> None:
        super().__init__(tools)
        self._topic_manager = topic_manager
        looks_s = self._runtime.config.integer("klog.trash.retention.ms") / LOOKS_A_RETENTION / 1000
        self._look_every_s = min(max(looks_s, LOOK_EVERY_MIN_S), LOOK_EVERY_MAX_S) if looks_s > 0 else LOOK_EVERY_MAX_S
        self._trusted: RetentionClock | None = None

    def start(self) -> None:
        """The term has begun."""
        self._trusted = None
        self._state.spawn(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._look_every_s)
            try:
                self._topic_manager.advance_deletions()
                for topic_id in await self._due():
                    await self.purge(topic_id)
            except KlogError as error:
                if not self._state.active:
                    return
                log.warning("deleted topics are not purged yet: %s", error.message)

    async def _due(self) -> list[UUID]:
        """The topics to purge now."""
        if not self._state.context.deleted:
            return []
        now_ms = (await self._state.run(self._zookeeper.set, paths.TOPIC_EPOCHS, b"")).modified_ms
        monotonic_ms = int(self._zookeeper.clock.monotonic_s() * 1000)
        if self._trusted is None:
            self._trusted = RetentionClock(now_ms, monotonic_ms)
        doubt = self._trusted.doubt(now_ms, monotonic_ms)
        if doubt is not None:
            log.error("no deleted topic is purged: %s", doubt)
            return []
        waiting = list(self._state.context.deleted.values())
        return [one.topic_id for one in waiting if one.topic_id is not None and _mark(one).until_ms < now_ms]

    def _found(self, topic_id: UUID) -> Topic:
        self._state.require()
        for topic in self._state.context.deleted.values():
            if topic.topic_id == topic_id:
                return topic
        raise UnknownTopicId(f"no deleted topic has the id {topic_id}: it is restored, or purged")

    async def restore(self, topic_id: UUID, *, actor: Actor) -> None:
        """Remove the mark; returns when the partitions have leaders, as far as possible. Raises UnknownTopicId."""
        state = self._state
        async with state.lock:
            marked = self._found(topic_id)
            name, context = marked.name, state.context
            states = await state.run(partition_states.read_many, self._zookeeper, marked.topic_partitions)
            configs = await state.run(topics.configs, self._zookeeper, [name], {})
            epochs = await state.run(topics.first_leader_epochs, self._zookeeper, [name])
            act = new_act(
                "topic-restore",
                actor,
                topic=name,
                before={"deleted_by": _mark(marked).act},
                after={"partitions": len(marked.partitions)},
            )
            act = replace(act, undoes=_mark(marked).act)  # whichever way it was asked for
            fence: list[Operation] = [*state.fence, act.write]
            unmarked = replace(marked, deletion=None)
            topic = await state.write(topics.replace_assignment, self._zookeeper, unmarked, fence)
            context.add_topic(topic, configs[name].settings, epochs[name])
            context.take_states(states)
            log.info("topic %s is restored (topic id %s)", name, topic_id)
            self._runtime.tell("topic-restored", topic=name, partitions=len(topic.partitions))
            self._channels.send_metadata(topics_whole=[name])
            try:
                # Before any replica follows: reports are lost while the ISR counts a replica's earlier incarnation.
                await self._partitions.reconcile(topic.topic_partitions)
            except KlogError as error:
                log.warning("topic %s is restored, and not all leaders are elected yet: %s", name, error.message)
            self._partitions.send(topic.topic_partitions)
            state.mark_dirty(topic.topic_partitions)  # retries what has failed, and reassignments
        await self._led(topic)

    async def _led(self, topic: Topic) -> None:
        """Wait briefly for leaders, and until the brokers know them."""
        context = self._state.context
        deadline = self._runtime.loop.time() + LED_WITHIN_S
        while self._runtime.loop.time() < deadline and self._state.active:
            states = [context.states.get(name) for name in topic.topic_partitions]
            if all(one is not None and one.leader != NO_LEADER and context.is_live(one.leader) for one in states):
                break
            await asyncio.sleep(0.05)
        await self._channels.acknowledged(context.live)

    async def purge(self, topic_id: UUID, *, actor: Actor | None = None) -> Callable[[], Awaitable[bool]]:
        """Delete it for good, on request or because it is due; as `TopicManager.purge`.

        Raises UnknownTopicId.
        """
        async with self._state.lock:
            topic = self._found(topic_id)
            before = {"topic_id": str(topic_id), "deleted_by": _mark(topic).act}
            act = None if actor is None else new_act("topic-purge", actor, topic=topic.name, before=before, after={})
            try:
                deleted = await self._topic_manager.purge(topic, act)
            except UnknownTopicOrPartition:  # another program has removed its node
                self._state.context.deleted.pop(topic.name, None)
                raise
        why = "its time is over" if actor is None else f"{actor.name} asked"
        log.info("topic %s, deleted before, is purged (topic id %s): %s", topic.name, topic_id, why)
        self._runtime.tell("topic-purged", topic=topic.name, topic_id=str(topic_id), reason=why)
        return deleted

    def is_replaced(self, name: str, actor: Actor) -> bool:
        """Whether this client purges a deleted topic by creating one of its name (`may_replace`)."""
        topic = self._state.context.deleted.get(name)
        return topic is not None and may_replace(topic, actor)

    async def free(self, name: str, actor: Actor) -> None:
        """Purge the deleted topic of this name."""
        topic = self._state.context.deleted.get(name)
        if topic is not None and topic.topic_id is not None:
            try:
                await (await self.purge(topic.topic_id, actor=actor))()
            except UnknownTopicId:  # it is restored, or purged, meanwhile
                pass


def _mark(topic: Topic) -> Deletion:
    assert topic.deletion is not None
    return topic.deletion
