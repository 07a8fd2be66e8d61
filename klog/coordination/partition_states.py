"""The state of each partition: ``/brokers/topics/<t>/partitions/<p>/state``, versioned.

0.8's ``{"controller_epoch":4,"leader":5,"version":1,"leader_epoch":2,"isr":[5]}``, behind it ``"incarnations":[N]``:
the czxid of each ISR member's registration, in the order of ``isr``. A member has run without interruption since the
state was written when its registration today has that czxid (rule R1); whoever writes an ISR writes its incarnations.
States that were written without them have none. A partition that has never held a
message carries ``"new":true`` behind it: only such a one is created empty on a broker (rule R1); whoever creates its
folder writes the state once more without the mark. One that has had an unclean election names the leader epoch that
began with it, ``"unclean_epoch":N``, and does so ever after: what a replica has from before, and has to cut, may have
been acknowledged. A partition without a state node has never had a leader.

Every write names the version it replaces. A controller's writes are fenced by `ControllerTerm.fence`; a leader's change
of the ISR by the topic's fence and by its own registration's (rule Z1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from klog.coordination import entries, paths
from klog.coordination.zookeeper import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Operation,
    SetData,
    ZNode,
    ZooKeeper,
    batches,
    size_bytes,
)
from klog.errors import ZooKeeperError
from klog.names import TopicPartition

NO_LEADER = -1
NEVER_UNCLEAN = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`version` is that of the node; -1 in a state that is not written yet. `incarnations`: of `isr`, or ()."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    new: bool = False
    version: int = -1
    incarnations: tuple[int, ...] = ()
    unclean_epoch: int = NEVER_UNCLEAN

    def ran_on(self, broker_id: int, incarnation: int) -> bool:
        """Whether this is the very incarnation of the broker that was in the ISR when the state was written."""
        return (broker_id, incarnation) in zip(self.isr, self.incarnations, strict=False)


def read(zookeeper: ZooKeeper, partition: TopicPartition) -> PartitionState | None:
    """None when the partition never had a leader."""
    return read_many(zookeeper, [partition])[partition]


def read_many(
    zookeeper: ZooKeeper,
    partitions: Iterable[TopicPartition],
    damage: dict[TopicPartition, str] | None = None,
) -> dict[TopicPartition, PartitionState | None]:
    """All of them in one round: requests are pipelined. ZooKeeperError for a node that holds no state.

    With `damage` such a partition is left out, and noted there with what is wrong.
    """
    wanted = list(partitions)
    where = [paths.partition_state(partition.topic, partition.partition) for partition in wanted]
    nodes = zookeeper.get_many(where)
    found: dict[TopicPartition, PartitionState | None] = {}
    for partition, path, node in zip(wanted, where, nodes, strict=True):
        try:
            found[partition] = None if node is None else _decode(path, node)
        except ZooKeeperError as error:
            if damage is None:
                raise
            damage[partition] = error.message
    return found


def create_many(
    zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState], fence: Sequence[Check]
) -> dict[TopicPartition, PartitionState]:
    """First states of partitions that have none, with the folders above them. The states at version 0.

    NodeExists when one has a state already; BadVersion when the fence fails. Batches of at most 512 KB (rule Z3), each
    whole or not at all; after a failure the caller reads which are there.
    """
    missing = _missing_folders(zookeeper, states)
    groups: list[list[Operation]] = []
    for partition, state in states.items():
        path = paths.partition_state(partition.topic, partition.partition)
        group: list[Operation] = []
        for folder in (paths.partitions(partition.topic), paths.partition(partition.topic, partition.partition)):
            if folder in missing:
                missing.discard(folder)
                group.append(Create(folder))
        group.append(Create(path, _encode(state)))
        groups.append(group)
    _send(zookeeper, groups, fence)
    return {partition: replace(state, version=0) for partition, state in states.items()}


def write_many(
    zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState], fence: Sequence[Check]
) -> dict[TopicPartition, PartitionState]:
    """Replace states at their `version`; the states with their new versions.

    BadVersion when one was changed meanwhile or the fence fails: nothing of that batch of at most 512 KB is written.
    """
    groups: list[list[Operation]] = [
        [SetData(paths.partition_state(partition.topic, partition.partition), _encode(state), state.version)]
        for partition, state in states.items()
    ]
    assert all(state.version >= 0 for state in states.values()), "a state that was not read cannot be replaced"
    _send(zookeeper, groups, fence)
    return {partition: replace(state, version=state.version + 1) for partition, state in states.items()}


def write(
    zookeeper: ZooKeeper, partition: TopicPartition, state: PartitionState, fence: Sequence[Check] = ()
) -> PartitionState:
    """As `write_many`, for one."""
    return write_many(zookeeper, {partition: state}, fence)[partition]


def _missing_folders(zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]) -> set[str]:
    topics = sorted({partition.topic for partition in partitions})
    parents = [paths.partitions(topic) for topic in topics]
    missing = {path for path, node in zip(parents, zookeeper.get_many(parents), strict=True) if node is None}
    there = {
        paths.partition(topic, int(name))
        for topic, names in zip(topics, zookeeper.children_many(parents), strict=True)
        for name in names
        if name.isdigit()
    }
    return missing | {paths.partition(partition.topic, partition.partition) for partition in partitions} - there


def _send(zookeeper: ZooKeeper, groups: Sequence[Sequence[Operation]], fence: Sequence[Check]) -> None:
    chroot = zookeeper.address.chroot

    def size(operation: Operation) -> int:
        return size_bytes(operation, chroot)

    room = MULTI_BYTES_MAX - sum(map(size, fence))
    for batch in batches(groups, size, room):
        zookeeper.commit([*fence, *batch], lambda batch=batch: _landed(zookeeper, batch))  # type: ignore[misc]


def _landed(zookeeper: ZooKeeper, batch: Sequence[Operation]) -> bool:
    """Every node holds what we wrote, one version on: our own success, whose answer was lost (rule Z2).

    Another's state equal to ours at the same version would be mistaken for it; then both want the same, and it is so.
    """
    written = [operation for operation in batch if isinstance(operation, SetData | Create) and operation.data]
    for operation, node in zip(written, zookeeper.get_many([one.path for one in written]), strict=True):
        expected = operation.version + 1 if isinstance(operation, SetData) else 0
        if node is None or node.data != operation.data or node.stat.version != expected:
            return False
    return True


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
    entry = entries.Entry(path, node.data)
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
    if len(state.incarnations) != len(state.isr):  # of another ISR: a tool that keeps keys it does not know
        state = replace(state, incarnations=())
    if state.leader_epoch < 0:
        raise ZooKeeperError(f"ZooKeeper node {path} has leader epoch {state.leader_epoch}, expected 0 or more")
    return state
