"""Requests that ask a broker about partitions. Each is built here and nowhere else.

They serve both kinds of connection, `klog.net.channel.Channel` and `klog.client.blocking.BlockingChannel`, and take the
newest version that the broker and klog share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey

CONSUMER = -1
REPLICA = -2
"""In place of a follower's id: an ordinary consumer, or one that reads this broker's replica, leader or not (Kafka's
debugging consumer)."""

Q = TypeVar("Q")


class Versions(Protocol):
    """A connection that knows which versions its broker serves."""

    def version_for(self, key: int, highest: int, lowest: int = 0) -> int:
        """The highest version that both sides speak. Raises UnsupportedVersion if they share none."""
        ...


def by_topic(wanted: Mapping[TopicPartition, Q]) -> list[tuple[str, list[tuple[int, Q]]]]:
    """Partitions as requests list them: by topic, each with its partitions' numbers and their fields."""
    topics: dict[str, list[tuple[int, Q]]] = {}
    for one, question in wanted.items():
        topics.setdefault(one.topic, []).append((one.partition, question))
    return list(topics.items())


def by_partition(topics: Iterable[Any], inner: str = "partitions") -> Iterator[tuple[TopicPartition, Any]]:
    """The parts of a response by their partitions; ``inner``: the name of a topic's list of them."""
    for topic in topics:
        for one in getattr(topic, inner):
            yield TopicPartition(str(topic.name), int(one.partition_index)), one


def fetch(
    channel: Versions,
    offsets: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int | None = None,
    min_bytes: int = 1,
    replica_id: int = CONSUMER,
) -> Any:
    """Fetch batches from each partition's offset on. ``partition_max_bytes`` is ``max_bytes`` unless set."""
    most = max_bytes if partition_max_bytes is None else partition_max_bytes
    return codec.request(
        ApiKey.FETCH,
        channel.version_for(ApiKey.FETCH, 12, 4),
        replica_id=replica_id,
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {"partition": number, "fetch_offset": offset, "partition_max_bytes": most}
                    for number, offset in partitions
                ],
            }
            for topic, partitions in by_topic(offsets)
        ],
        forgotten_topics_data=[],
    )


def list_offsets(channel: Versions, times_ms: Mapping[TopicPartition, int], *, replica_id: int = CONSUMER) -> Any:
    """Ask for the first offset at or after a time in ms, or for EARLIEST or LATEST."""
    return codec.request(
        ApiKey.LIST_OFFSETS,
        channel.version_for(ApiKey.LIST_OFFSETS, 7, 1),
        replica_id=replica_id,
        isolation_level=0,
        topics=[
            {"name": topic, "partitions": [{"partition_index": n, "timestamp": time_ms} for n, time_ms in partitions]}
            for topic, partitions in by_topic(times_ms)
        ],
    )


def count_messages(ranges: Mapping[TopicPartition, Iterable[tuple[int, int]]]) -> Any:
    """klog's own: ask how many messages lie in each ``[from, to)``. The answer keeps the order of the ranges."""
    return codec.request(
        ApiKey.COUNT_MESSAGES,
        0,
        topics=[
            {
                "name": topic,
                "ranges": [
                    {"partition_index": number, "from_offset": first, "to_offset": end}
                    for number, asked in partitions
                    for first, end in asked
                ],
            }
            for topic, partitions in by_topic(ranges)
        ],
    )


def find_message(wanted: Mapping[TopicPartition, tuple[int, int]]) -> Any:
    """klog's own: for each partition (offset, n), ask for the offset of the n-th message from that offset on."""
    return codec.request(
        ApiKey.FIND_MESSAGE,
        0,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "from_offset": offset, "n": n} for number, (offset, n) in partitions
                ],
            }
            for topic, partitions in by_topic(wanted)
        ],
    )
