"""The controller: the broker that holds ``/controller`` and alone changes topics and leaders.

Everything it writes is a multi with a check of ``/controller_epoch`` (rule Z1), so that one who was deposed without
knowing can change nothing. Every act is written so that the next controller, or this one after a crash, goes on with
it:

    create   topic node, then the partition's folder, then its state. A partition without a state has never had a
    leader,
             and only such a one is created empty (rule R1).
    lead     a state that is there is led under the next epoch, and only with the log that it belongs to.
    delete   mark, stop serving, remove the logs, take the nodes away. The mark goes last: until then the name is taken.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from klog.config import LogConfig
from klog.coordination import controller as election
from klog.coordination import partition_states, paths, topics
from klog.coordination.controller import ControllerTerm
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.zookeeper import Check, ZooKeeper
from klog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KlogError,
    NoNode,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition, check_topic_name
from klog.server.image import PartitionImage, TopicImage
from klog.storage.log import Log

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

PARTITIONS_MAX = 30_000
"""Of one topic: its assignment is one znode, written in a multi of at most 512 KB (rule Z3)."""

T = TypeVar("T")


class Controller:
    """Event loop only; ZooKeeper and the disk are asked in threads, one act at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._term: ControllerTerm | None = None
        self._acting = asyncio.Lock()
        self._being_made: dict[str, asyncio.Task[None]] = {}

    # --- the term ---------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._term is not None and self._broker.fenced is None

    def require(self) -> None:
        """NotController unless this broker is it."""
        if not self.active:
            raise NotController(f"broker {self._broker.broker_id} is not the controller")

    @property
    def _fence(self) -> Sequence[Check]:
        if self._term is None:
            raise NotController(f"broker {self._broker.broker_id} is not the controller")
        return (self._term.fence,)

    async def stand(self) -> None:
        """Stand for election; if won, finish what was begun and lead whatever this broker may lead."""
        async with self._acting:
            term = await asyncio.to_thread(election.elect, self._zookeeper, self._broker.broker_id)
            self._broker.image.controller_id = term.broker_id
            if term.session != self._zookeeper.session_id:
                self._term = None
                return
            self._term = term
            await self._take_over()

    def leave(self) -> None:
        """Give the office up. In a thread."""
        if self._term is not None:
            election.resign(self._zookeeper, self._term)
            self._term = None

    async def _take_over(self) -> None:
        image = self._broker.image
        begun, found, overrides = await asyncio.to_thread(self._read_topics)
        for name in begun:
            log.info("finishing the deletion of topic %s", name)
            await self._delete(name)
        # What was led before the session was lost is shown so until it is led again: clients must not take a topic for
        # gone.
        there = {topic.name: topic for topic in found if topic.name not in begun}
        for name in set(image.topics) - set(there):
            del image.topics[name]
        for name, topic in there.items():
            fresh, old = self._image_of(topic, overrides[name]), image.topics.get(name)
            if old is not None and old.topic_id == fresh.topic_id:
                fresh = replace(fresh, partitions={**fresh.partitions, **old.partitions})
            image.topics[name] = fresh
        await self._lead([name for topic in image.topics.values() for name in self._own(topic)])

    def _read_topics(self) -> tuple[list[str], list[topics.Topic], dict[str, dict[str, str]]]:
        found = topics.read_all(self._zookeeper)
        found = [topics.give_id(self._zookeeper, topic, self._fence) for topic in found]
        configs = topics.configs(self._zookeeper, [topic.name for topic in found])
        overrides = {name: config.settings for name, config in configs.items()}
        return topics.being_deleted(self._zookeeper), found, overrides

    @staticmethod
    def all_overrides(zookeeper: ZooKeeper) -> dict[str, dict[str, str]]:
        """Every topic's own settings, by topic."""
        return {name: config.settings for name, config in topics.configs(zookeeper, topics.names(zookeeper)).items()}

    @staticmethod
    def _image_of(topic: topics.Topic, overrides: dict[str, str]) -> TopicImage:
        """A topic nobody leads yet."""
        assert topic.topic_id is not None
        partitions = {
            number: PartitionImage(NO_LEADER, -1, replicas, ()) for number, replicas in topic.partitions.items()
        }
        return TopicImage(topic.name, topic.topic_id, partitions, overrides)

    # --- leading ----------------------------------------------------------------------------------------------------

    def _own(self, topic: TopicImage) -> list[TopicPartition]:
        """The partitions of a topic that this broker has a replica of."""
        me = self._broker.broker_id
        return [TopicPartition(topic.name, number) for number, one in topic.partitions.items() if me in one.replicas]

    async def _lead(self, wanted: Sequence[TopicPartition]) -> None:
        """Lead, under a new epoch, those of these partitions that this broker may lead."""
        broker = self._broker
        names = sorted({name.topic for name in wanted})
        before, first = await asyncio.to_thread(
            lambda: (
                partition_states.read_many(self._zookeeper, wanted),
                topics.first_leader_epochs(self._zookeeper, names),
            )
        )
        logs = await asyncio.to_thread(self._open_logs, before)
        new: dict[TopicPartition, PartitionState] = {}
        again: dict[TopicPartition, PartitionState] = {}
        for name, partition_log in logs.items():
            state = before[name]
            last_epoch = max(partition_log.last_epoch, -1 if state is None else state.leader_epoch)
            mine = PartitionState(
                leader=broker.broker_id,
                leader_epoch=max(last_epoch + 1, first[name.topic]),
                isr=(broker.broker_id,),
                controller_epoch=self._term.epoch if self._term is not None else 0,
                version=-1 if state is None else state.version,
            )
            (new if state is None else again)[name] = mine
        await asyncio.to_thread(self._write_states, new, again)
        for name, state in {**new, **again}.items():
            broker.lead(name, logs[name], state.leader_epoch)
            self._show(name, state)

    def _open_logs(self, states: Mapping[TopicPartition, PartitionState | None]) -> dict[TopicPartition, Log]:
        """The logs with which this broker may lead (rule R1). In a thread."""
        dirs, topics_by_name = self._broker.log_dirs, self._broker.image.topics
        # One topic has one config: a thousand partitions need it made once.
        configs = {
            name: LogConfig.of(self._broker.config, topics_by_name[name].overrides)
            for name in {name.topic for name in states}
        }
        new = {
            name: (topics_by_name[name.topic].topic_id, configs[name.topic])
            for name, state in states.items()
            if state is None or state.new
        }
        found: dict[TopicPartition, Log] = {}
        try:
            found.update(dirs.logs_or_create(new))
        except KlogError as error:
            log.error("not leading %d new partitions: %s", len(new), error.message)
        committed = {
            name: address
            for one in dirs.dirs
            if one.failure is None
            for name, address in one.checkpoints.high_watermarks().items()
        }
        for name in states.keys() - new.keys():
            there = dirs.log(name)
            if there is None or dirs.topic_id(name) != topics_by_name[name.topic].topic_id:
                log.error(
                    "not leading %s: it has had messages and %s in the log dirs (%s); leading with an emptied dir "
                    "would lose them for good",
                    name,
                    "there is no log of it" if there is None else "the log there is another topic's",
                    ", ".join(self._broker.config.log_dirs),
                )
                continue
            there.reconfigure(configs[name.topic])
            found[name] = there
            if there.end.address < committed.get(name, 0):
                log.error(
                    "%s ends at %d, below the high watermark %d of its checkpoint: what lay between was lost with "
                    "its disk; leading all the same, for nobody else has it",
                    name,
                    there.end.address,
                    committed[name],
                )
        return found

    def _write_states(
        self, new: dict[TopicPartition, PartitionState], again: dict[TopicPartition, PartitionState]
    ) -> None:
        """In a thread. A folder is made before its first state, so none is written with the mark ``new``."""
        if new:
            partition_states.create_many(self._zookeeper, new, self._fence)
        if again:
            partition_states.write_many(self._zookeeper, again, self._fence)

    def _show(self, name: TopicPartition, state: PartitionState) -> None:
        """Bring the image up to what is written."""
        topic = self._broker.image.topics[name.topic]
        old = topic.partitions[name.partition]
        shown = PartitionImage(state.leader, state.leader_epoch, old.replicas, state.isr)
        self._broker.image.topics[name.topic] = replace(topic, partitions={**topic.partitions, name.partition: shown})

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_soon(self, name: str) -> asyncio.Task[None] | None:
        """Make a topic with the defaults, if that is not under way; what goes wrong is logged. None unless
        controller.
        """
        if name not in self._being_made:
            if not self.active:
                return None
            self._being_made[name] = self._broker.spawn(self._create_unasked(name))
        return self._being_made[name]

    def is_making(self, name: str) -> bool:
        """Whether a topic is being made that somebody asked for by asking about it."""
        return name in self._being_made

    async def _create_unasked(self, name: str) -> None:
        try:
            await self.create_topic(name, partitions=None, replication_factor=None, assignment=None, overrides={})
            log.info("topic %s made for a producer that asked for it (auto.create.topics.enable)", name)
        except TopicAlreadyExists:
            pass
        except KlogError as error:
            log.error("topic %s could not be made: %s", name, error.message)
        finally:
            self._being_made.pop(name, None)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
        overrides: Mapping[str, str],
        validate_only: bool = False,
    ) -> TopicImage:
        """Make a topic and lead it; None stands for the broker's default.

        Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidConfig, StorageError.
        """
        check_topic_name(name)
        LogConfig.of(self._broker.config, overrides)
        if assignment is None:
            assignment = self._place(0, self._default(partitions, "num.partitions"), replication_factor)
        self._check_assignment(0, assignment)
        async with self._acting:
            self.require()
            if name in self._broker.image.topics:
                raise TopicAlreadyExists(f"topic {name!r} already exists")
            if validate_only:
                shown = {n: PartitionImage(NO_LEADER, -1, tuple(ids), ()) for n, ids in assignment.items()}
                return TopicImage(name, uuid.UUID(int=0), shown, dict(overrides))
            made = await asyncio.to_thread(topics.create, self._zookeeper, name, assignment, overrides, self._fence)
            self._broker.image.topics[name] = self._image_of(made, dict(overrides))
            await self._lead(self._own(self._broker.image.topics[name]))
            return self._broker.image.topics[name]

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Give a topic more partitions, ``total`` in all; ``assignment`` is that of the new ones.

        Raises UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment.
        """
        async with self._acting:
            self.require()
            image = self._topic(name)
            there = len(image.partitions)
            if total <= there:
                raise InvalidPartitions(
                    f"topic {name!r} has {there} partitions; {total} is not more (partitions are never removed)"
                )
            if assignment is None:
                added = self._place(there, total - there, None)
            else:
                added = {there + number: list(ids) for number, ids in enumerate(assignment)}
                if len(added) != total - there:
                    raise InvalidReplicaAssignment(
                        f"{len(added)} assignments for the {total - there} new partitions of topic {name!r}"
                    )
            self._check_assignment(there, added)
            if validate_only:
                return image
            grown = await asyncio.to_thread(self._grow, name, added)
            fresh = self._image_of(grown, image.overrides)
            self._broker.image.topics[name] = replace(image, partitions={**fresh.partitions, **image.partitions})
            # Those led already go on in their epoch.
            await self._lead([one for one in self._own(self._broker.image.topics[name]) if one.partition in added])
            return self._broker.image.topics[name]

    def _grow(self, name: str, added: Mapping[int, Sequence[int]]) -> topics.Topic:
        """In a thread."""
        return topics.add_partitions(self._zookeeper, self._registered(name), added, self._fence)

    def _registered(self, name: str) -> topics.Topic:
        """The topic as it stands in ZooKeeper now. In a thread."""
        topic = topics.find(self._zookeeper, name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    async def change_overrides(
        self, name: str, change: Callable[[dict[str, str]], dict[str, str]], validate_only: bool = False
    ) -> None:
        """A topic's own settings become what ``change`` makes of them; they hold at once.

        ``change`` runs when no other act does, so that two changes never undo each other. Raises what it raises,
        UnknownTopicOrPartition, InvalidConfig.
        """
        async with self._acting:
            self.require()
            image = self._topic(name)
            overrides = change(dict(image.overrides))
            config = LogConfig.of(self._broker.config, overrides)
            if validate_only:
                return
            await asyncio.to_thread(self._write_overrides, name, overrides)
            self._broker.image.topics[name] = replace(image, overrides=overrides)
            for number in image.partitions:
                partition = self._broker.partitions.get(TopicPartition(name, number))
                if partition is not None:
                    partition.log.reconfigure(config)

    def _write_overrides(self, name: str, overrides: dict[str, str]) -> None:
        """In a thread."""
        topic = self._registered(name)
        there = topics.configs(self._zookeeper, [name])[name]
        topics.set_config(self._zookeeper, topic, replace(there, settings=overrides), self._fence)
        try:
            topics.forget_config_changes(self._zookeeper)
        except KlogError as error:  # the change is made; old notices go with the next one
            log.warning("old notices of changed settings stay for now: %s", error.message)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and the offsets that groups have committed in it (rule L10)."""
        async with self._acting:
            self.require()
            self._topic(name)
            await asyncio.to_thread(topics.mark_for_deletion, self._zookeeper, name, self._fence)
            await self._delete(name)
            log.info("topic %s deleted", name)

    async def _delete(self, name: str) -> None:
        broker = self._broker
        broker.image.topics.pop(name, None)
        gone = UnknownTopicOrPartition(f"topic {name!r} has been deleted")
        for led in [led for led in broker.partitions if led.topic == name]:
            broker.resign(led, gone)
        purges = await asyncio.to_thread(self._remove_logs, name)
        await asyncio.to_thread(self._remove_nodes, name)
        for purge in purges:
            broker.spawn(asyncio.to_thread(purge))

    def _remove_logs(self, name: str) -> list[Callable[[], None]]:
        """In a thread: the folders are renamed durably; what is returned removes their files."""
        dirs = self._broker.log_dirs
        there = [one.topic_partition for one in dirs.logs() if one.topic_partition.topic == name]
        removals = [dirs.remove(partition) for partition in there]
        return [purge for purge in removals if purge is not None]

    def _remove_nodes(self, name: str) -> None:
        """In a thread: committed offsets first, the registry's nodes and the mark last."""
        groups = self._children(paths.CONSUMERS)
        for group in groups:
            offsets = f"{paths.CONSUMERS}/{group}/offsets/{name}"
            for partition in self._children(offsets):
                self._zookeeper.delete(f"{offsets}/{partition}")
            if self._zookeeper.exists(offsets) is not None:
                self._zookeeper.delete(offsets)
        topics.finish_deletion(self._zookeeper, name, self._fence)

    def _children(self, path: str) -> list[str]:
        try:
            return self._zookeeper.children(path)
        except NoNode:
            return []

    # --- placement --------------------------------------------------------------------------------------------------

    def _topic(self, name: str) -> TopicImage:
        found = self._broker.image.topics.get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    def _default(self, given: int | None, setting: str) -> int:
        return self._broker.config.integer(setting) if given is None else given

    def _place(self, first: int, count: int, replication_factor: int | None) -> dict[int, list[int]]:
        """Partitions ``first`` and on, over the live brokers in turn."""
        live = sorted(self._broker.image.brokers)
        factor = self._default(replication_factor, "default.replication.factor")
        if not 1 <= count <= PARTITIONS_MAX:
            raise InvalidPartitions(f"{count} partitions; 1 to {PARTITIONS_MAX} are allowed")
        if not 1 <= factor <= len(live):
            raise InvalidReplicationFactor(
                f"replication factor {factor}; 1 to {len(live)} are possible with the live brokers "
                f"({', '.join(map(str, live))})"
            )
        return {
            number: [live[(number + replica) % len(live)] for replica in range(factor)]
            for number in range(first, first + count)
        }

    def _check_assignment(self, first: int, assignment: Mapping[int, Sequence[int]]) -> None:
        live = set(self._broker.image.brokers)
        if sorted(assignment) != list(range(first, first + len(assignment))) or not assignment:
            raise InvalidReplicaAssignment(
                f"partitions {sorted(assignment)} are assigned; they must follow one another from {first} on"
            )
        if len({len(ids) for ids in assignment.values()}) != 1:
            raise InvalidReplicaAssignment("the partitions must all have the same number of replicas")
        for number, ids in assignment.items():
            unknown = sorted(set(ids) - live)
            if not ids or len(set(ids)) != len(ids) or unknown:
                what = f"brokers {unknown} are not alive" if unknown else "no broker, or one twice"
                raise InvalidReplicaAssignment(f"partition {number} is assigned to {list(ids)}: {what}")
