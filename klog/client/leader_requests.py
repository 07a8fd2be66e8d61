"""Requests to partitions' leaders: each function sends one broker its share of partitions.

They fit `Cluster.to_leaders`: they take partitions with a question each, and return partitions with an answer or an
error each. If the broker does not know the request (plain Kafka and klog's own requests), the answer is None;
`measure` then tells the ends alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from klog.client import partition_requests
from klog.client.answers import error_in
from klog.client.partition_requests import CONSUMER, by_partition, by_topic, ranges_by_partition
from klog.client.positions import EARLIEST, LATEST
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey


class FoundOffset(NamedTuple):
    """``offset`` is None if no message is that late; ``timestamp_ms`` is None if the question was for an end."""

    offset: int | None
    timestamp_ms: int | None


class Counted(NamedTuple):
    """The size of a range with resolved ends; ``messages`` is None while the broker is still counting."""

    from_offset: int
    to_offset: int
    messages: int | None
    bytes: int


async def list_offsets(
    channel: Channel, share: Mapping[TopicPartition, int], *, replica_id: int = CONSUMER
) -> dict[TopicPartition, FoundOffset | KlogError]:
    """The offset of the first message at or after a time in ms, or of EARLIEST or LATEST; of a leader, or (REPLICA) of
    the broker asked.
    """
    answer = await channel.request(partition_requests.list_offsets(channel, share, replica_id=replica_id))
    return {
        one: error_in(found, one)
        or FoundOffset(found.offset if found.offset >= 0 else None, found.timestamp if found.timestamp >= 0 else None)
        for one, found in by_partition(answer.topics)
    }


def both_ends(start: FoundOffset | KlogError, end: FoundOffset | KlogError) -> tuple[int, int] | KlogError:
    """The offsets of a partition's EARLIEST and LATEST, or the first error."""
    if isinstance(start, KlogError):
        return start
    return end if isinstance(end, KlogError) else (start.offset or 0, end.offset or 0)


async def count_messages(
    channel: Channel, share: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, Counted | KlogError | None]:
    """The number of messages in [from, to); either end may be EARLIEST or LATEST."""
    if ApiKey.COUNT_MESSAGES not in channel.versions:
        return dict.fromkeys(share)
    asked = {one: [bounds] for one, bounds in share.items()}
    answer = await channel.request(partition_requests.count_messages(asked))
    return {one: error_in(found, one) or _counted(found) for one, found in by_partition(answer.topics, "ranges")}


def _counted(found: Any) -> Counted:
    messages = int(found.messages) if found.messages >= 0 else None
    return Counted(int(found.from_offset), int(found.to_offset), messages, int(found.bytes))


class Measured(NamedTuple):
    """A partition's first offset and its end at one moment, what lies between, and what is unread from each offset in
    the question. Plain Kafka's brokers tell the first two alone."""

    start: int
    end: int
    messages: int | None = None
    bytes: int | None = None
    unread: Mapping[int, Counted] = {}


async def measure(
    channel: Channel, share: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Measured | KlogError]:
    """The exact size behind offsets; any number of them in each partition, all in one request.

    For an offset below the log's start, removed messages are not counted; behind the end nothing is unread.
    """
    if ApiKey.COUNT_MESSAGES not in channel.versions:
        starts = await list_offsets(channel, dict.fromkeys(share, EARLIEST))
        ends = await list_offsets(channel, dict.fromkeys(share, LATEST))
        pairs = {one: both_ends(start, ends[one]) for one, start in starts.items()}
        return {one: pair if isinstance(pair, KlogError) else Measured(*pair) for one, pair in pairs.items()}
    asked = {one: list(offsets) for one, offsets in share.items()}
    ranges = {one: [(first, LATEST) for first in (EARLIEST, *offsets)] for one, offsets in asked.items()}
    answer = await channel.request(partition_requests.count_messages(ranges))
    return {one: _measured(one, asked[one], found) for one, found in ranges_by_partition(answer.topics).items()}


def _measured(one: TopicPartition, asked: Sequence[int], answers: Sequence[Any]) -> Measured | KlogError:
    failed = next((error for found in answers if (error := error_in(found, one)) is not None), None)
    if failed is not None:
        return failed
    whole, *rest = answers
    unread = dict(zip(asked, map(_counted, rest), strict=True))
    return Measured(*_counted(whole), unread)


async def message_times(
    channel: Channel, share: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Mapping[int, int | None] | KlogError | None]:
    """The timestamp in ms of the first message at or after each offset; None without such a message or timestamp."""
    if ApiKey.MESSAGE_TIMES not in channel.versions:
        return dict.fromkeys(share)
    asked = {one: list(offsets) for one, offsets in share.items()}
    answer = await channel.request(
        codec.request(
            ApiKey.MESSAGE_TIMES,
            0,
            topics=by_topic((one, {"offsets": offsets}) for one, offsets in asked.items()),
        )
    )
    return {
        one: error_in(found, one)
        or {offset: int(when) if when >= 0 else None for offset, when in zip(asked[one], found.timestamps, strict=True)}
        for one, found in by_partition(answer.topics)
    }


async def find_message(
    channel: Channel, share: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | KlogError | None]:
    """The offset of the message n after (n >= 0) or before (n < 0) an offset: the questions are (offset, n)."""
    if ApiKey.FIND_MESSAGE not in channel.versions:
        return dict.fromkeys(share)
    answer = await channel.request(partition_requests.find_message(share))
    return {one: error_in(found, one) or int(found.offset) for one, found in by_partition(answer.topics)}
