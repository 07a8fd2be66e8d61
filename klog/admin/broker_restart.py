"""`klog broker restart`: brokers are restarted one at a time, and only while nothing hangs on one of them alone.

Before a broker stops, every partition that it shares with others must be in sync everywhere, and afterwards until that
is so again the next one waits. A broker that stops hands over what it leads first. What has one replica alone is not
served while its broker restarts: the row counts these partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klog.admin.brokers import BrokerStop, describe_self, outage
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.client.metadata import BrokerNode, Metadata
from klog.errors import CannotConnect, KlogError, Refused, TimedOut
from klog.metrics import Count
from klog.names import counted, first_few
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail

PAUSE_S: Final = 0.1
SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class BrokerRestarted(MayFail):
    """``alone``: its partitions without another replica, which were not served meanwhile."""

    broker: int
    host: str
    port: int
    restarted: bool
    ms: int
    alone: int


async def restart_brokers(
    cluster: Cluster, broker_ids: Sequence[int], *, wait_s: float, count: Count
) -> AsyncIterator[BrokerRestarted]:
    """A row as each has restarted and is in sync; the last one has the error, if there is one: the others stay as they
    are. ``wait_s`` is for each broker; ``count`` counts those that have restarted, and says what the next one does.
    BrokerNotAvailable where one is not alive at the start."""
    metadata = await cluster.metadata(fresh=True)
    nodes = [metadata.live(one) for one in broker_ids]
    for node in nodes:
        begun = time.monotonic()
        count.about, alone = f"broker {node.broker_id} is asked", 0
        failed: KlogError | None = None
        try:
            async with asyncio.timeout(wait_s):
                alone = await _restart(cluster, node.broker_id, count)
        except TimeoutError:
            failed = TimedOut(
                f"broker {node.broker_id} is not back in sync within {wait_s:g} s; at last: {count.about}"
            )
        except KlogError as error:
            failed = error
        ms = round((time.monotonic() - begun) * 1000)
        count.done += failed is None
        row = BrokerRestarted(node.broker_id, node.host, node.port, failed is None, ms, alone)
        yield row.failed_by(failed)
        if failed is not None:
            return


async def preview_restart(cluster: Cluster, broker_ids: Sequence[int]) -> list[BrokerStop]:
    """What the stop of each would do, or the first error of `restart_brokers`; every broker goes on."""
    metadata = await cluster.metadata(fresh=True)
    nodes = [metadata.live(one) for one in broker_ids]
    for node in nodes:
        await _restartable(cluster, node)
    return [outage(metadata, node) for node in nodes]


async def every_broker(cluster: Cluster) -> list[int]:
    """All live brokers, host by host, the controller's host last and the controller at its end."""
    metadata = await cluster.metadata([], fresh=True)
    of_controller = metadata.brokers.get(-1 if metadata.controller_id is None else metadata.controller_id)
    last = of_controller.host if of_controller is not None else ""

    def rank(one: BrokerNode) -> tuple[bool, str, bool, int]:
        return one.host == last, one.host, one.broker_id == metadata.controller_id, one.broker_id

    return [one.broker_id for one in sorted(metadata.brokers.values(), key=rank)]


async def _restart(cluster: Cluster, broker_id: int, count: Count) -> int:
    """Restart it and wait until it is in sync; the number of partitions that it holds alone."""
    await _until_in_sync(cluster, broker_id, count)
    metadata = await cluster.metadata()
    node = metadata.live(broker_id)
    channel, before = await _restartable(cluster, node)
    answer = await channel.request(codec.request(ApiKey.RESTART_BROKER, 0, broker_id=broker_id))
    check(answer, f"broker {broker_id} at {node.address}")
    count.about = f"broker {broker_id} shuts down"
    await channel.wait_closed()
    count.about = f"broker {broker_id} starts"
    while True:  # nothing tells a client of it
        if await _is_back(cluster, broker_id, int(before.incarnation)):
            break
        await asyncio.sleep(PAUSE_S)
    await _until_in_sync(cluster, broker_id, count)
    return sum(one.replicas == (broker_id,) for one in metadata.partitions)


async def _restartable(cluster: Cluster, node: BrokerNode) -> tuple[Channel, Any]:
    """The connection to a broker that can be asked to restart, and what it says of itself; Refused where it cannot."""
    described = await describe_self(cluster, node.broker_id)
    channel = await cluster.channel(node.broker_id)
    if ApiKey.RESTART_BROKER not in channel.versions or described is None:
        raise Refused(
            f"broker {node.broker_id} at {node.address} does not support remote restart",
            hint="end its process by SIGTERM, and start it again",
        )
    return channel, described


async def _is_back(cluster: Cluster, broker_id: int, incarnation: int) -> bool:
    try:
        if broker_id not in (await cluster.metadata([], fresh=True)).brokers:
            return False
        now = await describe_self(cluster, broker_id)
    except CannotConnect:  # the only one, or all others are away
        return False
    return now is not None and int(now.incarnation) != incarnation


async def _until_in_sync(cluster: Cluster, broker_id: int, count: Count) -> None:
    while True:
        try:
            lacking = _lacking(await cluster.metadata(fresh=True), broker_id)
            if not lacking:
                return
            named = first_few(lacking, SHOWN_MAX)
            count.about = f"broker {broker_id}: {counted(len(lacking), 'partition')} not in sync: {named}"
        except CannotConnect:
            pass
        await asyncio.sleep(PAUSE_S)


def _lacking(metadata: Metadata, broker_id: int) -> list[str]:
    """Its partitions that have no leader, or a replica that is not in sync."""
    return [
        f"{topic.name}-{one.partition}"
        for topic in metadata.topics.values()
        for one in topic.partitions.values()
        if broker_id in one.replicas and (one.leader is None or set(one.isr) != set(one.replicas))
    ]
