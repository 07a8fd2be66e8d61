"""Batches as they lie in the log, of many partitions by one request; for copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from klog.client import partition_requests
from klog.client.answers import error_in
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.record.batch import walk

PARTITION_BYTES = 1024 * 1024
ANSWER_BYTES = 16 * 1024 * 1024
ANSWER_GRACE_S = 5.0


class Fetched(NamedTuple):
    """A run of whole batches, the first of which may begin before the offset asked for; empty where there is no more.

    ``after``: the offset behind the last record of the run, -1 for an empty one.
    """

    run: memoryview
    after: int
    high_watermark: int


async def fetch(
    channel: Channel,
    share: Mapping[TopicPartition, int],
    *,
    wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
) -> dict[TopicPartition, Fetched | KlogError]:
    """From each partition what lies at its offset and behind, as `Cluster.to_leaders` wants it."""
    asked = partition_requests.fetch(
        channel, share, max_wait_ms=wait_ms, max_bytes=ANSWER_BYTES, partition_max_bytes=partition_bytes
    )
    answer = await channel.request(asked, timeout_s=wait_ms / 1000 + ANSWER_GRACE_S)
    found: dict[TopicPartition, Fetched | KlogError] = {}
    for topic in answer.responses:
        for one in topic.partitions:
            name = TopicPartition(str(topic.topic), int(one.partition_index))
            found[name] = _fetched(one, name)
    return found


def _fetched(one: Any, name: TopicPartition) -> Fetched | KlogError:
    failed = error_in(one, name)
    if failed is not None:
        return failed
    records = memoryview(one.records or b"")
    end, after = 0, -1
    try:
        for position, header in walk(records, allow_partial=True):
            end, after = position + header.size_bytes, header.last_offset + 1
    except KlogError as error:
        return error
    return Fetched(records[:end], after, int(one.high_watermark))
