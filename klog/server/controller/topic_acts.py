"""What the controller does with topics: make, grow, configure, delete. Each act can be gone on with by the next one.

create   topic node, then the states, marked new: its leaders make their logs and clear the mark. A partition
         without a state has never had a leader.
delete   mark; nobody leads it; every replica removes its log and says so; committed offsets; then the nodes, the
         mark last. Until then the name is taken. Replicas of brokers that are away are removed when they are back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from klog.config import LogConfig
from klog.coordination import topics
from klog.coordination.partition_states import NO_LEADER
from klog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    KlogError,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition, check_topic_name
from klog.replication import replica_machine
from klog.replication.isr import check_flush_rule
from klog.replication.placement import check_factor, place, place_more
from klog.replication.replica_machine import ReplicaStage
from klog.server.controller.requests import DELETED_TOPIC_EPOCH
from klog.server.image import PartitionImage, TopicImage

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)

PARTITIONS_MAX = 30_000
"""Of one topic: its assignment is one znode, written in a multi of at most 512 KB (rule Z3)."""
LED_WITHIN_S = 10.0
"""How long whoever makes partitions waits for their leaders; one that hangs has lost its session by then."""
DELETED_WITHIN_S = 5.0
"""How long a deletion is waited for by whoever asked; it goes on after that."""


class TopicActs:
    """Event loop only; ZooKeeper is asked in threads, under the controller's lock."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._deleting: dict[str, dict[tuple[TopicPartition, int], ReplicaStage]] = {}
        """Topic -> (partition, broker) -> how far the deletion of that replica is."""
        self._deleted: dict[str, asyncio.Event] = {}

    # --- make -------------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
        overrides: Mapping[str, str],
        validate_only: bool = False,
    ) -> TopicImage:
        """Make a topic and have it led; None stands for the broker's default.

        Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidConfig, StorageError.
        """
        check_topic_name(name)
        config = LogConfig.of(self._broker.config, overrides)
        controller = self._controller
        async with controller.acting:
            controller.require()
            context = controller.context
            if name in context.topics:
                raise TopicAlreadyExists(
                    f"topic {name!r} " + ("is still being deleted" if name in context.deleting else "already exists")
                )
            if assignment is None:
                count = self._default(partitions, "num.partitions")
                if not 1 <= count <= PARTITIONS_MAX:
                    raise InvalidPartitions(f"{count} partitions; 1 to {PARTITIONS_MAX} are allowed")
                racks = context.racks
                factor = self._default(replication_factor, "default.replication.factor")
                check_factor(factor, len(racks))
                assignment = place(racks, count, factor, start=random.randrange(len(racks)))
            self._check_assignment(0, assignment)
            factor = len(assignment[0])
            self._check_flush_rule(config, factor)
            if config.min_insync_replicas > factor and not validate_only:
                log.warning(
                    "topic %s: min.insync.replicas is %d, its replication factor %d: acks=all is answered by %d",
                    name,
                    config.min_insync_replicas,
                    factor,
                    factor,
                )
            shown = {number: PartitionImage(NO_LEADER, -1, tuple(ids), ()) for number, ids in assignment.items()}
            if validate_only:
                return TopicImage(name, uuid.UUID(int=0), shown, dict(overrides))
            made, first_epoch = await controller.writing(self._make, name, assignment, overrides)
            context.topics[name] = made
            context.overrides[name] = dict(overrides)
            context.first_epochs[name] = first_epoch
            self._broker.tell("topic-created", topic=name, partitions=len(assignment), replication_factor=factor)
            controller.tell_metadata(topics_whole=[name])
            await controller.change(made.topic_partitions, context.decide)
        await self._led(made.topic_partitions)
        assert made.topic_id is not None
        return self._broker.image.topics.get(name) or TopicImage(name, made.topic_id, shown, dict(overrides))

    async def _led(self, names: Iterable[TopicPartition]) -> None:
        """Wait until the leaders lead, and for a moment until everybody knows."""
        states = self._controller.context.states
        await self._controller.told({states[name].leader for name in names if name in states}, LED_WITHIN_S)
        await self._controller.told()

    def _make(
        self, name: str, assignment: Mapping[int, Sequence[int]], overrides: Mapping[str, str]
    ) -> tuple[topics.Topic, int]:
        """In a thread."""
        made = topics.create(self._zookeeper, name, assignment, overrides, self._controller.fence)
        return made, topics.first_leader_epochs(self._zookeeper, [name])[name]

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions, ``total`` in all; ``assignment`` is that of the new ones.

        Raises UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment, ReassignmentInProgress.
        """
        controller = self._controller
        async with controller.acting:
            controller.require()
            context = controller.context
            topic = self._topic(name)
            if topic.adding or topic.removing:
                raise ReassignmentInProgress(
                    f"partitions of topic {name!r} are being reassigned: it can grow when that is over"
                )
            there = len(topic.partitions)
            if total <= there:
                raise InvalidPartitions(
                    f"topic {name!r} has {there} partitions; {total} is not more (partitions are never removed)"
                )
            if total > PARTITIONS_MAX:
                raise InvalidPartitions(f"{total} partitions; up to {PARTITIONS_MAX} are allowed")
            added: Mapping[int, Sequence[int]]
            if assignment is None:
                check_factor(len(next(iter(topic.partitions.values()))), len(context.racks))
                added = place_more(context.racks, topic.partitions, total - there)
            else:
                added = {there + number: tuple(ids) for number, ids in enumerate(assignment)}
                if len(added) != total - there:
                    raise InvalidReplicaAssignment(
                        f"{len(added)} assignments for the {total - there} new partitions of topic {name!r}"
                    )
            self._check_assignment(there, added)
            if validate_only:
                return
            grown = await controller.writing(self._grow, name, added)
            context.topics[name] = grown
            self._broker.tell("partitions-added", topic=name, partitions=total)
            controller.tell_metadata(topics_whole=[name])
            await controller.change([TopicPartition(name, number) for number in added], context.decide)
        await self._led([TopicPartition(name, number) for number in added])

    def _grow(self, name: str, added: Mapping[int, Sequence[int]]) -> topics.Topic:
        """In a thread."""
        return topics.add_partitions(self._zookeeper, self._registered(name), added, self._controller.fence)

    def _registered(self, name: str) -> topics.Topic:
        """The topic as it stands in ZooKeeper now. In a thread."""
        topic = topics.find(self._zookeeper, name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    # --- configure --------------------------------------------------------------------------------------------------

    async def change_overrides(
        self, name: str, change: Callable[[dict[str, str]], dict[str, str]], validate_only: bool = False
    ) -> None:
        """A topic's own settings become what ``change`` makes of them; they hold at once, on every live broker.

        ``change`` runs when no other act does, so that two changes never undo each other. Raises what it raises,
        UnknownTopicOrPartition, InvalidConfig.
        """
        controller = self._controller
        async with controller.acting:
            controller.require()
            topic = self._topic(name)
            overrides = change(dict(controller.context.overrides.get(name, {})))
            self.check_settings(overrides, max(map(len, topic.partitions.values()), default=1))
            if validate_only:
                return
            await controller.writing(self._write_overrides, name, overrides)
            controller.context.overrides[name] = overrides
            self._broker.tell("settings-changed", topic=name, settings=overrides)
            controller.tell_metadata(topics_whole=[name])
            controller.unsettle(topic.topic_partitions)  # unclean elections may be allowed now
        await controller.told()

    def check_settings(self, overrides: Mapping[str, str], factor: int) -> None:
        """InvalidConfig where a topic of this factor cannot have these settings."""
        self._check_flush_rule(LogConfig.of(self._broker.config, overrides), factor)

    def _check_flush_rule(self, config: LogConfig, factor: int) -> None:
        """InvalidConfig where followers could not be told to be late (rule R4)."""
        if factor > 1:
            check_flush_rule(config, self._broker.config.integer("replica.lag.time.max.ms"))

    def _write_overrides(self, name: str, overrides: dict[str, str]) -> None:
        """In a thread."""
        topic = self._registered(name)
        there = topics.configs(self._zookeeper, [name], damage={})[name]  # what is damaged is mended by this
        topics.set_config(self._zookeeper, topic, replace(there, settings=overrides), self._controller.fence)
        try:
            topics.forget_config_changes(self._zookeeper)
        except KlogError as error:  # the change is made; old notices go with the next one
            log.warning("old notices of changed settings stay for now: %s", error.message)

    # --- delete -----------------------------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        """Delete a topic, its messages and the offsets that groups have committed in it (rule L10).

        Done when it returns, unless a broker with a replica is away: then it is marked, and done when that is back.
        """
        controller = self._controller
        async with controller.acting:
            controller.require()
            self._topic(name)
            await controller.writing(topics.mark_for_deletion, self._zookeeper, name, controller.fence)
            controller.context.deleting.add(name)
            self._broker.tell("topic-deleted", topic=name)
            controller.tell_metadata(gone={name: controller.context.topics[name].topic_id})
            done = self._begin_deletion(name)
            away = {
                broker_id
                for (_, broker_id), stage in self._deleting[name].items()
                if stage is ReplicaStage.DELETION_INELIGIBLE
            }
        if away:
            log.warning("topic %s is deleted when brokers %s are back", name, ", ".join(map(str, sorted(away))))
            return
        try:
            async with asyncio.timeout(DELETED_WITHIN_S):
                await done.wait()
        except TimeoutError:
            log.warning("the deletion of topic %s goes on", name)

    async def begin_marked(self, name: str) -> None:
        """Under the controller's lock: begin the deletion of a topic that another has marked in ZooKeeper."""
        controller = self._controller
        await controller.writing(topics.take_on_deletion, self._zookeeper, name, controller.fence)
        controller.context.deleting.add(name)
        log.info("topic %s is deleted as ZooKeeper asks", name)
        self._broker.tell("topic-deleted", topic=name)
        controller.tell_metadata(gone={name: controller.context.topics[name].topic_id})
        self._begin_deletion(name)

    def _begin_deletion(self, name: str) -> asyncio.Event:
        """Tell every replica to go; those of brokers that are away wait."""
        topic = self._controller.context.topics[name]
        self._deleting[name] = {
            (partition, broker_id): ReplicaStage.OFFLINE
            for partition in topic.topic_partitions
            for broker_id in topic.partitions[partition.partition]
        }
        self._tell_to_delete(name)
        return self._deleted.setdefault(name, asyncio.Event())

    def _tell_to_delete(self, name: str) -> None:
        """Every replica that is not deleted yet, at brokers that live."""
        context, stages = self._controller.context, self._deleting[name]
        stops: dict[int, dict[TopicPartition, tuple[uuid.UUID | None, int, bool]]] = defaultdict(dict)
        for (partition, broker_id), stage in stages.items():
            if stage is ReplicaStage.DELETION_SUCCESSFUL:
                continue
            if stage is ReplicaStage.DELETION_INELIGIBLE:
                self._step(name, partition, broker_id, ReplicaStage.OFFLINE)
            if not context.is_live(broker_id):
                after = ReplicaStage.DELETION_INELIGIBLE
            else:
                after = ReplicaStage.DELETION_STARTED
                stops[broker_id][partition] = (context.topics[name].topic_id, DELETED_TOPIC_EPOCH, True)
            if stages[partition, broker_id] is not after:
                self._step(name, partition, broker_id, after)
        for broker_id, what in stops.items():
            self._controller.tell_stop(broker_id, what)

    def _step(self, name: str, partition: TopicPartition, broker_id: int, after: ReplicaStage) -> None:
        stages = self._deleting[name]
        replica_machine.check(stages[partition, broker_id], after, f"replica {broker_id} of {partition}")
        stages[partition, broker_id] = after

    async def go_on(self) -> None:
        """Go on with deletions that were begun: by an earlier controller, or while a broker was away."""
        if not self._controller.active:
            return
        for name in list(self._deleting.keys() - self._controller.context.deleting):
            del self._deleting[name]
        for name in self._controller.context.deleting:
            if name not in self._deleting:
                log.info("finishing the deletion of topic %s", name)
                self._begin_deletion(name)
            else:
                self._tell_to_delete(name)

    def stopped(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas of a broker have stopped; those of topics that are being deleted are gone."""
        for name in names:
            stages = self._deleting.get(name.topic, {})
            if stages.get((name, broker_id)) is ReplicaStage.DELETION_STARTED:
                self._step(name.topic, name, broker_id, ReplicaStage.DELETION_SUCCESSFUL)
        for topic in {name.topic for name in names} & self._deleting.keys():
            if all(stage is ReplicaStage.DELETION_SUCCESSFUL for stage in self._deleting[topic].values()):
                del self._deleting[topic]
                self._broker.spawn(self._finish_deletion(topic))

    async def _finish_deletion(self, name: str) -> None:
        controller = self._controller
        async with controller.acting:
            if not controller.active or name not in controller.context.deleting:
                return
            try:
                await controller.writing(topics.finish_deletion, self._zookeeper, name, controller.fence)
            except KlogError as error:
                log.error("topic %s is not deleted yet: %s", name, error.message)
                return
            controller.context.forget_topic(name)
            log.info("topic %s deleted", name)
            self._deleted.pop(name, asyncio.Event()).set()

    # --- checks -----------------------------------------------------------------------------------------------------

    def _topic(self, name: str) -> topics.Topic:
        context = self._controller.context
        found = context.topics.get(name)
        if found is None or name in context.deleting:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    def _default(self, given: int | None, setting: str) -> int:
        return self._broker.config.integer(setting) if given is None else given

    def _check_assignment(self, first: int, assignment: Mapping[int, Sequence[int]]) -> None:
        live = set(self._controller.context.live)
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
