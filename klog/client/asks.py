"""What is asked of partitions' leaders: each function sends one broker its share of partitions.

They fit `Cluster.to_leaders`: partitions with a question each go in, partitions with an answer or an error each come
out. Where a broker has no words for the question (plain Kafka and klog's own requests) the answer is None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from klog.client.blocking import error_of
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey

EARLIEST = -2
LATEST = -1
REPLICA = -2
"""In place of a follower's id: a consumer that wants the very broker's replica, led or not (Kafka's debugging one)."""

Q = TypeVar("Q")


class FoundOffset(NamedTuple):
    """``offset`` is None where no message is that late; ``timestamp_ms`` None where the question was for an end."""

    offset: int | None
    timestamp_ms: int | None


class Counted(NamedTuple):
    """Of a range whose ends are resolved; ``messages`` is None while the broker is still counting."""

    from_offset: int
    to_offset: int
    messages: int | None
    bytes: int


async def list_offsets(
    channel: Channel, share: Mapping[TopicPartition, int], *, replica_id: int = -1
) -> dict[TopicPartition, FoundOffset | KlogError]:
    """The offset of the first message at or after a time in ms, or of EARLIEST or LATEST; of a leader, or (REPLICA) of
    whoever is asked.
    """
    answer = await channel.request(
        codec.request(
            ApiKey.LIST_OFFSETS,
            channel.version_for(ApiKey.LIST_OFFSETS, 7, 1),
            replica_id=replica_id,
            isolation_level=0,
            topics=[
                {"name": topic, "partitions": [{"partition_index": p, "timestamp": when} for p, when in partitions]}
                for topic, partitions in _by_topic(share)
            ],
        )
    )
    return {
        one: _error(found, one)
        or FoundOffset(found.offset if found.offset >= 0 else None, found.timestamp if found.timestamp >= 0 else None)
        for one, found in _flat(answer.topics, "partitions")
    }


async def count_messages(
    channel: Channel, share: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, Counted | KlogError | None]:
    """How many messages lie in [from, to); EARLIEST and LATEST may stand for either."""
    if ApiKey.COUNT_MESSAGES not in channel.versions:
        return dict.fromkeys(share)
    answer = await channel.request(
        codec.request(
            ApiKey.COUNT_MESSAGES,
            0,
            topics=[
                {
                    "name": topic,
                    "ranges": [
                        {"partition_index": p, "from_offset": begin, "to_offset": end} for p, (begin, end) in ranges
                    ],
                }
                for topic, ranges in _by_topic(share)
            ],
        )
    )
    return {
        one: _error(found, one)
        or Counted(
            int(found.from_offset),
            int(found.to_offset),
            int(found.messages) if found.messages >= 0 else None,
            int(found.bytes),
        )
        for one, found in _flat(answer.topics, "ranges")
    }


class Unread(NamedTuple):
    """What lies between an offset and a partition's end; ``messages`` is None while the broker is still counting."""

    messages: int | None
    bytes: int


class Measured(NamedTuple):
    """A partition's first offset and its end at one moment, and for each offset asked what is unread from there."""

    start: int
    end: int
    unread: Mapping[int, Unread]


async def measure(
    channel: Channel, share: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Measured | KlogError | None]:
    """How much lies behind offsets, exactly; any number of them in each partition, all in one request.

    What an offset below the log's start has missed is gone and not counted; behind the end nothing is unread.
    """
    if ApiKey.COUNT_MESSAGES not in channel.versions:
        return dict.fromkeys(share)
    asked = {one: list(offsets) for one, offsets in share.items()}
    answer = await channel.request(
        codec.request(
            ApiKey.COUNT_MESSAGES,
            0,
            topics=[
                {
                    "name": topic,
                    "ranges": [
                        {"partition_index": number, "from_offset": begin, "to_offset": LATEST}
                        for number, offsets in partitions
                        for begin in (EARLIEST, *offsets)
                    ],
                }
                for topic, partitions in _by_topic(asked)
            ],
        )
    )
    answers: dict[TopicPartition, list[Any]] = {}
    for one, found in _flat(answer.topics, "ranges"):
        answers.setdefault(one, []).append(found)
    return {one: _measured(one, asked[one], found) for one, found in answers.items()}


def _measured(one: TopicPartition, asked: Sequence[int], answers: Sequence[Any]) -> Measured | KlogError:
    failed = next((error for found in answers if (error := _error(found, one)) is not None), None)
    if failed is not None:
        return failed
    whole, *rest = answers
    unread = {
        offset: Unread(int(found.messages) if found.messages >= 0 else None, int(found.bytes))
        for offset, found in zip(asked, rest, strict=True)
    }
    return Measured(int(whole.from_offset), int(whole.to_offset), unread)


async def message_times(
    channel: Channel, share: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Mapping[int, int | None] | KlogError | None]:
    """The timestamp in ms of the first message at or after each offset; None where there is none, or it has no time."""
    if ApiKey.MESSAGE_TIMES not in channel.versions:
        return dict.fromkeys(share)
    asked = {one: list(offsets) for one, offsets in share.items()}
    answer = await channel.request(
        codec.request(
            ApiKey.MESSAGE_TIMES,
            0,
            topics=[
                {"name": topic, "partitions": [{"partition_index": p, "offsets": offsets} for p, offsets in partitions]}
                for topic, partitions in _by_topic(asked)
            ],
        )
    )
    return {
        one: _error(found, one)
        or {offset: int(when) if when >= 0 else None for offset, when in zip(asked[one], found.timestamps, strict=True)}
        for one, found in _flat(answer.topics, "partitions")
    }


async def find_message(
    channel: Channel, share: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | KlogError | None]:
    """The offset of the message n after (n >= 0) or before (n < 0) an offset: the questions are (offset, n)."""
    if ApiKey.FIND_MESSAGE not in channel.versions:
        return dict.fromkeys(share)
    answer = await channel.request(
        codec.request(
            ApiKey.FIND_MESSAGE,
            0,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": p, "from_offset": place, "n": n} for p, (place, n) in partitions
                    ],
                }
                for topic, partitions in _by_topic(share)
            ],
        )
    )
    return {one: _error(found, one) or int(found.offset) for one, found in _flat(answer.topics, "partitions")}


def _by_topic(share: Mapping[TopicPartition, Q]) -> Iterable[tuple[str, list[tuple[int, Q]]]]:
    topics: dict[str, list[tuple[int, Q]]] = {}
    for one, question in share.items():
        topics.setdefault(one.topic, []).append((one.partition, question))
    return topics.items()


def _flat(topics: Any, inner: str) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in topics:
        for one in getattr(topic, inner):
            yield TopicPartition(str(topic.name), int(one.partition_index)), one


def _error(found: Any, one: TopicPartition) -> KlogError | None:
    wire = int(found.error_code)
    return error_of(wire, f"{one}: {found.error_code.name}") if wire else None
