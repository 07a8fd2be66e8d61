"""Brings topics back from the trash. The next controller can finish each restore (`klog.coordination.topic_restore`).

1. Under the lock the topic is registered, marked, and its states and offsets are written. A marked topic is unknown to
   the rest of the controller, so that no leader is elected by half of its states.
2. Every live broker with a replica is asked what it has; it brings its logs back from the trash before it answers. What
   it said before knows nothing of them, and a partition whose logs all seem gone might begin empty (rule R1).
3. Under the lock the mark goes; then leaders are elected, as after a restart of all brokers.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace

from klog.coordination import partition_states, topic_restore, topics, trash
from klog.coordination.acts import Act, Actor, new_act
from klog.coordination.trash import Entry
from klog.errors import InvalidRequest, KlogError, RequestTimedOut, SessionLost, TopicAlreadyExists, UnknownTopicId
from klog.names import check_new_topic_name
from klog.protocol.apis import ApiKey
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.peers import Peers
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

ANSWERED_WITHIN_S = 30.0
"""How long brokers are waited for that are asked what they have; then the restore is tried again."""
VERSIONS_WITHIN_S = 3.0
ROUND_S = 1.0
AGAIN_S = 0.1
LED_WITHIN_S = 10.0


class TopicRestorer:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime, state: ControllerState, channels: BrokerChannels, peers: Peers) -> None:
        self._runtime = runtime
        self._zookeeper = runtime.zookeeper
        self._state = state
        self._channels = channels
        self._peers = peers
        self._at_work: set[str] = set()

    async def restore(self, topic_id: uuid.UUID, name: str, *, actor: Actor) -> None:
        """Bring a deleted topic back, as ``name``; returns when its partitions have leaders, as far as they can.

        Raises UnknownTopicId where it is not in the trash, TopicAlreadyExists where the name is taken, InvalidRequest
        where its deletion is not complete, InvalidTopic.
        """
        check_new_topic_name(name)
        await self._refuse_old_brokers()
        state = self._state
        async with state.lock:
            state.require()
            context = state.context
            if name in context.topics or name in context.restoring:
                raise TopicAlreadyExists(
                    f"topic {name!r} " + ("is still being deleted" if name in context.deleting else "already exists")
                )
            entry = await state.run(trash.find, self._zookeeper, topic_id)
            _check(entry, topic_id)
            assert entry is not None
            context.restoring.add(name)  # before the first write: the registry's watch must not take it for a new one
            self._at_work.add(name)
            try:
                await state.write(topic_restore.begin, self._zookeeper, entry, name, actor, state.fence)
            except SessionLost:
                self._at_work.discard(name)
                raise  # it may have been written: the term begins again, and reads it
            except KlogError:
                self._at_work.discard(name)
                context.restoring.discard(name)
                raise
        try:
            await self._complete(name)
        finally:
            self._at_work.discard(name)

    async def _refuse_old_brokers(self) -> None:
        """InvalidRequest while a broker of an earlier version is alive: as the controller it would take the mark of a
        restore for that of a deletion, and the logs would go."""
        for broker_id, registration in self._state.context.live.items():
            if broker_id == self._runtime.broker_id:
                continue
            try:
                channel = await self._peers.reach(registration.broker, timeout_s=VERSIONS_WITHIN_S)
            except KlogError:  # it is dead, or hangs
                continue
            versions = channel.versions
            await channel.close()
            if ApiKey.RESTORE_TOPIC not in versions:
                raise InvalidRequest(
                    f"broker {broker_id} is of a version that knows no trash: upgrade it before a topic is restored"
                )

    async def resume(self) -> None:
        """Continue restores that an earlier controller has begun, or that a broker has held up."""
        for name in sorted(self._state.context.restoring - self._at_work):
            if not self._state.active:
                return
            log.info("finishing the restore of topic %s", name)
            self._at_work.add(name)
            try:
                await self._complete(name)
            except KlogError as error:
                log.warning("topic %s is not restored yet: %s", name, error.message)
            finally:
                self._at_work.discard(name)

    async def _complete(self, name: str) -> None:
        state = self._state
        async with state.lock:
            term = state.require()
            topic = await state.run(topics.find, self._zookeeper, name)
            if topic is None or name not in state.context.restoring:
                return
            entry = await state.write(topic_restore.fill, self._zookeeper, topic, state.fence, term.epoch)
        await self._ask(topic)
        async with state.lock:
            if state.require() is not term:
                raise RequestTimedOut(f"topic {name!r}: the next controller continues its restore")
            act = new_act(
                "topic-restore",
                entry.restored_by or Actor("", ""),
                topic=name,
                before={"trash": str(entry.topic_id), "deleted_by": entry.act},
                after={"partitions": len(topic.partitions), "name": name},
            )
            act = replace(act, undoes=entry.act)  # whichever way it was asked for
            await state.write(self._finish, topic, entry, act)
            await self._take_on(name)
            try:
                await state.run(self._purge, topic)
            except KlogError as error:  # the keeper of the trash tries it again
                log.info("topic %s is restored, and its entry is still in the trash: %s", name, error.message)
        await self._led(topic)

    async def _ask(self, topic: topics.Topic) -> None:
        """Every live broker with a replica, what it has now. RequestTimedOut where one does not answer."""
        context = self._state.context
        hosts = {broker_id for replicas in topic.partitions.values() for broker_id in replicas}
        before = {one: context.facts.get(one) for one in hosts}
        silent = set(hosts)
        deadline = self._runtime.loop.time() + ANSWERED_WITHIN_S
        while silent and self._state.active and self._runtime.loop.time() < deadline:
            for one in silent:
                self._channels.ask_for_replicas(one)
            await self._channels.acknowledged(silent, ROUND_S)  # one that is registered and dead never answers
            silent = {one for one in hosts if context.is_live(one) and context.facts.get(one) is before[one]}
            if silent:
                await self._runtime.pause(AGAIN_S)
        if silent:
            raise RequestTimedOut(f"topic {topic.name!r}: brokers {sorted(silent)} do not say what they have of it")
        # What a broker that is away said once is not true of these logs.
        for one in hosts:
            if not context.is_live(one):
                context.facts.pop(one, None)

    def _finish(self, topic: topics.Topic, entry: Entry, act: Act) -> None:
        """In a thread."""
        topic_restore.finish(self._zookeeper, topic, entry, self._state.fence, act)

    def _purge(self, topic: topics.Topic) -> None:
        """In a thread."""
        entry = None if topic.topic_id is None else trash.find(self._zookeeper, topic.topic_id)
        if entry is not None and entry.state == trash.PURGED:
            trash.purge(self._zookeeper, entry, self._state.fence)

    async def _take_on(self, name: str) -> None:
        """Under the lock: from here on it is a topic like any other."""
        state, zookeeper = self._state, self._zookeeper
        context = state.context
        topic = await state.run(topics.find, zookeeper, name)
        if topic is None:
            return
        states = await state.run(partition_states.read_many, zookeeper, topic.topic_partitions)
        configs = await state.run(topics.configs, zookeeper, [name], {})
        epochs = await state.run(topics.first_leader_epochs, zookeeper, [name])
        context.topics[name] = topic
        context.overrides[name] = configs[name].settings
        context.first_epochs[name] = epochs[name]
        context.take_states(states)
        context.restoring.discard(name)
        log.info("topic %s is restored from the trash (topic id %s)", name, topic.topic_id)
        self._runtime.tell("topic-restored", topic=name, partitions=len(topic.partitions))
        self._channels.send_metadata(topics_whole=[name])
        state.mark_dirty(topic.topic_partitions)

    async def _led(self, topic: topics.Topic) -> None:
        """Wait for a moment for leaders, and until the brokers know them."""
        context = self._state.context
        deadline = self._runtime.loop.time() + LED_WITHIN_S
        while self._runtime.loop.time() < deadline and self._state.active:
            states = [context.states.get(name) for name in topic.topic_partitions]
            if all(one is not None and one.leader != partition_states.NO_LEADER for one in states):
                break
            await asyncio.sleep(0.05)
        await self._channels.acknowledged(context.live)


def _check(entry: Entry | None, topic_id: uuid.UUID) -> None:
    """Raises unless it can be restored."""
    if entry is None or entry.state in (trash.PURGED, trash.RESTORING):
        what = "is not in the trash" if entry is None or entry.state == trash.PURGED else "is being restored already"
        raise UnknownTopicId(f"the topic with the id {topic_id} {what}")
    if entry.state != trash.WHOLE:
        raise InvalidRequest(
            f"topic {entry.name!r} is still being deleted: a broker with a replica is away, and must come back first"
        )
