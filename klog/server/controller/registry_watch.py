"""Topics, deletions and settings that others write into ZooKeeper, as 0.8's tools do: taken up by the controller.

/brokers/topics/<t>         made: the topic gets an id and leaders; grown: the new partitions get leaders
/admin/delete_topics/<t>    made: the topic is deleted, or the mark is taken away where ``delete.topic.enable`` is false
/config/changes/...         made: the settings of the topic that it names hold from now on

Watches tell what has changed, and of which topic. It is read in a thread, SHARE names at a time under the controller's
lock, so that requests and failovers are served in between, however much comes at once. klog's own writes are seen here
too, and are known already.

What cannot be read is logged once and left as it is. Of a topic that is known, what is known stays; of another one
nothing is served. The same holds for what no tool of 0.8's does: a topic's node is removed or made again, or its
partitions are put on other brokers. A topic loses nothing here but by a deletion.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from klog.config.topic import KEEP_EVERYTHING
from klog.coordination import partition_states, paths, topics
from klog.coordination.topics import Damage, Topic
from klog.coordination.zookeeper import WatchEvent
from klog.errors import BadVersion, InvalidConfig, KlogError, NodeExists, NoNode
from klog.names import TopicPartition
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Before what could not be read or written is tried again: ZooKeeper is away."""
LOOK_PAUSE_S = 0.1
"""From one look to the next: what comes in between is seen by one look."""
SHARE = 50
"""Names that are worked on under one hold of the controller's lock."""
SAID_MAX = 10_000
"""Complaints that are remembered, so that each is made once."""


@dataclass(slots=True)
class _Doubts:
    """What has to be looked at."""

    topics: bool = True
    nodes: set[str] = field(default_factory=set)
    """Topics whose node has changed."""
    marks: bool = True
    notices: bool = True


@dataclass(slots=True)
class _Seen:
    """What a look has found that may have to be acted on."""

    nodes: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    damage: Damage = field(default_factory=dict)


class RegistryWatch:
    """Event loop only; ZooKeeper is read and written in threads."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._task: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        self._doubts = _Doubts()
        self._watched: set[str] = set()
        """Topics on whose node there is a watch."""
        self._is_all_doubted = False
        self._last_notice = -1
        self._said: set[str] = set()
        # One object each: ZooKeeper's client keeps watches in sets, so that one is left on a node once.
        self._on_topics = functools.partial(self._fired, "topics")
        self._on_marks = functools.partial(self._fired, "marks")
        self._on_notices = functools.partial(self._fired, "notices")
        self._on_node = functools.partial(self._fired, "node")

    def start(self) -> None:
        """The term has begun: whatever was written up to now is looked at too."""
        self._doubts = _Doubts()
        self._watched = set()
        self._last_notice = -1
        self._said.clear()
        self._stirred.set()
        self._task = self._broker.spawn(self._heed())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- looking ----------------------------------------------------------------------------------------------------

    def _fired(self, what: str, event: WatchEvent) -> None:
        """In ZooKeeper's thread. An event without a path: the connection was lost, and every watch with it."""
        if not event.path:
            if self._is_all_doubted:
                return  # of thousands of watches the first one has said so
            self._is_all_doubted = True
        self._broker.from_thread(self._doubt, what, event.path)

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
        self._stirred.set()

    async def _heed(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            doubts, self._doubts = self._doubts, _Doubts(topics=False, marks=False, notices=False)
            self._is_all_doubted = False
            try:
                seen = await self._broker.executors.run(Purpose.ELECTIONS, self._look, doubts)
                for path, what in seen.damage.items():
                    self._say(path, what)
                await self._act(seen)
            except KlogError as error:
                if not self._controller.active:
                    return
                log.warning("what others have written into ZooKeeper is not taken up yet: %s", error.message)
                self._doubts = _Doubts(nodes=doubts.nodes | self._doubts.nodes)
                self._stirred.set()
                await self._broker.pause(AGAIN_S)
            await asyncio.sleep(LOOK_PAUSE_S)

    def _look(self, doubts: _Doubts) -> _Seen:
        """In a thread. Watches are set before what they are about is read."""
        seen = _Seen()
        known = self._controller.context.topics
        doubted = dict.fromkeys(doubts.nodes)
        if doubts.topics:
            there = topics.names(self._zookeeper, self._on_topics)
            listed = set(there)
            doubted |= dict.fromkeys(one for one in there if one not in self._watched)
            doubted |= dict.fromkeys(one for one in list(known) if one not in listed)
        names = list(doubted)
        stats = self._zookeeper.exists_many([paths.topic(name) for name in names], self._on_node)
        self._watched.update(names)
        for name, stat in zip(names, stats, strict=True):
            topic = known.get(name)
            now = None if stat is None else (stat.created_zxid, stat.version)
            if now != (None if topic is None else (topic.created_zxid, topic.version)):
                seen.nodes.append(name)
        if doubts.marks:
            marked = topics.being_deleted(self._zookeeper, self._on_marks)
            begun = self._controller.context.deleting
            seen.marks = [name for name in marked if name not in begun]
        if doubts.notices:
            changes = topics.config_changes(self._zookeeper, self._last_notice, self._on_notices)
            self._last_notice = changes.last
            seen.settings, seen.damage = changes.topics, changes.damage
            if not changes.is_all:
                self._broker.from_thread(self._doubt, "notices", paths.CONFIG_CHANGES)
        return seen

    def _say(self, path: str, what: str) -> None:
        """Once."""
        if len(self._said) < SAID_MAX and (said := f"{path} {what}") not in self._said:
            self._said.add(said)
            log.error("left out: %s", what)

    # --- acting -----------------------------------------------------------------------------------------------------

    async def _act(self, seen: _Seen) -> None:
        for act, names in (
            (self._take_nodes, seen.nodes),
            (self._take_marks, seen.marks),
            (self._take_settings, seen.settings),
        ):
            for at in range(0, len(names), SHARE):
                async with self._controller.acting:
                    self._controller.require()
                    await act(names[at : at + SHARE])
                await asyncio.sleep(0)

    async def _take_nodes(self, names: Sequence[str]) -> None:
        """Under the lock: topics that are new, or not as they are known."""
        controller, context = self._controller, self._controller.context
        damage: Damage = {}
        found = {
            one.name: one
            for one in await self._broker.executors.run(
                Purpose.ELECTIONS, topics.read_many, self._zookeeper, names, damage
            )
        }
        for path, what in damage.items():
            self._say(path, what)
        new, grown = [], []
        for name in names:
            now, known = found.get(name), context.topics.get(name)
            if known is not None and now is not None and known.created_zxid < 0:  # made by this controller
                known = context.topics[name] = replace(known, created_zxid=now.created_zxid)
            if known is None:
                if now is not None:
                    new.append(now)
            elif paths.topic(name) in damage or name in context.deleting:
                continue
            elif now is None or now.created_zxid != known.created_zxid:
                gone = "is gone" if now is None else "was made again"
                self._say(name, f"topic {name}: its node in ZooKeeper {gone} by another's hand; its logs stay")
            elif now.version != known.version:
                grown.append((known, now))
        if new:
            await self._adopt(new)
        for known, now in grown:
            await self._grow(known, now)
        if new or grown:
            controller.tell_metadata(topics_whole=[*(one.name for one in new), *(one.name for one, _ in grown)])

    async def _adopt(self, new: Sequence[Topic]) -> None:
        """Under the lock."""
        controller, context = self._controller, self._controller.context
        read = await controller.writing(self._read_new, new)
        for path, what in read.damage.items():
            self._say(path, what)
        for topic in read.topics:
            name = topic.name
            context.topics[name] = topic
            context.overrides[name] = read.overrides[name]
            context.first_epochs[name] = read.first_epochs[name]
            if name in read.deleting:
                context.deleting.add(name)
            log.info("topic %s: made in ZooKeeper by another's hand, %d partitions", name, len(topic.partitions))
            factor = len(next(iter(topic.partitions.values())))
            self._broker.tell("topic-created", topic=name, partitions=len(topic.partitions), replication_factor=factor)
        context.take_states(read.states)
        await self._led_anew(name for topic in read.topics for name in topic.topic_partitions)
        if any(topic.name in context.deleting for topic in read.topics):
            self._broker.spawn(controller.topics.go_on())

    def _read_new(self, new: Sequence[Topic]) -> _New:
        """In a thread: all that there is of these topics; each gets an id."""
        fence = self._controller.fence
        found = _New()
        for topic in new:
            try:
                found.topics.append(topics.give_id(self._zookeeper, topic, fence))
            except BadVersion:
                self._controller.check_term()  # else it was changed once more: its watch brings it back
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
        found.deleting = topics.deletions_begun(self._zookeeper, listed)
        return found

    async def _grow(self, known: Topic, now: Topic) -> None:
        """Under the lock: more partitions, and whatever a tool that knows no more than 0.8 has dropped, put back."""
        controller, context = self._controller, self._controller.context
        added = {number: ids for number, ids in now.partitions.items() if number not in known.partitions}
        if now.partitions != known.partitions | added:
            self._say(known.name, f"topic {known.name}: its node in ZooKeeper has other replicas than before")
        whole = replace(known, partitions={**known.partitions, **added}, version=now.version)
        if whole != now:
            try:
                whole = await controller.writing(topics.replace_assignment, self._zookeeper, whole, controller.fence)
            except (BadVersion, NoNode):
                await self._broker.executors.run(Purpose.ELECTIONS, controller.check_term)
                return  # changed once more: its watch brings it back
        context.topics[known.name] = whole
        if added:
            log.info("topic %s: grown to %d partitions in ZooKeeper", known.name, len(whole.partitions))
            self._broker.tell("partitions-added", topic=known.name, partitions=len(whole.partitions))
            await self._led_anew(TopicPartition(known.name, number) for number in added)

    async def _led_anew(self, names: Iterable[TopicPartition]) -> None:
        """Under the lock: partitions that the controller did not know until now."""
        controller, context = self._controller, self._controller.context
        there = [name for name in names if name.topic not in context.deleting]
        await controller.change(there, context.decide)
        hosts: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in there:
            for broker_id in context.replicas(name):
                hosts[broker_id].append(name)
        for broker_id, hosted in hosts.items():
            controller.tell_states(broker_id, hosted)
        controller.unsettle(there)

    async def _take_marks(self, names: Sequence[str]) -> None:
        """Under the lock: topics that are to be deleted."""
        controller, context = self._controller, self._controller.context
        stats = await self._broker.executors.run(
            Purpose.ELECTIONS, self._zookeeper.exists_many, [paths.delete_topic(name) for name in names]
        )
        there = await self._broker.executors.run(
            Purpose.ELECTIONS, self._zookeeper.exists_many, [paths.topic(name) for name in names]
        )
        for name, mark, node in zip(names, stats, there, strict=True):
            if mark is None or name in context.deleting:
                continue
            if name in context.topics and self._broker.config["delete.topic.enable"]:
                await controller.topics.begin_marked(name)
                continue
            if name not in context.topics and node is not None:
                continue  # one that cannot be read, or that comes with the next look
            why = "there is no such topic" if node is None else "delete.topic.enable is false"
            log.warning("topic %s is not deleted as ZooKeeper asks: %s", name, why)
            try:
                await self._broker.executors.run(
                    Purpose.ELECTIONS, topics.unmark, self._zookeeper, name, controller.fence
                )
            except NodeExists:
                self._say(name, f"ZooKeeper node {paths.delete_topic(name)} has children, expected none")

    async def _take_settings(self, names: Sequence[str]) -> None:
        """Under the lock: topics whose settings may be others."""
        controller, context = self._controller, self._controller.context
        known = [name for name in names if name in context.topics]
        damage: Damage = {}
        configs = await self._broker.executors.run(Purpose.ELECTIONS, topics.configs, self._zookeeper, known, damage)
        for path, what in damage.items():
            self._say(path, what)
        changed = []
        for name, config in configs.items():
            topic = context.topics[name]
            settings = self._by_flush_rule(topic, config.settings)
            if settings == context.overrides.get(name, {}):
                continue
            if paths.topic_config(name) in damage and settings == KEEP_EVERYTHING:
                continue  # nothing of it can be read: what was known holds on
            log.info("topic %s: its settings in ZooKeeper are others now", name)
            context.overrides[name] = settings
            self._broker.tell("settings-changed", topic=name, settings=settings)
            controller.unsettle(topic.topic_partitions)
            changed.append(name)
        if changed:
            controller.tell_metadata(topics_whole=changed)

    def _by_flush_rule(self, topic: Topic, settings: dict[str, str]) -> dict[str, str]:
        """Without flush settings under which followers could not be told to be late (rule R4)."""
        factor = max(map(len, topic.partitions.values()))
        try:
            self._controller.topics.check_settings(settings, factor)
        except InvalidConfig as error:
            log.error("topic %s: its flush settings in ZooKeeper are left out: %s", topic.name, error.message)
            return {name: text for name, text in settings.items() if name not in ("flush.ms", "flush.messages")}
        return settings


@dataclass(slots=True)
class _New:
    """Topics that are taken up, and what is to be known of them."""

    topics: list[Topic] = field(default_factory=list)
    states: dict[TopicPartition, partition_states.PartitionState | None] = field(default_factory=dict)
    first_epochs: dict[str, int] = field(default_factory=dict)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    damage: Damage = field(default_factory=dict)
