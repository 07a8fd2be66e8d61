"""The controller's operations on topics: create, grow, configure, delete. The next controller can finish each.

create   writes the topic node, then the states, marked new. The leaders create their logs and clear the mark. A
         partition without a state has never had a leader.
delete   marks the topic's node: the controller and the clients no longer see the topic. It keeps everything for
         ``klog.trash.retention.ms``: `klog.server.controller.deleted_topics`. Then, or at once where that is 0:
purge    writes the mark of ``/admin/delete_topics``. Every replica removes its log and reports that. Then the committed
         offsets are removed, then the nodes, the mark last. Until then the name is taken. Replicas of brokers that are
         away are removed when they are back; a broker that has never been registered has none.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from klog.config import LogConfig
from klog.coordination import config_notices, topic_deletion, topics
from klog.coordination.acts import AUTO_CREATE, Act, Actor, new_act
from klog.coordination.partition_states import NO_LEADER
from klog.coordination.topics import Deletion
from klog.coordination.zookeeper import Operation
from klog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    KlogError,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from klog.names import INTERNAL_TOPICS, TopicPartition, check_new_topic_name
from klog.protocol.interbroker import DELETED_TOPIC_EPOCH
from klog.replication.isr import check_flush_rule
from klog.replication.placement import check_factor, place, place_more
from klog.server.controller import requests
from klog.server.controller.controller_part import ControllerPart, Tools
from klog.server.controller.requests import Stop
from klog.server.image import ClusterImage, PartitionImage, TopicImage

log = logging.getLogger(__name__)

PARTITIONS_MAX = 30_000
"""Per topic: its assignment is one znode, written in a multi of at most 512 KB (rule Z3)."""
LED_WITHIN_S = 10.0
"""How long a request that creates partitions waits for their leaders; a broker that hangs has lost its session by
then."""
DELETED_WITHIN_S = 5.0
"""How long a request waits for a deletion, which then goes on."""


Admit = Callable[[int], None]
"""Called before that many partitions are created or deleted; its exception is the request's error."""


def admit_all(_: int) -> None:
    """For the broker's own requests."""


def may_replace(deleted: topics.Topic, actor: Actor) -> bool:
    """Whether creating a topic of this name purges the deleted one.

    Yes for Kafka's clients, which take the answer to a deletion for the name to be free, and for internal topics, which
    are always needed. No for klog's own, which knows better, and for automatic creation, which happens by chance.
    """
    assert deleted.deletion is not None
    is_refused = deleted.deletion.is_name_kept or actor.is_klog or actor.client.startswith(AUTO_CREATE)
    return not is_refused or deleted.name in INTERNAL_TOPICS


class TopicManager(ControllerPart):
    """ZooKeeper is called under the controller's lock."""

    def __init__(self, tools: Tools, image: ClusterImage) -> None:
        super().__init__(tools)
        self._config = self._runtime.config
        self._image = image
        self._deleted: dict[str, asyncio.Event] = {}

    def start(self) -> None:
        """The term has begun."""
        state = self._state
        state.deletions_due.set()
        state.keep_up(state.deletions_due, self._finish_deletions, "topics are not deleted yet")

    # --- create -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
        overrides: Mapping[str, str],
        actor: Actor,
        validate_only: bool = False,
        admit: Admit = admit_all,
    ) -> TopicImage:
        """Create a topic and wait for its leaders; None means the broker's default.

        Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidConfig, StorageError.
        """
        check_new_topic_name(name)
        own = self._config.of_topic(name)
        config = LogConfig.of(own, overrides)
        state = self._state
        async with state.lock:
            state.require()
            context = state.context
            if name in context.topics:
                raise TopicAlreadyExists(
                    f"topic {name!r} " + ("is still being deleted" if name in context.deleting else "already exists")
                )
            deleted = context.deleted.get(name)
            if deleted is not None and not (validate_only and may_replace(deleted, actor)):
                raise TopicAlreadyExists(
                    f"topic {name!r} was deleted and keeps its name until it is purged: `klog topic restore {name}` "
                    f"brings it back, `klog topic delete {name} --purge` deletes it for good"
                )
            if assignment is None:
                count = own.integer("num.partitions") if partitions is None else partitions
                if not 1 <= count <= PARTITIONS_MAX:
                    raise InvalidPartitions(f"the number of partitions must be 1 to {PARTITIONS_MAX}, got {count}")
                sites = context.sites
                factor = own.integer("default.replication.factor") if replication_factor is None else replication_factor
                check_factor(factor, sites)
                assignment = place(sites, count, factor, start=random.randrange(len(sites)))
            self._check_assignment(0, assignment)
            factor = len(assignment[0])
            self._check_flush_rule(config, factor)
            if config.min_insync_replicas > factor and not validate_only:
                log.warning(
                    "topic %s: min.insync.replicas is %d, above the replication factor %d: acks=all needs %d replicas",
                    name,
                    config.min_insync_replicas,
                    factor,
                    factor,
                )
            shown = {number: PartitionImage(NO_LEADER, -1, tuple(ids), ()) for number, ids in assignment.items()}
            if validate_only:
                return TopicImage(name, uuid.UUID(int=0), shown, dict(overrides))
            admit(len(assignment))
            act = new_act(
                "topic-create",
                actor,
                topic=name,
                after={
                    "partitions": len(assignment),
                    "replication_factor": factor,
                    "assignment": {str(number): list(ids) for number, ids in assignment.items()},
                    "settings": dict(overrides),
                },
            )
            made, first_epoch = await state.write(self._make, name, assignment, overrides, act)
            context.add_topic(made, dict(overrides), first_epoch)
            self._runtime.tell("topic-created", topic=name, partitions=len(assignment), replication_factor=factor)
            self._channels.send_metadata(topics_whole=[name])
            await self._partitions.change(made.topic_partitions, context.decide)
        await self._led(made.topic_partitions)
        assert made.topic_id is not None
        return self._image.topics.get(name) or TopicImage(name, made.topic_id, shown, dict(overrides))

    async def _led(self, names: Iterable[TopicPartition]) -> None:
        """Wait until the leaders lead, and briefly until all brokers know them."""
        states = self._state.context.states
        await self._channels.acknowledged({states[name].leader for name in names if name in states}, LED_WITHIN_S)
        await self._channels.acknowledged(self._state.context.live)

    def _make(
        self, name: str, assignment: Mapping[int, Sequence[int]], overrides: Mapping[str, str], act: Act
    ) -> tuple[topics.Topic, int]:
        """In a thread."""
        made = topics.create(self._zookeeper, name, assignment, overrides, self._state.fence, [act.write])
        return made, topics.first_leader_epochs(self._zookeeper, [name])[name]

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        actor: Actor,
        validate_only: bool = False,
        admit: Admit = admit_all,
    ) -> None:
        """Add partitions to a topic, up to ``total``; ``assignment``: that of the new ones.

        Raises UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment, ReassignmentInProgress.
        """
        state = self._state
        async with state.lock:
            state.require()
            context = state.context
            topic = self._topic(name)
            if topic.adding or topic.removing:
                raise ReassignmentInProgress(
                    f"cannot add partitions to topic {name!r} while some of its partitions are being reassigned"
                )
            there = len(topic.partitions)
            if total <= there:
                raise InvalidPartitions(
                    f"the new number of partitions of topic {name!r} must be more than {there}, got {total}"
                )
            if total > PARTITIONS_MAX:
                raise InvalidPartitions(f"the number of partitions must be at most {PARTITIONS_MAX}, got {total}")
            added: Mapping[int, Sequence[int]]
            if assignment is None:
                check_factor(len(next(iter(topic.partitions.values()))), context.sites)
                added = place_more(context.sites, topic.partitions, total - there)
            else:
                added = {there + number: tuple(ids) for number, ids in enumerate(assignment)}
                if len(added) != total - there:
                    raise InvalidReplicaAssignment(
                        f"topic {name!r} gets {total - there} new partitions, but {len(added)} assignments are given"
                    )
            self._check_assignment(there, added)
            if validate_only:
                return
            admit(len(added))
            act = new_act(
                "partitions-add", actor, topic=name, before={"partitions": there}, after={"partitions": total}
            )
            grown = await state.write(self._grow, name, added, act)
            context.topics[name] = grown
            self._runtime.tell("partitions-added", topic=name, partitions=total)
            self._channels.send_metadata(topics_whole=[name])
            await self._partitions.change([TopicPartition(name, number) for number in added], context.decide)
        await self._led([TopicPartition(name, number) for number in added])

    def _grow(self, name: str, added: Mapping[int, Sequence[int]], act: Act) -> topics.Topic:
        """In a thread."""
        topic = self._state.registered(name)
        return topics.add_partitions(self._zookeeper, topic, added, [*self._state.fence, act.write])

    # --- configure --------------------------------------------------------------------------------------------------

    async def change_overrides(
        self,
        name: str,
        change: Callable[[dict[str, str]], dict[str, str]],
        *,
        actor: Actor,
        validate_only: bool = False,
    ) -> None:
        """Replace a topic's own settings by what ``change`` returns; they apply at once, on every live broker.

        ``change`` runs under the lock, so that two changes never undo each other. Raises what it raises,
        UnknownTopicOrPartition, InvalidConfig.
        """
        state = self._state
        async with state.lock:
            state.require()
            topic = self._topic(name)
            before = dict(state.context.overrides.get(name, {}))
            overrides = change(dict(before))
            self.check_settings(name, overrides, max(map(len, topic.partitions.values()), default=1))
            if validate_only:
                return
            act = new_act("topic-settings", actor, topic=name, before=before, after=dict(overrides))
            if await state.write(self._write_overrides, name, overrides, act):
                self._runtime.tell("settings-changed", topic=name, settings=overrides)
            elif overrides == before:
                return
            state.context.overrides[name] = overrides
            self._channels.send_metadata(topics_whole=[name])
            state.mark_dirty(topic.topic_partitions)  # unclean elections may be allowed now
        await self._channels.acknowledged(state.context.live)

    def check_settings(self, topic: str, overrides: Mapping[str, str], factor: int) -> None:
        """Raise InvalidConfig if a topic of this replication factor cannot have these settings."""
        self._check_flush_rule(LogConfig.of(self._config.of_topic(topic), overrides), factor)

    def _check_flush_rule(self, config: LogConfig, factor: int) -> None:
        """Raise InvalidConfig if lag could not be measured (rule R4)."""
        if factor > 1:
            check_flush_rule(config, self._config.integer("replica.lag.time.max.ms"))

    def _write_overrides(self, name: str, overrides: dict[str, str], act: Act) -> bool:
        """In a thread. False if the topic has these settings already: then there is no act."""
        topic = self._state.registered(name)
        damage: dict[str, str] = {}
        there = topics.configs(self._zookeeper, [name], damage=damage)[name]  # writing repairs what is damaged
        if there.settings == overrides and not damage:
            return False
        fence: list[Operation] = [*self._state.fence, act.write]
        topics.set_config(self._zookeeper, topic, replace(there, settings=overrides), fence)
        config_notices.forget(self._zookeeper)
        return True

    # --- delete -----------------------------------------------------------------------------------------------------

    async def delete(self, name: str, *, actor: Actor, admit: Admit = admit_all) -> Callable[[], Awaitable[bool]]:
        """Delete a topic, its messages and the offsets that groups have committed in it (rule L10).

        The topic is marked when this returns. The result waits until the brokers know that or, without a delay of
        deletions, as that of `purge`.
        """
        state = self._state
        async with state.lock:
            state.require()
            topic = self._topic(name)
            admit(len(topic.partitions))
            act = new_act(
                "topic-delete",
                actor,
                topic=name,
                before={
                    "partitions": len(topic.partitions),
                    "assignment": {str(number): list(ids) for number, ids in topic.partitions.items()},
                    "settings": dict(state.context.overrides.get(name, {})),
                },
            )
            retention_ms = self._config.integer("klog.trash.retention.ms")
            if retention_ms <= 0:
                return await self.purge(topic, act)
            marked = await state.write(self._mark, topic, Deletion(retention_ms, act.act_id, actor.is_klog), act)
            state.context.hide_topic(name)
            state.context.deleted[name] = marked
            self._runtime.tell("topic-deleted", topic=name)
            self._channels.send_metadata(gone={name: topic.topic_id})
            stop = Stop(topic.topic_id, DELETED_TOPIC_EPOCH, delete=False)
            for partition in topic.topic_partitions:
                for broker_id in topic.partitions[partition.partition]:
                    self._channels.send_stop(broker_id, {partition: stop})
            return functools.partial(self._channels.acknowledged, set(state.context.live), DELETED_WITHIN_S)

    def _mark(self, topic: topics.Topic, deletion: Deletion, act: Act) -> topics.Topic:
        """In a thread: mark the topic for a delayed deletion."""
        self._state.rewrite(
            topic.name,
            lambda there: replace(there, topic_id=topic.topic_id, deletion=deletion),
            lambda *_: act,
        )
        return self._state.registered(topic.name)

    async def purge(self, topic: topics.Topic, act: Act | None) -> Callable[[], Awaitable[bool]]:
        """Under the controller's lock: delete a topic for good.

        The result waits until that is done: False if it takes longer than DELETED_WITHIN_S. It does not wait for
        brokers that are away: the topic is deleted when they are back.
        """
        state, name = self._state, topic.name
        fence: list[Operation] = [*state.fence, *(() if act is None else (act.write,))]
        await state.write(topic_deletion.mark_for_deletion, self._zookeeper, name, fence)
        done = self._begin_marked(topic)
        away = {one for _, one in state.context.deleting[name] if not state.context.is_live(one)}
        if away:
            log.warning(
                "topic %s is marked, and will be deleted when brokers %s are back",
                name,
                ", ".join(map(str, sorted(away))),
            )

        async def deleted() -> bool:
            if away:
                return True
            try:
                async with asyncio.timeout(DELETED_WITHIN_S):
                    await done.wait()
            except TimeoutError:
                log.warning("topic %s is not deleted yet; the deletion continues", name)
                return False
            return True

        return deleted

    async def begin_marked(self, name: str) -> None:
        """Under the controller's lock: delete a topic that another program has marked in ZooKeeper."""
        state = self._state
        await state.write(topic_deletion.take_on_deletion, self._zookeeper, name, state.fence)
        log.info("topic %s is marked for deletion in ZooKeeper: deleting it", name)
        self._begin_marked(state.context.deleted.get(name) or state.context.topics[name])

    def _begin_marked(self, topic: topics.Topic) -> asyncio.Event:
        context, name = self._state.context, topic.name
        if context.deleted.pop(name, None) is None:
            self._runtime.tell("topic-deleted", topic=name)
        context.begin_deletion(topic)
        self._channels.send_metadata(gone={name: topic.topic_id})
        self._advance_deletion(name)
        return self._deleted.setdefault(name, asyncio.Event())

    def advance_deletions(self) -> None:
        """Continue every deletion: an earlier controller's, one that a broker was away from, one that has failed."""
        for name in self._state.context.deleting:
            self._advance_deletion(name)

    def _advance_deletion(self, name: str) -> None:
        """Have each live broker delete its replicas that are left; finish without any."""
        context = self._state.context
        if not context.deleting[name]:
            self._state.deletions_due.set()
        stops: dict[int, dict[TopicPartition, Stop]] = defaultdict(dict)
        for partition, broker_id in sorted(context.deleting[name]):
            if context.is_live(broker_id):
                stops[broker_id][partition] = requests.deletion(context, name)
        for broker_id, what in stops.items():
            self._channels.send_stop(broker_id, what)

    async def _finish_deletions(self) -> None:
        for name in [name for name, left in self._state.context.deleting.items() if not left]:
            # Shielded from the term's end: what is written is told.
            await asyncio.shield(self._runtime.spawn(self._finish_deletion(name)))

    async def _finish_deletion(self, name: str) -> None:
        state = self._state
        async with state.lock:
            if not state.active or state.context.deleting.get(name) != set():
                return  # finished by another, which began at the same time; the name may be in use again
            try:
                await state.write(topic_deletion.finish_deletion, self._zookeeper, name, state.fence)
            except KlogError as error:  # `DeletedTopics` has it tried again
                log.error("topic %s is not deleted yet: %s", name, error.message)
                return
            state.context.forget_topic(name)
            log.info("topic %s deleted", name)
            self._deleted.pop(name, asyncio.Event()).set()

    # --- checks -----------------------------------------------------------------------------------------------------

    def _topic(self, name: str) -> topics.Topic:
        context = self._state.context
        found = context.topics.get(name)
        if found is None or name in context.deleting:
            raise UnknownTopicOrPartition.of_topics(name)
        return found

    def _check_assignment(self, first: int, assignment: Mapping[int, Sequence[int]]) -> None:
        live = set(self._state.context.live)
        if sorted(assignment) != list(range(first, first + len(assignment))) or not assignment:
            raise InvalidReplicaAssignment(
                f"the assigned partitions must be numbered from {first} without gaps, got {sorted(assignment)}"
            )
        if len({len(ids) for ids in assignment.values()}) != 1:
            raise InvalidReplicaAssignment("the partitions must all have the same number of replicas")
        for number, ids in assignment.items():
            unknown = sorted(set(ids) - live)
            if not ids or len(set(ids)) != len(ids) or unknown:
                what = f"brokers {unknown} are not alive" if unknown else "no broker, or one twice"
                raise InvalidReplicaAssignment(f"partition {number} is assigned to {list(ids)}: {what}")
