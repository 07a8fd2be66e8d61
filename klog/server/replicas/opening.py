"""Replicas' assignments, from LeaderAndIsr: opens their logs, and creates those that may be created (rule R1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from klog.config import LogConfig
from klog.coordination.partition_states import PartitionState
from klog.errors import KlogError, StorageError
from klog.names import TopicPartition
from klog.protocol.interbroker import LeaderAndIsrPartition, LeaderAndIsrTopic
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)


class Assignment(NamedTuple):
    """The partition, the topic's id, and the partition's replicas and state in the request."""

    name: TopicPartition
    topic_id: UUID
    replicas: tuple[int, ...]
    state: PartitionState

    @classmethod
    def of(cls, topic: LeaderAndIsrTopic, one: LeaderAndIsrPartition) -> Assignment:
        state = PartitionState(
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            isr=one.isr,
            controller_epoch=one.controller_epoch,
            new=one.is_new,
            version=one.state_version,
            incarnations=one.incarnations,
            unclean_epoch=one.unclean_epoch,
        )
        return cls(TopicPartition(topic.name, one.partition_index), topic.topic_id or UUID(int=0), one.replicas, state)

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    def counts_earlier(self, broker_id: int, incarnation: int) -> bool:
        """Whether the ISR still names an earlier incarnation of this broker."""
        return broker_id in self.state.isr and not self.state.ran_on(broker_id, incarnation)


class Opened(NamedTuple):
    """The logs that exist now, and the errors of the others."""

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
        is_follower, is_new = name in follow, assigned.state.new
        there = log_dirs.log(name) if log_dirs.topic_id(name) == assigned.topic_id else None
        if there is not None and there.log_dir.failure is not None:
            opened.failed[name] = there.log_dir.failure
        elif there is not None:
            there.reconfigure(configs[name.topic])
            opened.logs[name] = there
        elif is_follower and not is_new and assigned.counts_earlier(identity.broker_id, identity.incarnation):
            # Rule R1: an empty log created now would look like the one in the ISR, and could be elected. The controller
            # first removes this broker from the ISR, and sends a request about it.
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


def _overrides(image: ClusterImage, topic: str) -> Mapping[str, str]:
    known = image.topics.get(topic)
    return {} if known is None else known.overrides
