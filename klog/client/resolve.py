"""From positions to offsets, by each partition's leader.

The start, the end and times are ListOffsets; messages counted from an end are klog's own FindMessage, exact although
offsets are byte addresses. On a plain Kafka broker offsets are counters, and arithmetic replaces FindMessage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.one_message import first_timestamp
from klog.client.partition_requests import REPLICA
from klog.client.positions import EARLIEST, LATEST, Anchor, Position
from klog.errors import KlogError
from klog.names import TopicPartition

A = TypeVar("A")


class Bounds(NamedTuple):
    """The first offset that is kept, and the end: the last message's offset + 1."""

    start: int
    end: int


async def bounds(cluster: Cluster, topic: str, partitions: Sequence[int]) -> dict[int, Bounds]:
    """Start and end of each partition; the first error is raised."""
    starts, ends = await asyncio.gather(
        _list_offsets(cluster, topic, partitions, EARLIEST),
        _list_offsets(cluster, topic, partitions, LATEST),
    )
    return {one: Bounds(starts[one] or 0, ends[one] or 0) for one in partitions}


async def replica_bounds(cluster: Cluster, topic: str, partitions: Sequence[int], broker_id: int) -> dict[int, Bounds]:
    """Start and end (the high watermark) of one broker's own replicas; the first error is raised."""
    channel = await cluster.channel(broker_id)
    wanted = [TopicPartition(topic, one) for one in partitions]
    starts, ends = [
        await leader_requests.list_offsets(channel, dict.fromkeys(wanted, which), replica_id=REPLICA)
        for which in (EARLIEST, LATEST)
    ]
    return {
        one.partition: Bounds(_or_raise(starts[one]).offset or 0, _or_raise(ends[one]).offset or 0) for one in wanted
    }


async def resolve(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[int],
    position: Position,
    known: Mapping[int, Bounds] | None = None,
) -> dict[int, int]:
    """The offset of ``position`` in each partition, clamped to its bounds; the first error is raised."""
    within = known or await bounds(cluster, topic, partitions)
    if position.anchor is Anchor.TIME:
        times = await _list_offsets(cluster, topic, partitions, position.value)
        found = {one: within[one].end if offset is None else offset for one, offset in times.items()}
    else:
        wanted = {one: position.counted(*within[one]) for one in partitions}
        is_counted = any(messages for _, messages in wanted.values())
        found = await _find(cluster, topic, wanted) if is_counted else {one: at for one, (at, _) in wanted.items()}
    return {one: min(max(found[one], within[one].start), within[one].end) for one in partitions}


async def timestamps(cluster: Cluster, topic: str, offsets: Mapping[int, int]) -> dict[int, int | None]:
    """The timestamp of the first message at or after each offset, in ms; None if there is none."""
    answers = await cluster.to_leaders(
        {TopicPartition(topic, one): offset for one, offset in offsets.items()}, first_timestamp
    )
    return {one.partition: _or_raise(answer) for one, answer in answers.items()}


async def _list_offsets(cluster: Cluster, topic: str, partitions: Sequence[int], when: int) -> dict[int, int | None]:
    answers = await cluster.to_leaders(
        {TopicPartition(topic, one): when for one in partitions}, leader_requests.list_offsets, wait_for_leader=True
    )
    return {one.partition: _or_raise(answer).offset for one, answer in answers.items()}


async def _find(cluster: Cluster, topic: str, wanted: dict[int, tuple[int, int]]) -> dict[int, int]:
    answers = await cluster.to_leaders(
        {TopicPartition(topic, one): question for one, question in wanted.items()},
        leader_requests.find_message,
        wait_for_leader=True,
    )
    found = {}
    for one, answer in answers.items():
        place, n = wanted[one.partition]
        offset = _or_raise(answer)
        found[one.partition] = place + n if offset is None else offset
    return found


def _or_raise(answer: A | KlogError) -> A:
    if isinstance(answer, KlogError):
        raise answer
    return answer
