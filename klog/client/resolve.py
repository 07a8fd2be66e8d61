"""From positions to offsets, by each partition's leader.

The start, the end and times are ListOffsets; messages counted from an end are klog's own FindMessage, exact although
offsets are byte addresses. On a plain Kafka broker offsets are counters, and arithmetic replaces FindMessage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from klog.client import leader_requests
from klog.client.answers import or_raise
from klog.client.cluster import Cluster
from klog.client.leader_requests import FoundOffset
from klog.client.one_message import first_timestamp
from klog.client.partition_requests import REPLICA
from klog.client.positions import EARLIEST, LATEST, Anchor, Position
from klog.errors import KlogError
from klog.names import TopicPartition

Found = Mapping[TopicPartition, FoundOffset | KlogError]


class Bounds(NamedTuple):
    """The first offset that is kept, and the end: the last message's offset + 1."""

    start: int
    end: int


async def bounds(cluster: Cluster, names: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Start and end of each partition; leaders are waited for, and the first error is raised."""
    starts, ends = [
        cluster.to_leaders(dict.fromkeys(names, which), leader_requests.list_offsets, wait_for_leader=True)
        for which in (EARLIEST, LATEST)
    ]
    return _bounds(*await asyncio.gather(starts, ends))


async def replica_bounds(
    cluster: Cluster, names: Collection[TopicPartition], broker_id: int
) -> dict[TopicPartition, Bounds]:
    """Start and end (the high watermark) of one broker's own replicas; the first error is raised."""
    channel = await cluster.channel(broker_id)
    starts, ends = [
        await leader_requests.list_offsets(channel, dict.fromkeys(names, which), replica_id=REPLICA)
        for which in (EARLIEST, LATEST)
    ]
    return _bounds(starts, ends)


def _bounds(starts: Found, ends: Found) -> dict[TopicPartition, Bounds]:
    """Of what two ListOffsets have found."""
    return {one: Bounds(*or_raise(leader_requests.both_ends(start, ends[one]))) for one, start in starts.items()}


async def resolve(
    cluster: Cluster,
    positions: Mapping[TopicPartition, Position],
    known: Mapping[TopicPartition, Bounds] | None = None,
) -> dict[TopicPartition, int]:
    """The offset of each partition's position, clamped to its bounds; the first error is raised."""
    within = known or await bounds(cluster, positions.keys())
    times = {one: position.value for one, position in positions.items() if position.anchor is Anchor.TIME}
    counted = {one: position.counted(*within[one]) for one, position in positions.items() if one not in times}
    found = {one: place for one, (place, _) in counted.items()}
    for one, at in (await cluster.ask_leaders(times, leader_requests.list_offsets)).items():
        found[one] = within[one].end if at.offset is None else at.offset
    steps = {one: step for one, step in counted.items() if step[1]}
    for one, offset in (await cluster.ask_leaders(steps, leader_requests.find_message)).items():
        found[one] = sum(steps[one]) if offset is None else offset
    return {one: min(max(offset, within[one].start), within[one].end) for one, offset in found.items()}


async def timestamps(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The timestamp of the first message at or after each offset, in ms; None if there is none."""
    return await cluster.ask_leaders(offsets, first_timestamp)


async def messages_in(
    cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """How many messages lie in each [from, to); None where the leader does not say, or does not answer."""
    answers = await cluster.to_leaders(spans, leader_requests.count_messages)
    return {
        one: None if answer is None or isinstance(answer, KlogError) else answer.messages
        for one, answer in answers.items()
    }


async def total_in(cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]]) -> int | None:
    """How many messages lie in all of them together; None where that of one is not known."""
    counts = (await messages_in(cluster, spans)).values()
    return None if None in counts else sum(filter(None, counts))
