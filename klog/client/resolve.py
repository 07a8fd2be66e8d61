"""From positions to offsets, by each partition's leader.

The start, the end and times are ListOffsets; messages counted from an end are klog's own FindMessage, exact although
offsets are byte addresses. On a plain Kafka broker offsets are counters, and arithmetic replaces FindMessage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from klog.client import leader_requests
from klog.client.answers import or_raise
from klog.client.cluster import Cluster
from klog.client.one_message import first_timestamp
from klog.client.partition_requests import REPLICA
from klog.client.positions import EARLIEST, LATEST, Anchor, Position
from klog.errors import KlogError
from klog.names import TopicPartition


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
    found = _bounds(*await asyncio.gather(starts, ends))
    return {one: or_raise(answer) for one, answer in found.items()}


async def replica_bounds(
    cluster: Cluster, names: Collection[TopicPartition], broker_id: int
) -> dict[TopicPartition, Bounds]:
    """Start and end (the high watermark) of one broker's own replicas; the first error is raised."""
    channel = await cluster.channel(broker_id)
    starts, ends = [
        await leader_requests.list_offsets(channel, dict.fromkeys(names, which), replica_id=REPLICA)
        for which in (EARLIEST, LATEST)
    ]
    return {one: or_raise(found) for one, found in _bounds(starts, ends).items()}


def _bounds(starts: Mapping[TopicPartition, Any], ends: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
    """Of what two ListOffsets have found."""
    found: dict[TopicPartition, Any] = {}
    for one in starts:
        pair = starts[one], ends[one]
        failed = next((answer for answer in pair if isinstance(answer, KlogError)), None)
        found[one] = failed or Bounds(*(answer.offset or 0 for answer in pair))
    return found


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
    for one, offset in (await _list_offsets(cluster, times)).items():
        found[one] = within[one].end if offset is None else offset
    found |= await _find(cluster, {one: wanted for one, wanted in counted.items() if wanted[1]})
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


async def _list_offsets(cluster: Cluster, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    answers = await cluster.ask_leaders(times, leader_requests.list_offsets)
    return {one: answer.offset for one, answer in answers.items()}


async def _find(cluster: Cluster, steps: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    answers = await cluster.ask_leaders(steps, leader_requests.find_message)
    return {one: sum(steps[one]) if offset is None else offset for one, offset in answers.items()}
