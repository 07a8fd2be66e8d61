"""The offsets that an export commits to a consumer group after its own commit, for monitoring of groups' lag.

No run reads them back, so a late or missing commit loses no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klog.client.blocking import check_code
from klog.client.cluster import Cluster
from klog.export.rows import ExportedRange
from klog.protocol.apis import ApiKey


async def commit(cluster: Cluster, group: str, rows: Sequence[ExportedRange]) -> None:
    """Commit where these ranges end. KlogError of any kind where the coordinator does not take it."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(
            {
                "partition_index": row.partition,
                "committed_offset": row.to,
                "committed_leader_epoch": -1,
                "committed_metadata": "klog export",
            }
        )
    found = await cluster.to_any(ApiKey.FIND_COORDINATOR, 3, 1, key=group, key_type=0)
    check_code(found.error_code, f"the coordinator of group {group}")
    answer = await cluster.to_broker(
        int(found.node_id),
        ApiKey.OFFSET_COMMIT,
        7,
        5,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    )
    for topic in answer.topics:
        for one in topic.partitions:
            check_code(one.error_code, f"{topic.name}-{one.partition_index}")
