"""0.8's two queues of requests to the controller: partitions to reassign, and preferred replicas to elect.

``/admin/reassign_partitions`` is ``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}``. A
partition is listed until its reassignment is done. When 0.8's tool no longer finds a partition there, it compares the
topic's replicas with the target to tell success from failure. ``/admin/preferred_replica_election`` is the same without
replicas; the controller removes it when it has tried the elections. A tool creates its node, and refuses while one
exists.

Other programs write these nodes. Invalid entries are left out of the queue and returned beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Delete, Operation, SetData, Watch, ZooKeeper
from klog.errors import BadVersion, NoNode, SessionLost, ZooKeeperError
from klog.names import TopicPartition

RACE_TRIES = 10


@dataclass(frozen=True, slots=True)
class Queue:
    """The content of one of the nodes. `wanted`: partition -> target, () in the queue of elections.

    `nonsense`: an error for each unreadable entry; the next write drops these entries.
    """

    wanted: dict[TopicPartition, tuple[int, ...]]
    version: int
    nonsense: tuple[str, ...] = ()


def reassignments(zookeeper: ZooKeeper, watch: Watch | None = None) -> Queue | None:
    """None without a request; the watch fires when one is made or changed."""
    return _read(zookeeper, paths.REASSIGN_PARTITIONS, watch)


def elections(zookeeper: ZooKeeper, watch: Watch | None = None) -> Queue | None:
    """As `reassignments`, for preferred replicas; a queue that names no partition means all of them."""
    return _read(zookeeper, paths.PREFERRED_ELECTION, watch)


def finish_reassignments(zookeeper: ZooKeeper, done: Iterable[TopicPartition], fence: Sequence[Check]) -> None:
    """Remove partitions from the queue, and the queue with its last one. Missing partitions are ignored.

    Raises BadVersion if the fence fails.
    """
    gone = set(done)
    for _ in range(RACE_TRIES):
        queue = reassignments(zookeeper)
        if queue is None or not (gone & queue.wanted.keys() or queue.nonsense):
            return
        left = {one: ids for one, ids in queue.wanted.items() if one not in gone}
        if _change(zookeeper, paths.REASSIGN_PARTITIONS, queue, left, fence):
            return
    raise BadVersion(f"{paths.REASSIGN_PARTITIONS}: others keep changing it")


def finish_elections(zookeeper: ZooKeeper, done: Queue, fence: Sequence[Check]) -> None:
    """Remove the queue of elections if it is still the one in `done`. Raises BadVersion if the fence fails."""
    for _ in range(RACE_TRIES):
        queue = elections(zookeeper)
        if queue is None or queue.wanted != done.wanted:
            return
        if _change(zookeeper, paths.PREFERRED_ELECTION, queue, {}, fence):
            return
    raise BadVersion(f"{paths.PREFERRED_ELECTION}: others keep changing it")


def _change(
    zookeeper: ZooKeeper,
    path: str,
    queue: Queue,
    left: dict[TopicPartition, tuple[int, ...]],
    fence: Sequence[Check],
) -> bool:
    """Write the rest, at the queue's version. False: it was changed, or the answer was lost; read it again.

    Sent only once: a delete repeated after a lost answer could remove the next request, which has the same version.
    """
    write: Operation = SetData(path, _encode(left), queue.version) if left else Delete(path, queue.version)
    try:
        zookeeper.multi([*fence, write])
    except SessionLost:
        return False
    except (BadVersion, NoNode):
        stat = zookeeper.exists(path)
        if stat is not None and stat.version == queue.version:
            raise  # it was the fence
        return False
    return True


def _read(zookeeper: ZooKeeper, path: str, watch: Watch | None) -> Queue | None:
    node = zookeeper.find(path, watch)
    if node is None:
        return None
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    nonsense: list[str] = []
    try:
        listed = entries.JsonNode(path, node.data).entry_list("partitions")
    except ZooKeeperError as error:
        listed = []
        nonsense.append(error.message)
    for entry in listed:
        try:
            one = TopicPartition(entry.text("topic"), entry.integer("partition"))
            target = entry.integers("replicas") if path == paths.REASSIGN_PARTITIONS else ()
        except ZooKeeperError:
            nonsense.append(f"ZooKeeper node {path} has {json.dumps(entry.fields)[: entries.SHOWN_CHARS_MAX]}")
            continue
        if one in wanted:
            nonsense.append(f"ZooKeeper node {path} names {one} twice")
        wanted[one] = target
    return Queue(wanted, node.stat.version, tuple(nonsense))


def _encode(wanted: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    return entries.encode(
        {
            "version": 1,
            "partitions": [
                {"topic": one.topic, "partition": one.partition, **({"replicas": list(ids)} if ids else {})}
                for one, ids in wanted.items()
            ],
        }
    )
