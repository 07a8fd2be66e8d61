"""A replica's assignment, from LeaderAndIsr."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from klog.coordination.partition_states import PartitionState
from klog.names import TopicPartition
from klog.protocol.interbroker import LeaderAndIsrPartition, LeaderAndIsrTopic


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
