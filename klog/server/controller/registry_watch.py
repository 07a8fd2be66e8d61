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
import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from klog.config.topic import KEEP_EVERYTHING
from klog.coordination import config_notices, partition_states, paths, topic_deletion, topics
from klog.coordination.topics import Damage, Topic
from klog.coordination.zookeeper import WatchEvent
from klog.errors import BadVersion, InvalidConfig, KlogError, NodeExists, NoNode
from klog.names import TopicPartition, counted
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.partition_writer import PartitionWriter
from klog.server.controller.topic_manager import TopicManager
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

LOOK_PAUSE_S = 0.1
"""Pause between looks: one look sees all changes in between."""
SHARE = 50
"""Names handled before the controller's lock is released."""
COMPLAINTS_MAX = 10_000
"""Logged errors that are remembered, so that each is logged once."""


@dataclass(slots=True)
class _Doubts:
    """What the next look must read."""

    topics: bool = True
    nodes: set[str] = field(default_factory=set)
    """Topics whose node has changed."""
    marks: bool = True
    notices: bool = True


@dataclass(slots=True)
class _Seen:
    """The result of a look: names that may need an action."""

    nodes: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    damage: Damage = field(default_factory=dict)


class RegistryWatch:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(
        self,
        runtime: Runtime,
        state: ControllerState,
        channels: BrokerChannels,
        partitions: PartitionWriter,
        topic_manager: TopicManager,
    ) -> None:
        self._runtime = runtime
        self._zookeeper = runtime.zookeeper
        self._state = state
        self._channels = channels
        self._partitions = partitions
        self._topic_manager = topic_manager
        self._wakeup = asyncio.Event()
        self._doubts = _Doubts()
        self._watched: set[str] = set()
        """Topics whose node is watched."""
        self._is_all_doubted = False
        self._last_notice = -1
        self._complaints: set[str] = set()
        # One object each: ZooKeeper's client keeps watches in sets, so that one is left on a node once.
        self._on_topics = functools.partial(self._fired, "topics")
        self._on_marks = functools.partial(self._fired, "marks")
        self._on_notices = functools.partial(self._fired, "notices")
        self._on_node = functools.partial(self._fired, "node")

    def start(self) -> None:
        """The term has begun: the first look reads everything."""
        self._doubts = _Doubts()
        self._watched = set()
        self._last_notice = -1
        self._complaints.clear()
        self._wakeup.set()
        self._state.keep_up(self._wakeup, self._apply, "changes by other programs in ZooKeeper are not applied yet")

    # --- looking ----------------------------------------------------------------------------------------------------

    def _fired(self, what: str, event: WatchEvent) -> None:
        """In ZooKeeper's thread. An event without a path: the connection was lost, and every watch with it."""
        if not event.path:
            if self._is_all_doubted:
                return  # the first of thousands of watches has reported it
            self._is_all_doubted = True
        self._runtime.from_thread(self._doubt, what, event.path)

    def _doubt(self, what: str, path: str) -> None:
        doubts = self._doubts
        if not path:
            self._doubts = _Doubts()
            self._watched = set()
        elif what == "topics":
            doubts.topics = True
        elif what == "marks":
            doubts.marks = True
        elif what == "notices":
            doubts.notices = True
        else:
            name = path.rpartition("/")[2]
            doubts.nodes.add(name)
            self._watched.discard(name)
        self._wakeup.set()

    async def _apply(self) -> None:
        doubts, self._doubts = self._doubts, _Doubts(topics=False, marks=False, notices=False)
        self._is_all_doubted = False
        try:
            seen = await self._state.run(self._look, doubts)
            for path, what in seen.damage.items():
                self._complain(path, what)
            await self._act(seen)
        except KlogError:
            self._doubts = _Doubts(nodes=doubts.nodes | self._doubts.nodes)
            raise
        await asyncio.sleep(LOOK_PAUSE_S)

    def _look(self, doubts: _Doubts) -> _Seen:
        """In a thread. Each watch is set before the read that it is for."""
        seen = _Seen()
        known = self._state.context.topics
        doubted = dict.fromkeys(doubts.nodes)
        if doubts.topics:
            there = topics.names(self._zookeeper, self._on_topics)
            listed = set(there)
            doubted |= dict.fromkeys(one for one in there if one not in self._watched)
            there_before = [*known, *self._state.context.deleted]
            doubted |= dict.fromkeys(one for one in there_before if one not in listed)
        names = list(doubted)
        stats = self._zookeeper.exists_many([paths.topic(name) for name in names], self._on_node)
        self._watched.update(names)
        for name, stat in zip(names, stats, strict=True):
            topic = known.get(name)
            now = None if stat is None else (stat.created_zxid, stat.version)
            if now is None or topic is None or now != (topic.created_zxid, topic.version):
                seen.nodes.append(name)
        if doubts.marks:
            marked = topics.being_deleted(self._zookeeper, self._on_marks)
            begun = self._state.context.deleting
            seen.marks = [name for name in marked if name not in begun]
        if doubts.notices:
            changes = config_notices.read(self._zookeeper, self._last_notice, self._on_notices)
            self._last_notice = changes.last
            seen.settings, seen.damage = changes.topics, changes.damage
            if not changes.is_all:
                self._runtime.from_thread(self._doubt, "notices", paths.CONFIG_CHANGES)
        return seen

    def _complain(self, path: str, what: str) -> None:
        """Log it once."""
        if len(self._complaints) < COMPLAINTS_MAX and (complaint := f"{path} {what}") not in self._complaints:
            self._complaints.add(complaint)
            log.error("ignored: %s", what)

    # --- acting -----------------------------------------------------------------------------------------------------

    async def _act(self, seen: _Seen) -> None:
        for act, names in (
            (self._take_nodes, seen.nodes),
            (self._take_marks, seen.marks),
            (self._take_settings, seen.settings),
        ):
            for at in range(0, len(names), SHARE):
                async with self._state.lock:
                    self._state.require()
                    await act(names[at : at + SHARE])
                await asyncio.sleep(0)

    async def _take_nodes(self, names: Sequence[str]) -> None:
        """Under the lock: topics that are new, or differ from what is known."""
        context = self._state.context
        damage: Damage = {}
        found = {one.name: one for one in await self._state.run(topics.read_many, self._zookeeper, names, damage)}
        for path, what in damage.items():
            self._complain(path, what)
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
        context = self._state.context
        read = await self._state.write(self._read_new, new)
        for path, what in read.damage.items():
            self._complain(path, what)
        for topic in read.topics:
            name = topic.name
            context.deleted.pop(name, None)
            context.topics[name] = topic
            context.overrides[name] = read.overrides[name]
            context.first_epochs[name] = read.first_epochs[name]
            if name in read.deleting:
                context.deleting.add(name)
            count = counted(len(topic.partitions), "partition")
            log.info("topic %s: created in ZooKeeper by another program, %s", name, count)
            factor = len(next(iter(topic.partitions.values())))
            self._runtime.tell("topic-created", topic=name, partitions=len(topic.partitions), replication_factor=factor)
        context.take_states(read.states)
        await self._elect_first(name for topic in read.topics for name in topic.topic_partitions)
        if any(topic.name in context.deleting for topic in read.topics):
            self._runtime.spawn(self._topic_manager.resume_deletions())

    def _read_new(self, new: Sequence[Topic]) -> _New:
        """In a thread: read everything about these topics; each gets an id."""
        fence = self._state.fence
        found = _New()
        for topic in new:
            try:
                found.topics.append(topics.give_id(self._zookeeper, topic, fence))
            except BadVersion:
                self._state.check_term()  # else it was changed again: its watch fires
        states_damage: dict[TopicPartition, str] = {}
        names = [name for topic in found.topics for name in topic.topic_partitions]
        found.states = partition_states.read_many(self._zookeeper, names, states_damage)
        damaged = {name.topic for name in states_damage}
        found.damage = {str(name): what for name, what in states_damage.items()}
        found.topics = [topic for topic in found.topics if topic.name not in damaged]
        listed = [topic.name for topic in found.topics]
        found.states = {name: state for name, state in found.states.items() if name.topic not in damaged}
        found.first_epochs = topics.first_leader_epochs(self._zookeeper, listed)
        configs = topics.configs(self._zookeeper, listed, found.damage)
        found.overrides = {
            topic.name: self._by_flush_rule(topic, configs[topic.name].settings) for topic in found.topics
        }
        found.deleting = topic_deletion.deletions_begun(self._zookeeper, listed)
        return found

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
        for path, what in damage.items():
            self._complain(path, what)
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


@dataclass(slots=True)
class _New:
    """New topics, and what is known of them."""

    topics: list[Topic] = field(default_factory=list)
    states: dict[TopicPartition, partition_states.PartitionState | None] = field(default_factory=dict)
    first_epochs: dict[str, int] = field(default_factory=dict)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    damage: Damage = field(default_factory=dict)
