"""Deletes the logs of replicas: only where rule R10 allows it, and always with a line in the broker's log.

A request must name the topic's id, and the registry must no longer have the replica: the topic is marked for deletion
or gone, or the partition has been reassigned from this broker. A controller writes that before it sends the request.

The log of a topic that has an entry in the trash is moved there (`klog.storage.trash_folders`); `TrashEmptier` deletes
it once neither an entry nor a topic has the id.

A disk that was offline when its topic was deleted still has the log under its name when the disk is back. No request
names it then: `trash_strays` moves it to the trash as long as the topic has an entry there. Once the topic is gone for
good, the log stays where it is: a ZooKeeper that does not know a topic may have lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from klog.coordination import topics, trash
from klog.errors import InvalidRequest, KlogError, StorageError
from klog.names import TopicPartition
from klog.protocol.interbroker import StopReplicaRequest
from klog.server.executors import Purpose
from klog.server.replicas.disk_wait import at_disks
from klog.server.runtime import Runtime
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)


class Deletable(NamedTuple):
    """``failed``: logs that must stay, with the reason. ``to_trash``: topics whose logs go to the trash."""

    failed: dict[TopicPartition, KlogError]
    to_trash: set[UUID]


async def deletable(runtime: Runtime, log_dirs: LogDirs, request: StopReplicaRequest) -> Deletable:
    """What the registry says of the logs that the request names for deletion.

    Raises ZooKeeperError where the registry cannot be read.
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
    to_trash: set[UUID] = set()
    if asked:
        held, to_trash = await runtime.executors.run(Purpose.REPLICAS, _look_up, runtime, asked)
    for name in held:
        failed[name] = InvalidRequest(f"{name} cannot be deleted: the registry has it on this broker")
    for error in failed.values():
        log.error("%s (asked by controller %d)", error.message, request.controller_id)
    return Deletable(failed, to_trash)


def _look_up(runtime: Runtime, asked: Mapping[TopicPartition, UUID]) -> tuple[set[TopicPartition], set[UUID]]:
    """In a thread. The trash is read last: an entry is created before anything else of a deletion."""
    held = topics.still_held(runtime.zookeeper, runtime.broker_id, asked)
    return held, trash.kept_ids(runtime.zookeeper, asked.values())


def trash_strays(runtime: Runtime, log_dirs: LogDirs, unassigned: Mapping[TopicPartition, tuple[UUID, int]]) -> None:
    """In a thread: move logs to the trash whose topics have been deleted, by partition -> topic id, high watermark.

    ``unassigned``: logs that the controller has sent no request about. Raises ZooKeeperError where the registry cannot
    be read. A log that cannot be moved stays, with a line in the broker's log.
    """
    deleted = trash.ids(runtime.zookeeper)
    asked = {name: topic_id for name, (topic_id, _) in unassigned.items() if topic_id in deleted}
    if not asked:
        return
    held, to_trash = _look_up(runtime, asked)
    for name, topic_id in asked.items():
        if name in held or topic_id not in to_trash or log_dirs.is_being_trashed(name):
            continue
        try:
            log_dirs.to_trash(name, unassigned[name][1])
        except KlogError as error:
            log.error("%s: its topic was deleted, and its log could not be moved to the trash: %s", name, error.message)
        else:
            log.info("%s: its topic was deleted while its disk was offline: its log is moved to the trash", name)


async def remove_logs(
    runtime: Runtime,
    log_dirs: LogDirs,
    names: Sequence[TopicPartition],
    request: StopReplicaRequest,
    trashed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, KlogError]:
    """Remove the folders of these logs durably; the logs that could not be removed, with the error.

    ``trashed``: those that go to the trash, with their high watermarks. The others' files go later, in a thread.
    Raises RequestTimedOut where a disk hangs: the controller repeats its request.
    """
    by = f"controller {request.controller_id}, epoch {request.controller_epoch}"
    return await at_disks(runtime.executors, log_dirs, _remove, runtime, log_dirs, names, trashed, by)


def _remove(
    runtime: Runtime,
    log_dirs: LogDirs,
    names: Sequence[TopicPartition],
    trashed: Mapping[TopicPartition, int],
    by: str,
) -> dict[TopicPartition, KlogError]:
    """In a thread."""
    failed: dict[TopicPartition, KlogError] = {}
    for name in names:
        topic_id, there = log_dirs.topic_id(name), log_dirs.log(name)
        if log_dirs.is_being_trashed(name):  # since an earlier request: it must not count as done yet
            failed[name] = StorageError(f"the log of {name} is being moved to the trash")
            continue
        try:
            if name in trashed:
                if log_dirs.to_trash(name, trashed[name]):
                    log.info("%s: its log is moved to the trash (topic id %s), as %s asks", name, topic_id, by)
                continue
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
