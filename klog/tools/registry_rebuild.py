"""``klog zookeeper rebuild``: rebuild the registries in ZooKeeper from brokers' log dirs, where its data are lost.

First a plan, from what the dirs tell (`klog.tools.registry_facts`); then the writes, into a ZooKeeper that knows no
cluster. The cluster's id is written last: without it no broker that has logs starts, so a rebuild that was cut off is
run again and finds what it has written.

Rules
    Nothing that was acknowledged is lost. Of the replicas that were found the one that goes furthest leads, under an
    epoch above all others, and the others follow it as after any change of leader. Where no replica was found of those
    that were last known to be in sync, no broker leads until one of them is back.
    Nothing is left out: a replica whose topic the registries no longer had comes back as a topic, with a note.

What only ZooKeeper had is gone: groups and their offsets, schemas, brokers' dynamic settings, the epochs of deleted
topics. The session of every broker is over, so brokers register by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from klog.coordination import cluster, entries, partition_states, paths, producer_ids, topics
from klog.coordination import controller_election as controllers
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.registry_copy import PartitionCopy, RegistryCopy, TopicCopy
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.errors import NodeExists, Refused
from klog.metrics import Count
from klog.names import TopicPartition, counted
from klog.tools.registry_facts import DirFacts, Reach, ReplicaFacts

EPOCHS_UNSEEN: Final = 100
"""More elections than there can have been since the copies were written. Clients do not go back to a lower epoch."""
PRODUCER_IDS_UNSEEN: Final = 1_000_000
"""An id that two producers have makes messages of the one repetitions of the other's, and drops them."""


@dataclass(frozen=True, slots=True)
class RebuildRow:
    """``kind``: cluster, topic or partition. ``found_on``: brokers whose log dirs have it."""

    kind: str
    name: str
    found_on: tuple[int, ...]
    action: str


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    topic_id: UUID
    settings: Mapping[str, str]
    assignment: dict[int, tuple[int, ...]]
    states: dict[int, PartitionState]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    cluster_id: str
    controller_epoch: int
    producer_ids_below: int
    topics: tuple[TopicPlan, ...]
    rows: tuple[RebuildRow, ...]
    leaderless: int
    """Partitions without a leader until a broker is back whose log dirs were not given."""


def plan_rebuild(dirs: Sequence[DirFacts]) -> RebuildPlan:
    """What would be written. ``dirs`` are of one cluster, at least one of them."""
    copies = sorted((one.copy for one in dirs if one.copy is not None), key=lambda one: one.written_ms)
    brokers = tuple(sorted({one.broker_id for one in dirs}))
    controller_epoch = max((one.controller_epoch for one in copies), default=0) + EPOCHS_UNSEEN
    below = max((one.producer_ids_below for one in copies), default=0)
    below = max(below, *(one.producer_id_max + 1 for one in dirs)) + PRODUCER_IDS_UNSEEN
    cluster_id = dirs[0].cluster_id
    rows = [RebuildRow("cluster", cluster_id, brokers, f"controller epoch {controller_epoch}")]
    plans = []
    leaderless = 0
    replicas: dict[str, list[tuple[int, int, ReplicaFacts]]] = {}
    for one in dirs:
        for partition, facts in one.replicas.items():
            replicas.setdefault(partition.topic, []).append((one.broker_id, partition.partition, facts))
    for name in sorted(replicas.keys() | {topic for copy in copies for topic in copy.topics}):
        found = _Found(name, replicas.get(name, []), copies)
        plan, told, left = found.plan(controller_epoch)
        plans.append(plan)
        rows += told
        leaderless += left
    for one in dirs:
        rows += [
            RebuildRow("partition", folder, (one.broker_id,), "skipped: its topic is unknown") for folder in one.unknown
        ]
    return RebuildPlan(cluster_id, controller_epoch, below, tuple(plans), tuple(rows), leaderless)


@dataclass(slots=True)
class _Found:
    """What all dirs together know of one topic."""

    name: str
    replicas: Sequence[tuple[int, int, ReplicaFacts]]
    """Broker, partition, and what its log dir tells."""
    copies: Sequence[RegistryCopy]
    """The newest last."""
    others: list[RebuildRow] = field(default_factory=list)

    def plan(self, controller_epoch: int) -> tuple[TopicPlan, list[RebuildRow], int]:
        copied = next((one.topics[self.name] for one in reversed(self.copies) if self.name in one.topics), None)
        topic_id = copied.topic_id if copied is not None else self._newest_id()
        replicas = self._replicas(topic_id)
        # Of a partition the copy counts that knows of the latest epoch: it need not be the newest.
        known = self._known(topic_id)
        numbers = range(max([*known, *replicas], default=-1) + 1)
        assignment: dict[int, tuple[int, ...]] = {}
        states: dict[int, PartitionState] = {}
        rows = []
        leaderless = 0
        for number in numbers:
            there = replicas.get(number, {})
            assigned, state, action = _decide(known.get(number), there, controller_epoch)
            assignment[number], states[number] = assigned, state
            leaderless += not set(state.isr) & set(there)
            rows.append(RebuildRow("partition", f"{self.name}-{number}", tuple(sorted(there)), action))
        settings = dict(copied.settings) if copied is not None else {}
        found_on = tuple(sorted({one for there in replicas.values() for one in there}))
        head = RebuildRow("topic", self.name, found_on, self._said(copied, len(numbers), settings))
        return TopicPlan(self.name, topic_id, settings, assignment, states), [head, *rows, *self.others], leaderless

    def _said(self, copied: TopicCopy | None, partitions: int, settings: Mapping[str, str]) -> str:
        said = f"{counted(partitions, 'partition')}, {counted(len(settings), 'setting')}"
        if copied is None:
            return f"{said}: no copy of the registries has it; its settings and other replicas are unknown"
        if self.name not in self.copies[-1].topics:
            return f"{said}: the newest copy of the registries does not have it; it may have been deleted"
        return said

    def _newest_id(self) -> UUID:
        """Of the replica that goes furthest: no copy knows the topic."""
        found = [facts for _, _, facts in self.replicas]
        return max(found, key=lambda facts: (facts.reach, str(facts.topic_id))).topic_id

    def _replicas(self, topic_id: UUID) -> dict[int, dict[int, ReplicaFacts]]:
        """Partition -> broker -> its replica."""
        found: dict[int, dict[int, ReplicaFacts]] = {}
        for broker_id, number, facts in self.replicas:
            if facts.topic_id != topic_id:
                action = "it belongs to another topic of that name: its broker sets it aside"
                self.others.append(RebuildRow("partition", facts.folder, (broker_id,), action))
                continue
            there = found.setdefault(number, {})
            if broker_id not in there or there[broker_id].reach < facts.reach:
                there[broker_id] = facts
        return found

    def _known(self, topic_id: UUID) -> dict[int, PartitionCopy]:
        known: dict[int, PartitionCopy] = {}
        for copy in self.copies:
            topic = copy.topics.get(self.name)
            if topic is None or topic.topic_id != topic_id:
                continue
            for number, one in topic.partitions.items():
                if number not in known or known[number].leader_epoch <= one.leader_epoch:
                    known[number] = one
        return known


def _decide(
    known: PartitionCopy | None, there: Mapping[int, ReplicaFacts], controller_epoch: int
) -> tuple[tuple[int, ...], PartitionState, str]:
    epoch = max([known.leader_epoch if known else 0, *(one.reach.leader_epoch for one in there.values())])
    epoch += EPOCHS_UNSEEN
    if known is not None:
        # A folder of a broker that has no part in the partition any more is as good as any where there is no other.
        strangers = [one for one in sorted(there) if one not in known.replicas]
        assigned = known.replicas if set(there) & set(known.replicas) else (*strangers, *known.replicas)
    else:
        assigned = tuple(sorted(there, key=lambda one: (-there[one].reach.leader_epoch, -there[one].reach.end, one)))
    candidates = {one: facts.reach for one, facts in there.items() if one in assigned}
    in_sync = set(known.isr) if known is not None else set(candidates)
    missing = [one for one in assigned if one not in candidates]
    if not candidates or (missing and not in_sync & set(candidates)):
        waits = tuple(one for one in assigned if one in in_sync) or assigned
        state = PartitionState(NO_LEADER, epoch, waits, controller_epoch)
        names = " or ".join(map(str, waits))
        return assigned, state, f"no leader until broker {names} is back: only it has all acknowledged messages"
    furthest: Reach = max(candidates.values())
    isr = tuple(one for one in assigned if candidates.get(one) == furthest)
    state = PartitionState(NO_LEADER, epoch, isr, controller_epoch)
    action = f"{_brokers(isr)} in sync at {furthest.end}, epoch {epoch}"
    behind = [one for one in candidates if one not in isr]
    if behind:
        action += f"; {_brokers(behind)} behind, {', '.join(f'at {candidates[one].end}' for one in behind)}"
    if missing:
        action += f"; {_brokers(missing)} not looked at"
    return assigned, state, action


def _brokers(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    return f"broker{'s' * (len(listed) > 1)} {', '.join(map(str, listed))}"


def check_target(zookeeper: ZooKeeper, plan: RebuildPlan) -> None:
    """Refused where this ZooKeeper knows a cluster."""
    found = cluster.cluster_id(zookeeper)
    if found is None:
        return
    if found == plan.cluster_id:
        raise Refused(
            f"ZooKeeper {zookeeper.address} has cluster {found}: nothing to rebuild",
            hint="`klog status` shows its state",
        )
    raise Refused(
        f"ZooKeeper {zookeeper.address} knows another cluster, {found}; the log dirs are of {plan.cluster_id}",
        hint="name the right ZooKeeper, or an empty chroot of this one: --zookeeper host:port/chroot",
    )


def apply_rebuild(zookeeper: ZooKeeper, plan: RebuildPlan, count: Count | None = None) -> None:
    """Write it; may be cut off anywhere and repeated. Refused where something else stands there.

    There is no other writer yet, as the cluster's id is written last: what is found there is from an interrupted
    rebuild, or another cluster's. ``count``: of topics.
    """
    count = count or Count()
    count.total = len(plan.topics)
    check_target(zookeeper, plan)
    cluster.ensure_folders(zookeeper)
    controllers.restore_epoch(zookeeper, plan.controller_epoch)
    producer_ids.skip_below(zookeeper, plan.producer_ids_below)
    states: dict[TopicPartition, PartitionState] = {}
    for one in plan.topics:
        _restore_topic(zookeeper, Topic(one.name, one.topic_id, one.assignment, 0, 0), one.settings)
        states.update({TopicPartition(one.name, number): state for number, state in one.states.items()})
        count.done += 1
    _restore_states(zookeeper, states)
    cluster.restore_id(zookeeper, plan.cluster_id)


def _restore_topic(zookeeper: ZooKeeper, known: Topic, settings: Mapping[str, str]) -> None:
    """Create a topic under its old id, with its settings. The same topic may already exist.

    Raises Refused if another topic of that name exists.
    """
    written = [
        Create(paths.topic_config(known.name), entries.encode({"version": 1, "config": dict(settings)})),
        Create(paths.topic_epoch(known.name), b"0"),
        Create(paths.topic(known.name), topics.encode(known)),
    ]
    try:
        zookeeper.commit(written)
    except NodeExists:
        if not zookeeper.holds(written):
            raise Refused(
                f"ZooKeeper {zookeeper.address} has another topic {known.name!r}",
                hint="name an empty chroot: --zookeeper host:port/chroot",
            ) from None


def _restore_states(zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState]) -> None:
    """Create states of partitions, at version 0. The same states may already exist.

    Raises Refused if a partition has another state.
    """
    there = partition_states.read_many(zookeeper, states)
    for name, found in there.items():
        if found is not None and replace(found, version=-1) != states[name]:
            raise Refused(
                f"ZooKeeper node {paths.partition_state(name.topic, name.partition)} holds another state",
                hint="name an empty chroot: --zookeeper host:port/chroot",
            )
    missing = {name: states[name] for name, found in there.items() if found is None}
    if missing:
        partition_states.create_many(zookeeper, missing, ())
