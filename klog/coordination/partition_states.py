"""The state of each partition: ``/brokers/topics/<t>/partitions/<p>/state``, versioned.

0.8's ``{"controller_epoch":4,"leader":5,"version":1,"leader_epoch":2,"isr":[5]}``, behind it ``"incarnations":[N]``:
the czxid of each ISR member's registration, in the order of ``isr``. A member has run without interruption since the
state was written when its registration today has that czxid (rule R1). Every writer of an ISR writes its incarnations;
states from other writers have none.

A partition that has never held a message has ``"new":true`` as well: a broker creates only such a partition empty (rule
R1), and the broker that creates its folder writes the state again without the mark. After an unclean election the state
has ``"unclean_epoch":N`` for ever: the leader epoch that began with the election. What a replica has from before that
epoch, and must cut, may have been acknowledged. A partition without a state node has never had a leader.

Every write names the version it replaces. A controller's writes are fenced by `ControllerTerm.fence`; a leader's change
of the ISR by the topic's fence and by its own registration's (rule Z1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Operation, SetData, ZNode, ZooKeeper
from klog.errors import ZooKeeperError
from klog.names import TopicPartition

NO_LEADER = -1
NEVER_UNCLEAN = -1
UNKNOWN_INCARNATION = -1
"""Of members of an ISR written without incarnations: none of them counts as uninterrupted."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`version` is the node's, -1 if it is not written yet. `incarnations` are those of `isr`, or ()."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    new: bool = False
    version: int = -1
    incarnations: tuple[int, ...] = ()
    unclean_epoch: int = NEVER_UNCLEAN

    def ran_on(self, broker_id: int, incarnation: int) -> bool:
        """Whether this incarnation of the broker was in the ISR when the state was written."""
        return (broker_id, incarnation) in zip(self.isr, self.incarnations, strict=False)


def read_many(
    zookeeper: ZooKeeper,
    partitions: Iterable[TopicPartition],
    damage: dict[TopicPartition, str] | None = None,
) -> dict[TopicPartition, PartitionState | None]:
    """All states in one round; None for a partition that never had a leader. Raises ZooKeeperError for invalid data.

    With `damage`, such a partition is missing, and its error is noted there.
    """
    wanted = list(partitions)
    found: dict[TopicPartition, PartitionState | None] = dict.fromkeys(wanted)
    for partition, node in zookeeper.find_many(wanted, _path).items():
        try:
            found[partition] = _decode(_path(partition), node)
        except ZooKeeperError as error:
            if damage is None:
                raise
            damage[partition] = error.message
            del found[partition]
    return found


def _path(partition: TopicPartition) -> str:
    return paths.partition_state(partition.topic, partition.partition)


def create_many(
    zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState], fence: Sequence[Check]
) -> dict[TopicPartition, PartitionState]:
    """Create the first states of partitions, with the folders above them. Returns the states at version 0.

    Raises NodeExists if a partition already has a state; BadVersion if the fence fails. Sent in batches of at most 512
    KB (rule Z3), each atomic; after a failure the caller reads which states exist.
    """
    missing = _missing_folders(zookeeper, states)
    groups: list[list[Operation]] = []
    for partition, state in states.items():
        group: list[Operation] = []
        for folder in (paths.partitions(partition.topic), paths.partition(partition.topic, partition.partition)):
            if folder in missing:
                missing.discard(folder)
                group.append(Create(folder))
        group.append(Create(_path(partition), _encode(state)))
        groups.append(group)
    zookeeper.commit_each(groups, fence)
    return {partition: replace(state, version=0) for partition, state in states.items()}


def write_many(
    zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState], fence: Sequence[Check]
) -> dict[TopicPartition, PartitionState]:
    """Replace states at their `version`. Returns the states with their new versions.

    Raises BadVersion if another writer changed one meanwhile or the fence fails: nothing of that batch of at most 512
    KB is written.
    """
    groups: list[list[Operation]] = [
        [SetData(_path(partition), _encode(state), state.version)] for partition, state in states.items()
    ]
    assert all(state.version >= 0 for state in states.values()), "a state that was not read cannot be replaced"
    zookeeper.commit_each(groups, fence)
    return {partition: replace(state, version=state.version + 1) for partition, state in states.items()}


def _missing_folders(zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]) -> set[str]:
    topics = sorted({partition.topic for partition in partitions})
    parents = [paths.partitions(topic) for topic in topics]
    missing = set(parents) - zookeeper.find_many(parents).keys()
    there = {
        paths.partition(topic, int(name))
        for topic, names in zip(topics, zookeeper.children_many(parents), strict=True)
        for name in names
        if name.isdigit()
    }
    return missing | {paths.partition(partition.topic, partition.partition) for partition in partitions} - there


def _encode(state: PartitionState) -> bytes:
    fields: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.incarnations:
        fields["incarnations"] = list(state.incarnations)
    if state.new:
        fields["new"] = True
    if state.unclean_epoch != NEVER_UNCLEAN:
        fields["unclean_epoch"] = state.unclean_epoch
    return entries.encode(fields)


def _decode(path: str, node: ZNode) -> PartitionState:
    entry = entries.JsonNode(path, node.data)
    state = PartitionState(
        leader=entry.integer("leader"),
        leader_epoch=entry.integer("leader_epoch"),
        isr=entry.integers("isr"),
        controller_epoch=entry.integer("controller_epoch"),
        new=entry.flag("new"),
        version=node.stat.version,
        incarnations=entry.integers("incarnations") if "incarnations" in entry.fields else (),
        unclean_epoch=entry.integer("unclean_epoch", NEVER_UNCLEAN),
    )
    if len(state.incarnations) != len(state.isr):  # a tool changed the ISR and kept a key that it does not know
        state = replace(state, incarnations=())
    if state.leader_epoch < 0:
        raise ZooKeeperError(f"ZooKeeper node {path} has leader epoch {state.leader_epoch}, expected 0 or more")
    return state
