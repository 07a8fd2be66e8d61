"""A replica's assignment, from LeaderAndIsr."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from klog.coordination.partition_states import PartitionState
from klog.names import TopicPartition
from klog.protocol.interbroker import LeaderAndIsrPartition
from klog.replication.isr import ReplicasAndIsr


class Assignment(NamedTuple):
    """The partition, the topic's id, and the partition's state in the request."""

    name: TopicPartition
    topic_id: UUID
    state: LeaderAndIsrPartition

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def replicas_and_isr(self) -> ReplicasAndIsr:
        state = self.state
        return ReplicasAndIsr(
            state.replicas,
            state.isr,
            state.incarnations,
            state.state_version,
            state.controller_epoch,
            state.unclean_epoch,
        )

    @property
    def written_state(self) -> PartitionState:
        """The state in ZooKeeper, without the mark of a new partition."""
        state = self.state
        return PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=tuple(state.isr),
            controller_epoch=state.controller_epoch,
            version=state.state_version,
            incarnations=tuple(state.incarnations),
            unclean_epoch=state.unclean_epoch,
        )

    def counts_earlier(self, broker_id: int, incarnation: int) -> bool:
        """Whether the ISR still names an earlier incarnation of this broker."""
        return broker_id in self.state.isr and self.replicas_and_isr.incarnation_of(broker_id) != incarnation
