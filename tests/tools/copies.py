"""What the tests of copies share: topics that are read whole, and sides that are open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from klog.client.positions import EARLIEST, LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.names import TopicPartition
from klog.record.batch import walk
from klog.record.codec import Codec
from klog.record.provenance_header import HEADER_NAME
from klog.record.records import Record, records_in
from klog.tools.copying.cluster_endpoint import ClusterEndpoint

T = TypeVar("T")


def everything(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """All messages of a topic by partition."""
    found: dict[int, list[Record]] = {}
    with RawCluster(bootstrap) as cluster:
        numbers = cluster.describe([topic])[topic].partitions
        names = [TopicPartition(topic, number) for number in numbers]
        starts = cluster.offsets(dict.fromkeys(names, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(names, LATEST))
        for one in names:
            wanted = Range(topic, one.partition, starts[one], ends[one])
            rows = found[one.partition] = []
            for run in cluster.fetch(wanted):
                rows += records_in(run)
    return found


def codecs_in(bootstrap: str, topic: str) -> set[Codec]:
    """Of the batches of a topic's partition 0."""
    name = TopicPartition(topic, 0)
    with RawCluster(bootstrap) as cluster:
        start, end = (cluster.offsets({name: place})[name] for place in (EARLIEST, LATEST))
        return {header.codec for run in cluster.fetch(Range(topic, 0, start, end)) for _, header in walk(run)}


def values(rows: list[Record]) -> list[bytes | None]:
    return [row.value for row in rows]


def unmarked(rows: list[Record]) -> list[Record]:
    """As before they were copied, but for their offsets."""
    return [row._replace(offset=0, headers=tuple(one for one in row.headers if one[0] != HEADER_NAME)) for row in rows]


def without_offsets(rows: list[Record]) -> list[Record]:
    return [row._replace(offset=0) for row in rows]


def with_sides(
    work: Callable[[ClusterEndpoint, ClusterEndpoint], Awaitable[T]], source: str, target: str | None = None
) -> T:
    """Run ``work`` with two open sides."""

    async def run() -> T:
        one = await ClusterEndpoint(source, "source", patience_s=30).open()
        other = await ClusterEndpoint(target or source, "target", patience_s=30).open()
        try:
            return await work(one, other)
        finally:
            await one.close()
            await other.close()

    return asyncio.run(run())
