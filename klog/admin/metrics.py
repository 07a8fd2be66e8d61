"""Brokers' metrics over their own port: a broker reads and sends them page by page (ReadMetrics)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.errors import KlogError, MalformedRequest, Refused
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail

SAMPLES_MAX: Final = 2_000_000
"""Of one broker: 10,000 partitions have a tenth."""


@dataclass(frozen=True, slots=True)
class MetricRow(MayFail):
    """One number of a broker; ``value`` None: not known."""

    broker: int | None
    name: str
    labels: Mapping[str, str]
    value: float | None
    kind: str | None = field(default=None, metadata={"wide": True})


async def read_metrics(
    cluster: Cluster, patterns: Sequence[str] = (), *, broker: int | None = None, wait_s: float | None = None
) -> list[MetricRow]:
    """The metrics of one broker, or of all, whose names match one of these globs; all without a glob.

    A broker that does not answer is a failed row. BrokerNotAvailable for a broker that is not there.
    """
    metadata = await cluster.metadata([], fresh=True)
    chosen = sorted(metadata.brokers) if broker is None else [metadata.live(broker).broker_id]
    found = await asyncio.gather(*(_of_broker(cluster, one, patterns, wait_s) for one in chosen))
    return [row for rows in found for row in rows]


async def _of_broker(cluster: Cluster, broker: int, patterns: Sequence[str], wait_s: float | None) -> list[MetricRow]:
    try:
        return [
            MetricRow(broker, one.name, {label.name: label.value for label in one.labels}, float(one.value), one.kind)
            for one in await _samples(cluster, broker, patterns, wait_s)
        ]
    except KlogError as error:
        return [MetricRow(broker, "", {}, None, None).failed_by(error)]


async def _samples(cluster: Cluster, broker: int, patterns: Sequence[str], wait_s: float | None) -> list[Any]:
    channel = await cluster.channel(broker)
    if ApiKey.READ_METRICS not in channel.versions:
        raise Refused(
            f"broker {broker} at {channel.address} does not serve its metrics over this port",
            hint="it is not klog, or an older version",
        )
    found: list[Any] = []
    place: tuple[str, tuple[str, ...]] = ("", ())
    while True:
        asked = codec.request(
            ApiKey.READ_METRICS, 0, patterns=tuple(patterns), after_name=place[0], after_labels=place[1]
        )
        answer = await channel.request(asked, timeout_s=wait_s)
        check(answer, f"metrics of broker {broker} at {channel.address}")
        found += answer.samples
        if answer.next_name is None:
            return found
        following = str(answer.next_name), tuple(answer.next_labels)
        if following <= place or len(found) > SAMPLES_MAX:
            raise MalformedRequest(
                f"broker {broker} at {channel.address} sends metrics without end: {len(found)} so far"
            )
        place = following
