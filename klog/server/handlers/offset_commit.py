"""OffsetCommit: v2-8.

Behaviour
    The coordinator acknowledges when ZooKeeper has all of the commit. An unknown partition gets
    UNKNOWN_TOPIC_OR_PARTITION, metadata above ``offset.metadata.max.bytes`` OFFSET_METADATA_TOO_LARGE. The other
    offsets are written together or not at all, as long as one multi holds them: about a thousand, fewer with metadata.
    The size of all metadata together has a limit too. A commit without a member (generation -1) is accepted only while
    the group has no members.

Version notes
    Up to v4 the request has a retention time, which klog ignores: ``offsets.retention.minutes`` applies to all. v6 has
    the leader epoch (KIP-320), v7 static members (KIP-345). v8 is flexible.
"""

from __future__ import annotations

from klog.client.partition_requests import by_partition
from klog.coordination.committed import CommittedOffset
from klog.errors import OffsetMetadataTooLarge, UnknownTopicOrPartition
from klog.groups.members import Caller
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts


@handles(ApiKey.OFFSET_COMMIT, 2, 8)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    metadata_bytes_max = parts.config.integer("offset.metadata.max.bytes")
    codes: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for partition, one in by_partition(entity.topics):
        known = parts.image.topics.get(partition.topic)
        metadata = one.committed_metadata or ""
        if known is None or partition.partition not in known.partitions:
            codes[partition] = UnknownTopicOrPartition.wire
        elif len(metadata.encode()) > metadata_bytes_max:
            codes[partition] = OffsetMetadataTooLarge.wire
        else:
            leader_epoch = getattr(one, "committed_leader_epoch", -1)
            offsets[partition] = CommittedOffset(one.committed_offset, leader_epoch, metadata)
    caller = Caller(entity.member_id, getattr(entity, "group_instance_id", None), entity.generation_id_or_member_epoch)
    error = await parts.groups.commits.commit(entity.group_id, caller, offsets, request.actor)
    code = 0 if error is None else error.wire
    answers = [
        {"partition_index": partition.partition, "error_code": codes.get(partition, code)}
        for partition, _ in by_partition(entity.topics)
    ]
    return {"topics": in_topics(entity.topics, answers)}
