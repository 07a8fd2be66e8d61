"""Requests that ask a broker about partitions. Each is built here and nowhere else.

They serve both kinds of connection, `klog.net.channel.Channel` and `klog.client.blocking.BlockingChannel`, and take the
newest version that the broker and klog share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from klog.names import TopicPartition
from klog.net.conversation import Conversation
from klog.protocol import codec
from klog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from klog.record.batch import Bytes

CONSUMER = -1
REPLICA = -2
"""In place of a follower's id: an ordinary consumer, or one that reads this broker's replica, leader or not (Kafka's
debugging consumer)."""


def by_topic(
    asked: Iterable[tuple[TopicPartition, Mapping[str, Any]]],
    *,
    topic: str = "name",
    inner: str = "partitions",
    number: str = "partition_index",
) -> list[dict[str, Any]]:
    """Partitions, and what is asked or answered about each, as requests and answers list them: by topic. The names of
    the fields for a topic, for its partitions and for their numbers are those of most."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for one, fields in asked:
        topics.setdefault(one.topic, []).append({number: one.partition, **fields})
    return [{topic: name, inner: partitions} for name, partitions in topics.items()]


def by_partition(
    topics: Iterable[Any], inner: str = "partitions", *, topic: str = "name"
) -> Iterator[tuple[TopicPartition, Any]]:
    """The parts of a request or an answer by their partitions. The names of the fields for a topic's name and for its
    list of them are those of most."""
    for of_topic in topics:
        name = str(getattr(of_topic, topic))
        for one in getattr(of_topic, inner):
            yield TopicPartition(name, int(one.partition_index)), one


def ranges_by_partition(topics: Iterable[Any]) -> dict[TopicPartition, list[Any]]:
    """The answers to `count_messages` by their partitions, each partition's in the order of its ranges."""
    found: dict[TopicPartition, list[Any]] = {}
    for name, one in by_partition(topics, "ranges"):
        found.setdefault(name, []).append(one)
    return found


def fetch(
    channel: Conversation,
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
        topics=by_topic(
            ((one, {"fetch_offset": offset, "partition_max_bytes": most}) for one, offset in offsets.items()),
            topic="topic",
            number="partition",
        ),
        forgotten_topics_data=[],
    )


def produce(channel: Conversation, partition: TopicPartition, records: Bytes, *, timeout_ms: int) -> Any:
    """Append a batch; answered when all in-sync replicas have it, or after that time."""
    return codec.request(
        ApiKey.PRODUCE,
        channel.version_for(ApiKey.PRODUCE, 8, 3),
        transactional_id=None,
        acks=-1,
        timeout=timeout_ms,
        topic_data=by_topic([(partition, {"records": records})], inner="partition_data", number="index"),
    )


def list_offsets(channel: Conversation, times_ms: Mapping[TopicPartition, int], *, replica_id: int = CONSUMER) -> Any:
    """Ask for the first offset at or after a time in ms, or for EARLIEST or LATEST."""
    return codec.request(
        ApiKey.LIST_OFFSETS,
        channel.version_for(ApiKey.LIST_OFFSETS, 7, 1),
        replica_id=replica_id,
        isolation_level=0,
        topics=by_topic((one, {"timestamp": time_ms}) for one, time_ms in times_ms.items()),
    )


def count_messages(ranges: Mapping[TopicPartition, Iterable[tuple[int, int]]]) -> Any:
    """klog's own: ask how many messages lie in each ``[from, to)``. The answer keeps the order of the ranges."""
    return codec.request(
        ApiKey.COUNT_MESSAGES,
        0,
        topics=by_topic(
            ((one, {"from_offset": first, "to_offset": end}) for one, asked in ranges.items() for first, end in asked),
            inner="ranges",
        ),
    )


def find_message(wanted: Mapping[TopicPartition, tuple[int, int]]) -> Any:
    """klog's own: for each partition (offset, n), ask for the offset of the n-th message from that offset on."""
    return codec.request(
        ApiKey.FIND_MESSAGE,
        0,
        topics=by_topic((one, {"from_offset": offset, "n": n}) for one, (offset, n) in wanted.items()),
    )
