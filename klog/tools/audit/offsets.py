"""Windows counted by their brokers: offsets by time, and messages between offsets. Nothing is read.

A window's messages are taken to lie between the first message of its time and the first one of the next window's.
Where several producers write to a partition, or one is late, messages stand a little out of the order of their times,
and some are counted in the neighbouring window. So this is a first look: what it finds equal is equal in number, and
what it finds to differ is for reading to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.client.positions import Anchor, Position
from klog.client.resolve import bounds, resolve, total_in
from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

Offsets = dict[TopicPartition, int]

QUESTIONS_AT_ONCE = 8


async def offsets_at(cluster: Cluster, topic: str, times_ms: Iterable[int]) -> dict[int, Offsets]:
    """For each time the offset of every partition's first message at or after it, its end where there is none.

    UnknownTopicOrPartition where the topic is not there; the first error of a leader is raised.
    """
    within = await bounds(cluster, (await cluster.topic(topic)).names())  # first: what comes later is not counted
    limit = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def ask(when: int) -> Offsets:
        async with limit:
            return await resolve(cluster, dict.fromkeys(within, Position(Anchor.TIME, when)), within)

    times = sorted(set(times_ms))
    return dict(zip(times, await asyncio.gather(*map(ask, times)), strict=True))


async def ends_of(cluster: Cluster, topic: str) -> Offsets:
    within = await bounds(cluster, (await cluster.topic(topic)).names())
    return {one: found.end for one, found in within.items()}


async def count_windows(
    cluster: Cluster, topic: str, starts_ms: Iterable[int], window_ms: int
) -> dict[int, int | None]:
    """Messages of each window, by its start; None where a broker does not know (it is counting again, say)."""
    starts = sorted(set(starts_ms))
    offsets = await offsets_at(cluster, topic, [*starts, *(start + window_ms for start in starts)])
    limit = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def count(start_ms: int) -> int | None:
        ends = offsets[start_ms + window_ms]
        spans = {one: (begin, ends[one]) for one, begin in offsets[start_ms].items() if begin < ends[one]}
        async with limit:
            return await total_in(cluster, spans)

    return dict(zip(starts, await asyncio.gather(*map(count, starts)), strict=True))
