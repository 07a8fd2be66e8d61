"""Requests to a group's coordinator, by a client outside the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.client.partition_requests import by_partition, by_topic
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey


async def to_coordinator(
    cluster: Cluster, group: str, key: ApiKey, highest: int, lowest: int = 0, **fields: Any
) -> Any:
    """The answer of the broker that has the group now."""
    found = await cluster.to_any(ApiKey.FIND_COORDINATOR, 3, 1, key=group, key_type=0)
    check(found, f"the coordinator of group {group}")
    return await cluster.to_broker(int(found.node_id), key, highest, lowest, **fields)


async def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Commit offsets with their metadata. KlogError of any kind where the coordinator does not take them:
    UnknownMemberId or IllegalGeneration where the group has members.
    """
    topics = by_topic(
        (name, {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": metadata})
        for name, (offset, metadata) in offsets.items()
    )
    member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    answer = await to_coordinator(cluster, group, ApiKey.OFFSET_COMMIT, 7, 5, **member, topics=topics)
    for name, one in by_partition(answer.topics):
        check(one, f"committing {name} for group {group}")
