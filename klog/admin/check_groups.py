"""What groups have committed, against what the logs hold: for `klog check`, as `klog group lag` measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.admin import group_lag
from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """An offset that a group has committed; ``lag`` in messages, None where it cannot be counted.

    ``offset`` None: a member reads a partition with messages, and has never committed.
    """

    group: str
    partition: TopicPartition
    offset: int | None
    start: int | None
    end: int | None
    lag: int | None


async def group_offsets(cluster: Cluster, session: ZooKeeper) -> list[GroupOffset]:
    """Every committed offset, by group, topic and partition, with its lag in messages as the leaders count it."""
    return [
        GroupOffset(
            row.group,
            TopicPartition(row.topic, row.partition),
            row.current_offset,
            row.log_start_offset,
            row.log_end_offset,
            row.lag,
        )
        for row in await group_lag.lag(cluster, session, times=False)
        if (row.current_offset is not None or row.has_committed_nothing)
        and row.group is not None
        and row.topic is not None
        and row.partition is not None
    ]
