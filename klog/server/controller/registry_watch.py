"""Applies other programs' writes in ZooKeeper, as of 0.8's tools: topics, partitions, deletions and settings.

/brokers/topics/<t>         created: the topic gets an id and leaders; grown: the new partitions get leaders
/admin/delete_topics/<t>    created: the topic is deleted; with ``delete.topic.enable`` false the mark is removed
/config/changes/...         created: the settings of the named topic apply from now on

Watches report what has changed, and of which topic. It is read in a thread, and applied SHARE names at a time under the
controller's lock, so that requests and failovers are served in between. klog's own writes fire the watches too, and
change nothing.

Unreadable data is logged once and not changed. For a known topic the known state still applies; an unknown topic is not
served. The same holds for changes that no tool of 0.8's makes: removing or recreating a topic's node, or moving its
partitions to other brokers. Only a deletion makes a topic lose messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.config.topic import KEEP_EVERYTHING
from klog.coordination import config_notices, partition_states, paths, topic_deletion, topics
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Damage, Topic
from klog.coordination.zookeeper import WatchEvent, ZooKeeper
from klog.errors import BadVersion, InvalidConfig, KlogError, NodeExists, NoNode
from klog.names import TopicPartition, counted
from klog.server.controller.controller_part import ControllerPart, Tools
from klog.server.controller.topic_manager import TopicManager

log = logging.getLogger(__name__)

FOLDERS: Final = frozenset({paths.TOPICS, paths.DELETE_TOPICS, paths.CONFIG_CHANGES})
LOOK_PAUSE_S = 0.1
"""Pause between looks: one look sees all changes in between."""
SHARE = 50
"""Names handled before the controller's lock is released."""
COMPLAINTS_MAX = 10_000
"""Logged errors that are remembered, so that each is logged once."""


_Take = Callable[[Sequence[str]], Awaitable[None]]
"""What must be done about some topics."""


class RegistryWatch(ControllerPart):
    def __init__(self, tools: Tools, topic_manager: TopicManager) -> None:
        super().__init__(tools)
        self._topic_manager = topic_manager
        self._wakeup = asyncio.Event()
        self._doubted: set[str] = set()
        """What the next look must read: `FOLDERS`, and nodes of topics."""
        self._watched: set[str] = set()
        """The nodes of topics that are watched."""
        self._is_all_doubted = False
        self._last_notice = -1
        self._complaints: set[str] = set()

    def start(self) -> None:
        """The term has begun: the first look reads everything."""
        self._last_notice = -1
        self._complaints.clear()
        self._doubt("")
        self._state.keep_up(self._wakeup, self._apply, "changes by other programs in ZooKeeper are not applied yet")

    # --- looking ----------------------------------------------------------------------------------------------------

    def _fired(self, event: WatchEvent) -> None:
        """In ZooKeeper's thread. An event without a path: the connection was lost, and every watch with it."""
        if not event.path:
            if self._is_all_doubted:
                return  # the first of thousands of watches has reported it
            self._is_all_doubted = True
        self._runtime.from_thread(self._doubt, event.path)

    def _doubt(self, path: str) -> None:
        """``path`` "": doubt everything."""
        if path:
            self._doubted.add(path)
            self._watched.discard(path)
        else:
            self._doubted, self._watched = set(FOLDERS), set()
        self._wakeup.set()

    async def _apply(self) -> None:
        doubted, self._doubted = self._doubted, set()
        self._is_all_doubted = False
        try:
            for take, names in await self._state.run(self._look, doubted):
                for at in range(0, len(names), SHARE):
                    async with self._state.lock:
                        self._state.require()
                        await take(names[at : at + SHARE])
                    await asyncio.sleep(0)
        except KlogError:
            self._doubted |= doubted | FOLDERS
            raise
        await asyncio.sleep(LOOK_PAUSE_S)

    def _look(self, doubted: set[str]) -> list[tuple[_Take, list[str]]]:
        """In a thread: the topics that may need something. Each watch is set before the read that it is for."""
        context, found = self._state.context, list[tuple[_Take, list[str]]]()
        nodes = doubted - FOLDERS
        if paths.TOPICS in doubted:
            there = set(map(paths.topic, topics.names(self._zookeeper, self._fired)))
            nodes |= there - self._watched
            nodes |= {paths.topic(name) for name in (*context.topics, *context.deleted)} - there
        found.append((self._take_nodes, self._changed(sorted(nodes))))
        if paths.DELETE_TOPICS in doubted:
            marked = topics.being_deleted(self._zookeeper, self._fired)
            found.append((self._take_marks, [name for name in marked if name not in context.deleting]))
        if paths.CONFIG_CHANGES in doubted:
            changes = config_notices.read(self._zookeeper, self._last_notice, self._fired)
            self._last_notice = changes.last
            self._runtime.from_thread(self._complain_of, changes.damage)
            if not changes.is_all:
                self._runtime.from_thread(self._doubt, paths.CONFIG_CHANGES)
            found.append((self._take_settings, changes.topics))
        return found

    def _changed(self, nodes: Sequence[str]) -> list[str]:
        """The topics whose node differs from what is known; all of these nodes are watched."""
        known, changed = self._state.context.topics, []
        stats = self._zookeeper.exists_many(nodes, self._fired)
        self._watched.update(nodes)
        for name, stat in zip((path.rpartition("/")[2] for path in nodes), stats, strict=True):
            topic = known.get(name)
            now = None if stat is None else (stat.created_zxid, stat.version)
            if now is None or topic is None or now != (topic.created_zxid, topic.version):
                changed.append(name)
        return changed

    def _complain_of(self, damage: Damage) -> None:
        for path, what in damage.items():
            self._complain(path, what)

    def _complain(self, path: str, what: str) -> None:
        """Log it once."""
        if len(self._complaints) < COMPLAINTS_MAX and (complaint := f"{path} {what}") not in self._complaints:
            self._complaints.add(complaint)
            log.error("ignored: %s", what)

    # --- acting -----------------------------------------------------------------------------------------------------

    async def _take_nodes(self, names: Sequence[str]) -> None:
        """Under the lock: topics that are new, or differ from what is known."""
        context = self._state.context
        damage: Damage = {}
        found = {one.name: one for one in await self._state.run(topics.read_many, self._zookeeper, names, damage)}
        self._complain_of(damage)
        new, grown = [], []
        for name in names:
            now, known = found.get(name), context.topics.get(name)
            if known is not None and now is not None and known.created_zxid < 0:  # created by this controller
                known = context.topics[name] = replace(known, created_zxid=now.created_zxid)
            if known is None:
                if now is None:
                    context.deleted.pop(name, None)
                elif now.deletion is None:
                    new.append(now)
                else:
                    context.deleted[name] = now
            elif paths.topic(name) in damage or name in context.deleting:
                continue
            elif now is None or now.created_zxid != known.created_zxid:
                what = "removed" if now is None else "recreated"
                self._complain(name, f"topic {name}: another program has {what} its node in ZooKeeper; its logs stay")
            elif now.version != known.version:
                grown.append((known, now))
        if new:
            await self._adopt(new)
        for known, now in grown:
            await self._grow(known, now)
        if new or grown:
            self._channels.send_metadata(topics_whole=[*(one.name for one in new), *(one.name for one, _ in grown)])

    async def _adopt(self, new: Sequence[Topic]) -> None:
        """Under the lock."""
        context, damage = self._state.context, Damage()
        adopted = await self._state.write(self._read_new, new, damage)
        self._complain_of(damage)
        for one in adopted:
            topic, name = one.topic, one.topic.name
            context.add_topic(topic, self._by_flush_rule(topic, one.settings), one.first_epoch)
            context.take_states(one.states)
            if one.is_deletion_begun:
                context.begin_deletion(topic)
            count = counted(len(topic.partitions), "partition")
            log.info("topic %s: created in ZooKeeper by another program, %s", name, count)
            factor = len(next(iter(topic.partitions.values())))
            self._runtime.tell("topic-created", topic=name, partitions=len(topic.partitions), replication_factor=factor)
        await self._elect_first(name for one in adopted for name in one.topic.topic_partitions)
        if any(one.is_deletion_begun for one in adopted):
            self._topic_manager.advance_deletions()

    def _read_new(self, new: Sequence[Topic], damage: Damage) -> list[TopicFacts]:
        """In a thread: read everything about these topics; each gets an id."""
        named = []
        for topic in new:
            try:
                named.append(topics.give_id(self._zookeeper, topic, self._state.fence))
            except BadVersion:
                self._state.check_term()  # else it was changed again: its watch fires
        return read_facts(self._zookeeper, named, damage)

    async def _grow(self, known: Topic, now: Topic) -> None:
        """Under the lock: add partitions, and restore fields that a tool of 0.8's has dropped."""
        context = self._state.context
        added = {number: ids for number, ids in now.partitions.items() if number not in known.partitions}
        if now.partitions != known.partitions | added:
            self._complain(known.name, f"topic {known.name}: its node in ZooKeeper has other replicas than before")
        whole = replace(known, partitions={**known.partitions, **added}, version=now.version)
        if whole != now:
            try:
                whole = await self._state.write(topics.replace_assignment, self._zookeeper, whole, self._state.fence)
            except (BadVersion, NoNode):
                await self._state.run(self._state.check_term)
                return  # it was changed again: its watch fires
        context.topics[known.name] = whole
        if added:
            log.info("topic %s: grown to %d partitions in ZooKeeper", known.name, len(whole.partitions))
            self._runtime.tell("partitions-added", topic=known.name, partitions=len(whole.partitions))
            await self._elect_first(TopicPartition(known.name, number) for number in added)

    async def _elect_first(self, names: Iterable[TopicPartition]) -> None:
        """Under the lock: elect leaders of partitions that are new to the controller."""
        context = self._state.context
        there = [name for name in names if name.topic not in context.deleting]
        await self._partitions.change(there, context.decide)
        self._partitions.send(there)
        self._state.mark_dirty(there)

    async def _take_marks(self, names: Sequence[str]) -> None:
        """Under the lock: topics that are marked for deletion."""
        context = self._state.context
        stats = await self._state.run(self._zookeeper.exists_many, [paths.delete_topic(name) for name in names])
        there = await self._state.run(self._zookeeper.exists_many, [paths.topic(name) for name in names])
        for name, mark, node in zip(names, stats, there, strict=True):
            if mark is None or name in context.deleting:
                continue
            is_known = name in context.topics or name in context.deleted
            if is_known and self._runtime.config["delete.topic.enable"]:
                await self._topic_manager.begin_marked(name)
                continue
            if not is_known and node is not None:
                continue  # it cannot be read, or the next look finds it
            why = "the topic does not exist" if node is None else "delete.topic.enable is false"
            log.warning("topic %s is marked for deletion in ZooKeeper and not deleted: %s", name, why)
            try:
                await self._state.run(topic_deletion.unmark, self._zookeeper, name, self._state.fence)
            except NodeExists:
                self._complain(name, f"ZooKeeper node {paths.delete_topic(name)} has children, expected none")

    async def _take_settings(self, names: Sequence[str]) -> None:
        """Under the lock: topics whose settings may have changed."""
        context = self._state.context
        known = [name for name in names if name in context.topics]
        damage: Damage = {}
        configs = await self._state.run(topics.configs, self._zookeeper, known, damage)
        self._complain_of(damage)
        changed = []
        for name, config in configs.items():
            topic = context.topics[name]
            settings = self._by_flush_rule(topic, config.settings)
            if settings == context.overrides.get(name, {}):
                continue
            if paths.topic_config(name) in damage and settings == KEEP_EVERYTHING:
                continue  # unreadable: the known settings still apply
            log.info("topic %s: its settings have changed in ZooKeeper", name)
            context.overrides[name] = settings
            self._runtime.tell("settings-changed", topic=name, settings=settings)
            self._state.mark_dirty(topic.topic_partitions)
            changed.append(name)
        if changed:
            self._channels.send_metadata(topics_whole=changed)

    def _by_flush_rule(self, topic: Topic, settings: dict[str, str]) -> dict[str, str]:
        """Without flush settings under which lag cannot be measured (rule R4)."""
        factor = max(map(len, topic.partitions.values()))
        try:
            self._topic_manager.check_settings(topic.name, settings, factor)
        except InvalidConfig as error:
            log.error("topic %s: its flush settings in ZooKeeper are ignored: %s", topic.name, error.message)
            return {name: text for name, text in settings.items() if name not in ("flush.ms", "flush.messages")}
        return settings


class TopicFacts(NamedTuple):
    """A topic, and what the controller must know of it. ``is_deletion_begun``: by any controller."""

    topic: Topic
    states: dict[TopicPartition, PartitionState | None]
    first_epoch: int
    settings: dict[str, str]
    is_deletion_begun: bool


def read_facts(zookeeper: ZooKeeper, listed: Sequence[Topic], damage: Damage) -> list[TopicFacts]:
    """In a thread: the facts of these topics, without those that have an unreadable state."""
    unreadable: dict[TopicPartition, str] = {}
    partitions = [name for topic in listed for name in topic.topic_partitions]
    states = partition_states.read_many(zookeeper, partitions, unreadable)
    damage.update((str(name), what) for name, what in unreadable.items())
    damaged = {name.topic for name in unreadable}
    whole = {topic.name: topic for topic in listed if topic.name not in damaged}
    epochs = topics.first_leader_epochs(zookeeper, list(whole))
    configs = topics.configs(zookeeper, list(whole), damage)
    begun = topic_deletion.deletions_begun(zookeeper, list(whole))
    return [
        TopicFacts(
            topic,
            {one: states[one] for one in topic.topic_partitions},
            epochs[name],
            configs[name].settings,
            name in begun,
        )
        for name, topic in whole.items()
    ]
