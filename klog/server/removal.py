"""Deleting replicas' logs: only where rule R10 allows it, and never without a line in the broker's log.

A log is deleted under its topic's id alone, and where the registry has the replica no more: the topic is marked for
deletion or gone, or the partition has been reassigned from this broker. A controller writes that before it asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from klog.coordination import topics
from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.interbroker import StopReplicaRequest
from klog.server.disk_watch import at_disks
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


async def undeletable(broker: Broker, request: StopReplicaRequest) -> dict[TopicPartition, KlogError]:
    """The logs here that the request is to delete and may not, with the reason.

    Raises ZooKeeperError where the registry cannot be asked.
    """
    failed: dict[TopicPartition, KlogError] = {}
    asked: dict[TopicPartition, UUID] = {}
    for topic in request.topics:
        for one in topic.partitions:
            name = TopicPartition(topic.name, one.partition_index)
            if not one.delete or broker.log_dirs.topic_id(name) is None:
                continue
            if topic.topic_id is None:
                failed[name] = InvalidRequest(f"{name} is to be deleted without its topic's id")
            else:
                asked[name] = topic.topic_id
    held: set[TopicPartition] = set()
    if asked:
        held = await broker.executors.run(
            Purpose.REPLICAS, topics.still_held, broker.zookeeper, broker.broker_id, asked
        )
    for name in held:
        failed[name] = InvalidRequest(f"{name} is to be deleted, and the registry has it on this broker")
    for error in failed.values():
        log.error("%s: not deleted (controller %d says so)", error.message, request.controller_id)
    return failed


async def remove_logs(
    broker: Broker, names: Sequence[TopicPartition], request: StopReplicaRequest
) -> dict[TopicPartition, KlogError]:
    """Their folders are gone, durably, when it returns; which are not. Removing the files may take its time.

    RequestTimedOut where a disk hangs: to be said again.
    """
    by = f"controller {request.controller_id}, epoch {request.controller_epoch}"
    return await at_disks(broker, _remove, broker, names, by)


def _remove(broker: Broker, names: Sequence[TopicPartition], by: str) -> dict[TopicPartition, KlogError]:
    """In a thread."""
    failed: dict[TopicPartition, KlogError] = {}
    for name in names:
        topic_id, there = broker.log_dirs.topic_id(name), broker.log_dirs.log(name)
        try:
            purge = broker.log_dirs.remove(name)
        except KlogError as error:
            log.error("the log of %s could not be deleted: %s", name, error.message)
            failed[name] = error.bare()
            continue
        if purge is not None and there is not None:
            disk = there.home.path
            log.info("%s: its log is deleted (topic id %s), as %s says", name, topic_id, by)
            broker.from_thread(_purge_soon, broker, disk, purge)
    return failed


def _purge_soon(broker: Broker, disk: str, purge: Callable[[], None]) -> None:
    broker.spawn(broker.executors.run_at(disk, Purpose.UPKEEP, purge))
