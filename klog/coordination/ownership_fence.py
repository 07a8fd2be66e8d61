"""Ownership of a partition in a group of stream consumers: an owner, and a claim beside it (paper, section 3.2).

    /consumers/<g>/owners/<t>/<p>     (e) <consumer id>-<number of its thread>, as in 0.8
    /klog/claims/<g>/<t>/<p>          {"version":1,"owner":"<thread>","session":"0x..","timestamp":"ms"}

The owner node ends with its session. The claim stays; the multi that creates an owner raises the claim's version (rule
Z1). Every write of an owner for the partition, a commit or a release, is a multi that checks this version. So a
consumer that was paused for longer than its session no longer has the claim, and cannot move an offset back. The
topic's fence is checked too, since the deletion of a topic removes its claims.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    ZooKeeper,
)
from klog.errors import BadVersion, NodeExists, NoNode, OwnershipConflict
from klog.names import TopicPartition

WRITE_TRIES = 3
"""If nodes come or go between a read and the write, the read is repeated."""


@dataclass(frozen=True, slots=True)
class OwnershipFence:
    """A partition owned by a thread. `fences` fail once another thread has claimed it, or its topic is deleted."""

    partition: TopicPartition
    owner: str
    fences: tuple[Check, ...]

    @property
    def version(self) -> int:
        """The claim's version: each new owner of the partition in this group raises it."""
        return self.fences[0].version


def claim(
    zookeeper: ZooKeeper,
    group: str,
    consumer_id: str,
    wanted: Mapping[TopicPartition, str],
    fences: Mapping[str, Sequence[Check]],
) -> dict[TopicPartition, OwnershipFence]:
    """Claim these partitions, each for its thread: all of them or none.

    Raises OwnershipConflict, with partition and owner, if another thread owns one or claims one at the same moment;
    NoNode if the consumer's own entry is gone. ``fences``: those of each topic (`Topic.fence`).
    """
    if not wanted:
        return {}
    own = paths.consumer_id(group, consumer_id)
    versions, ours = _versions(zookeeper, group, consumer_id, wanted)
    session = f"{zookeeper.session_id:#x}"
    now_ms = str(zookeeper.clock.now_ms())
    groups: list[list[Operation]] = []
    claimed: dict[TopicPartition, OwnershipFence] = {}
    for partition, owner in wanted.items():
        beside, version = paths.ownership_fence(group, *partition), versions[partition]
        where = paths.consumer_owner(group, *partition)
        data = entries.encode({"version": 1, "owner": owner, "session": session, "timestamp": now_ms})
        topic_fences = tuple(fences.get(partition.topic, ()))
        groups.append(
            [
                *topic_fences,
                SetData(beside, data, version),
                *([Delete(where)] if partition in ours else []),
                Create(where, owner.encode(), ephemeral=True),
            ]
        )
        claimed[partition] = OwnershipFence(partition, owner, (Check(beside, version + 1), *topic_fences))
    landed: list[Operation] = []
    for batch in zookeeper.batches(groups, [Check(own, 0)]):
        try:
            # The entry's name is never used twice, so the version at which it was created is a fence.
            zookeeper.commit([Check(own, 0), *batch])
        except (BadVersion, NodeExists, NoNode) as error:
            made = {one.path for one in landed if isinstance(one, Create)}
            some = {one: claim for one, claim in claimed.items() if paths.consumer_owner(group, *one) in made}
            commit(zookeeper, group, OffsetWriter(zookeeper), some, {}, release=True)
            if zookeeper.exists(own) is None:
                raise NoNode(f"consumer {consumer_id} of group {group!r} is no longer registered") from error
            raise OwnershipConflict(
                f"group {group!r}: a partition was claimed by another at the same moment ({error.message})"
            ) from error
        landed += batch
    return claimed


def standing(
    zookeeper: ZooKeeper, group: str, claims: Mapping[TopicPartition, OwnershipFence]
) -> dict[TopicPartition, OwnershipFence]:
    """The claims whose owner node still exists, under this session."""
    nodes = zookeeper.find_many(claims, lambda one: paths.consumer_owner(group, *one))
    return {
        one: claims[one]
        for one, node in nodes.items()
        if node.data == claims[one].owner.encode() and node.stat.owner_session == zookeeper.session_id
    }


def commit(
    zookeeper: ZooKeeper,
    group: str,
    writer: OffsetWriter,
    claims: Mapping[TopicPartition, OwnershipFence],
    offsets: Mapping[TopicPartition, int],
    *,
    release: bool = False,
) -> set[TopicPartition]:
    """Commit these offsets; with ``release`` give up the partitions in the same step, also those without an offset.

    Returns the partitions that another thread has claimed meanwhile, of which nothing was written. Raises SessionLost
    if the outcome is unknown: commits may be repeated. Writes all in as few multis as possible; if one fails, its
    partitions one by one, to see which are lost.
    """
    lost: set[TopicPartition] = set()
    waiting = [list(claims)] if claims else []
    tries = dict.fromkeys(claims, 0)
    while waiting:
        some = waiting.pop()
        parts: list[list[Operation]] = []
        offsets_of_some = {one: CommittedOffset(offsets[one]) for one in some if one in offsets}
        writes = dict(zip(offsets_of_some, _pairs(writer.operations(group, offsets_of_some)), strict=True))
        for one in some:
            part: list[Operation] = [*claims[one].fences, *writes.get(one, ())]
            if release:
                part.append(Delete(paths.consumer_owner(group, *one)))
            parts.append(part)
        sized = list(zookeeper.batches(parts))
        if len(sized) > 1:
            half = len(some) // 2
            waiting += [some[:half], some[half:]]
            continue
        try:
            # Owners that are gone while our claims remain were removed by us; a commit alone is sent again, and if that
            # fails, the claim is another's.
            zookeeper.commit(sized[0], [one for one in sized[0] if isinstance(one, Delete)])
        except (BadVersion, NodeExists, NoNode) as error:
            writer.forget(group)
            if len(some) > 1:
                waiting += [[one] for one in some]
                continue
            (one,) = some
            tries[one] += 1
            if isinstance(error, BadVersion) or tries[one] >= WRITE_TRIES:
                lost.add(one)
            else:
                waiting.append(some)
            continue
        writer.landed(group, sized[0])
    return lost


def _versions(
    zookeeper: ZooKeeper, group: str, consumer_id: str, wanted: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Versions of the claims, which are created if missing, and the partitions that this consumer owns already.

    Those were claimed by a write whose answer was lost. Raises OwnershipConflict if one has another owner.
    """
    beside = {paths.ownership_fence(group, *one): one for one in wanted}
    owners = {paths.consumer_owner(group, *one): one for one in wanted}
    nodes = zookeeper.find_many([*beside, *owners])
    ours = {one for path, one in owners.items() if path in nodes}
    for path, one in owners.items():
        if path in nodes:
            holder = nodes[path].data.decode("utf-8", "replace")
            if nodes[path].stat.owner_session != zookeeper.session_id or holder.rpartition("-")[0] != consumer_id:
                raise OwnershipConflict(f"group {group!r}: {one} is owned by {holder} still")
    zookeeper.ensure_paths(sorted({path.rpartition("/")[0] for path in (*beside, *owners) if path not in nodes}))
    missing = [path for path in beside if path not in nodes]
    if missing:
        zookeeper.create_missing(missing, entries.encode({"version": 1}))  # other consumers may do the same
        nodes = zookeeper.find_many(beside)
    versions = {one: nodes[path].stat.version for path, one in beside.items() if path in nodes}
    if len(versions) < len(beside):
        raise OwnershipConflict(f"group {group!r}: a topic goes while its partitions are claimed")
    return versions, ours


def _pairs(operations: Sequence[Operation]) -> list[Sequence[Operation]]:
    """Two writes per partition, as `OffsetWriter.operations` makes them."""
    return [operations[at : at + 2] for at in range(0, len(operations), 2)]
