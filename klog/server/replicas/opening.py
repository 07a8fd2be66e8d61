"""Opens the logs of assigned replicas, brings back those in the trash, and creates those that may be (rule R1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from klog.config import LogConfig
from klog.coordination import topics, trash
from klog.errors import KlogError, StorageError
from klog.names import TopicPartition
from klog.server.image import ClusterImage
from klog.server.replicas.assignment import Assignment
from klog.server.runtime import Runtime
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The logs that exist now, and why others do not."""

    logs: dict[TopicPartition, Log]
    failed: dict[TopicPartition, KlogError]


def open_logs(
    runtime: Runtime,
    image: ClusterImage,
    log_dirs: LogDirs,
    lead: Mapping[TopicPartition, Assignment],
    follow: Mapping[TopicPartition, Assignment],
) -> Opened:
    """In a thread. A follower whose log must wait for the controller is in neither part of the result."""
    config, identity = runtime.config, runtime.identity
    concerned = {name.topic for name in (*lead, *follow)}
    configs = {topic: LogConfig.of(config.of_topic(topic), _overrides(image, topic)) for topic in concerned}
    opened = Opened({}, {})
    to_create: dict[TopicPartition, tuple[UUID, LogConfig]] = {}
    for name, assigned in (*lead.items(), *follow.items()):
        is_follower, is_new = name in follow, assigned.state.is_new
        there = log_dirs.log(name) if log_dirs.topic_id(name) == assigned.topic_id else None
        if there is None:
            try:
                there = log_dirs.restore(name, assigned.topic_id, configs[name.topic])
            except StorageError as error:  # an empty log must not take its place
                opened.failed[name] = error.bare()
                continue
        if there is not None and there.log_dir.failure is not None:
            opened.failed[name] = there.log_dir.failure
        elif there is not None:
            there.reconfigure(configs[name.topic])
            opened.logs[name] = there
        elif is_follower and not is_new and assigned.counts_earlier(identity.broker_id, identity.incarnation):
            # Rule R1: an empty log created now would look like the one that the ISR counts, and could be elected.
            # The controller removes this broker from the ISR first, and sends a request about it.
            log.info("%s: its log is gone; not created again while the ISR names an earlier incarnation", name)
        elif log_dirs.is_being_made(name):  # since an earlier request, on a disk that hangs: never twice
            opened.failed[name] = StorageError("its log is being created on a disk that does not answer")
        elif is_follower or is_new:
            to_create[name] = assigned.topic_id, configs[name.topic]
        else:
            opened.failed[name] = StorageError(
                f"it has had messages, and the log dirs ({', '.join(config.log_dirs)}) have no log of it; "
                "leading with an emptied dir would lose them for good"
            )
    for tries_left in reversed(range(len(log_dirs.dirs))):  # a dir that fails meanwhile leaves the others
        try:
            opened.logs.update(log_dirs.logs_or_create(to_create))
            break
        except StorageError as error:
            if not tries_left:
                opened.failed.update(dict.fromkeys(to_create, error.bare()))
    return opened


class Restored(NamedTuple):
    """Logs that are back from the trash, and those that could not be brought back: partition -> topic id."""

    back: list[TopicPartition]
    stuck: dict[TopicPartition, UUID]


def restore_logs(runtime: Runtime, log_dirs: LogDirs) -> Restored:
    """In a thread: bring back from the trash what belongs to a topic that is registered again.

    Raises ZooKeeperError where the registry cannot be read.
    """
    waiting = {
        (one.topic_id, one.name.partition) for log_dir in log_dirs.dirs for one in log_dir.trash.waiting.copy().values()
    }
    restored = Restored([], {})
    if not waiting:
        return restored
    zookeeper = runtime.zookeeper
    found = trash.registered(zookeeper, {topic_id for topic_id, _ in waiting})
    settings = topics.configs(zookeeper, [topic.name for topic in found.values()], {})
    for topic_id, number in sorted(waiting):
        topic = found.get(topic_id)
        if topic is None or runtime.broker_id not in topic.partitions.get(number, ()):
            continue
        name = TopicPartition(topic.name, number)
        # Its own settings from the start: retention must not go by the broker's.
        config = LogConfig.of(runtime.config.of_topic(topic.name), settings[topic.name].settings)
        try:
            if log_dirs.restore(name, topic_id, config) is not None:
                restored.back.append(name)
        except StorageError as error:
            log.error("%s: its log stays in the trash: %s", name, error.message)
        if log_dirs.topic_id(name) != topic_id:
            restored.stuck[name] = topic_id
    return restored


def stuck_facts(name: TopicPartition, topic_id: UUID) -> dict[str, Any]:
    """What DescribeReplicas says of a log that could not be brought back: it is there, and its disk does not serve."""
    return {
        "topic": name.topic,
        "partition_index": name.partition,
        "topic_id": topic_id,
        "last_epoch": -1,
        "end_address": 0,
        "is_whole": False,
        "was_safe": False,
        "is_online": False,
    }


def _overrides(image: ClusterImage, topic: str) -> Mapping[str, str]:
    known = image.topics.get(topic)
    return {} if known is None else known.overrides
