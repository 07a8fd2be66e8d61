"""Deletes the logs of replicas: only if rule R10 allows it, and always with a line in the broker's log.

A request must name the topic's id, and the registry must no longer have the replica: the topic is marked for deletion
or gone, or the partition has been reassigned from this broker. A controller writes that before it sends the request.

A topic with a delayed deletion (`klog.coordination.topics.Deletion`) is still in the registry, and keeps its logs.

A disk that was offline when its topic was purged still has the log when it is back. No request names it then, and it
stays: a ZooKeeper that does not know a topic may have lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from klog.coordination import topics
from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.interbroker import StopReplicaRequest
from klog.server.executors import Purpose
from klog.server.replicas.disk_wait import at_disks
from klog.server.runtime import Runtime
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)


async def undeletable(
    runtime: Runtime, log_dirs: LogDirs, request: StopReplicaRequest
) -> dict[TopicPartition, KlogError]:
    """The logs that the request names for deletion and that must stay, with the reason.

    Raises ZooKeeperError if the registry cannot be read.
    """
    failed: dict[TopicPartition, KlogError] = {}
    asked: dict[TopicPartition, UUID] = {}
    for topic in request.topics:
        for one in topic.partitions:
            name = TopicPartition(topic.name, one.partition_index)
            if not one.delete or log_dirs.topic_id(name) is None:
                continue
            if topic.topic_id is None:
                failed[name] = InvalidRequest(f"the request to delete {name} lacks its topic's id")
            else:
                asked[name] = topic.topic_id
    held: set[TopicPartition] = set()
    if asked:
        held = await runtime.at_zookeeper(Purpose.REPLICAS, topics.still_held, runtime.broker_id, asked)
    for name in held:
        failed[name] = InvalidRequest(f"{name} cannot be deleted: the registry has it on this broker")
    for error in failed.values():
        log.error("%s (asked by controller %d)", error.message, request.controller_id)
    return failed


async def remove_logs(
    runtime: Runtime, log_dirs: LogDirs, names: Sequence[TopicPartition], request: StopReplicaRequest
) -> dict[TopicPartition, KlogError]:
    """Remove these logs durably; returns the errors of the others.

    The files are removed later, in a thread. Raises RequestTimedOut if a disk hangs: the controller repeats its
    request.
    """
    by = f"controller {request.controller_id}, epoch {request.controller_epoch}"
    return await at_disks(runtime.executors, log_dirs, _remove, runtime, log_dirs, names, by)


def _remove(
    runtime: Runtime, log_dirs: LogDirs, names: Sequence[TopicPartition], by: str
) -> dict[TopicPartition, KlogError]:
    """In a thread."""
    failed: dict[TopicPartition, KlogError] = {}
    for name in names:
        topic_id, there = log_dirs.topic_id(name), log_dirs.log(name)
        try:
            purge = log_dirs.remove(name)
        except KlogError as error:
            log.error("the log of %s could not be deleted: %s", name, error.message)
            failed[name] = error.bare()
            continue
        if purge is not None and there is not None:
            disk = there.log_dir.path
            log.info("%s: its log is deleted (topic id %s), as %s asks", name, topic_id, by)
            runtime.from_thread(_purge_soon, runtime, disk, purge)
    return failed


def _purge_soon(runtime: Runtime, disk: str, purge: Callable[[], None]) -> None:
    runtime.spawn(runtime.executors.run_at(disk, Purpose.UPKEEP, purge))
