"""The verbs of a broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from klog.admin.settings import describe_broker_settings
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.client.metadata import BrokerNode, Metadata
from klog.config.broker import setting_of
from klog.coordination.brokers import Endpoint
from klog.errors import (
    BrokerNotAvailable,
    CannotConnect,
    KlogError,
    NoSuchThing,
    Refused,
    TimedOut,
    UnsupportedVersion,
)
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.render.values import moment

DEAD = "dead"
NO_ANSWER = "no answer"
SILENCE = (BrokerNotAvailable, CannotConnect, TimedOut)
"""Errors of a broker that does not say a word; others, as of a login that it refuses, are answers."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker, alive or (``state`` dead) only named in assignments; ``no answer`` is one that does not say a word.

    What Kafka's protocol has no request for is None where the broker is not klog.
    """

    broker: int
    host: str | None
    port: int | None
    rack: str | None = field(metadata={"rank": 2})
    controller: bool
    leaders: int
    replicas: int
    since: datetime | str | None = field(metadata={"rank": 1})
    state: str | None = field(default=None, metadata={"wide": True})
    version: str | None = field(default=None, metadata={"wide": True})
    incarnation: int | None = field(default=None, metadata={"wide": True})
    cluster_id: str | None = field(default=None, metadata={"wide": True})
    zookeeper: str | None = field(default=None, metadata={"wide": True})
    listeners: list[str] | None = field(default=None, metadata={"wide": True})
    """``NAME://HOST:PORT PROTOCOL RANGES``: ranges of files go out by ``sendfile``, or klog has them ``encrypted``."""


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting of a broker. ``effect`` is ``none`` for those of Kafka's that klog has no use for."""

    name: str
    value: str | None
    source: str
    default: str | None
    effect: str | None = field(metadata={"rank": 1})
    doc: str | None = field(metadata={"rank": 2})


@dataclass(frozen=True, slots=True)
class BrokerStopped:
    """``stopped`` is False where the broker still held its connection when the wait was over."""

    broker: int
    host: str
    port: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class BrokerStop:
    """What a stop of a broker does: ``leaders`` are the partitions that it leads, ``offline`` those of them that no
    other live broker has in sync, which are not served until it is back."""

    broker: int
    host: str
    port: int
    leaders: int
    offline: int


async def list_brokers(cluster: Cluster) -> list[BrokerRow]:
    """Every live broker and every one that has replicas, by number."""
    metadata = await cluster.metadata(fresh=True)
    nodes = dict(metadata.brokers) | {broker: BrokerNode(broker, "", 0, None) for broker in metadata.dead}
    selves = await cluster.to_each(ApiKey.DESCRIBE_SELF, 0)
    counts = shares(metadata)
    return [_row(node, metadata, counts, selves.get(broker, DEAD)) for broker, node in sorted(nodes.items())]


async def brokers_on(cluster: Cluster, host: str) -> list[int]:
    """The live brokers that are registered with this host, in the order of their ids; NoSuchThing without one."""
    metadata = await cluster.metadata([], fresh=True)
    found = sorted(one.broker_id for one in metadata.brokers.values() if one.host == host)
    if not found:
        hosts = ", ".join(sorted({one.host for one in metadata.brokers.values()}))
        raise NoSuchThing(f"no live broker on host {host!r}", hint=f"hosts of live brokers: {hosts}")
    return found


async def describe_broker(cluster: Cluster, broker_id: int) -> BrokerRow:
    """One live broker; BrokerNotAvailable, naming those there are, otherwise."""
    metadata = await cluster.metadata(fresh=True)
    node = metadata.live(broker_id)
    selves = await cluster.to_each(ApiKey.DESCRIBE_SELF, 0, without=metadata.brokers.keys() - {broker_id})
    return _row(node, metadata, shares(metadata), selves.get(broker_id, DEAD))


async def broker_settings(cluster: Cluster, broker_id: int | None = None) -> list[BrokerSetting]:
    """Every setting of a broker, those of single listeners too.

    Without a number: of the only one, or of the controller where there are several.
    """
    metadata = await cluster.metadata([])
    if broker_id is None:
        broker_id = metadata.controller_id if len(metadata.brokers) != 1 else next(iter(metadata.brokers))
        if broker_id is None:
            raise BrokerNotAvailable(
                "the cluster has no controller at the moment", hint="name a broker: broker config ID"
            )
    metadata.live(broker_id)
    return [
        BrokerSetting(one.name, one.value, one.source, *one.in_klog(setting_of(one.name) if cluster.is_klog else None))
        for one in await describe_broker_settings(cluster, broker_id)
    ]


async def stop_broker(cluster: Cluster, broker_id: int, *, wait_s: float = 30.0) -> BrokerStopped:
    """Ask a broker to stop in order, and wait until it has closed its connection.

    Refused where it is not a klog broker: Kafka's protocol has no such request.
    """
    node = (await cluster.metadata([])).live(broker_id)
    channel = await _stoppable(cluster, node)
    answer = await channel.request(codec.request(ApiKey.STOP_BROKER, 0, broker_id=broker_id))
    check(answer, f"broker {broker_id} at {node.address}")
    try:
        async with asyncio.timeout(wait_s):
            await channel.wait_closed()
    except TimeoutError:
        return BrokerStopped(broker_id, node.host, node.port, stopped=False)
    return BrokerStopped(broker_id, node.host, node.port, stopped=True)


async def preview_stop(cluster: Cluster, broker_id: int) -> BrokerStop:
    """What `stop_broker` would do, or its error; the broker goes on."""
    metadata = await cluster.metadata(fresh=True)
    node = metadata.live(broker_id)
    await _stoppable(cluster, node)
    return outage(metadata, node)


def outage(metadata: Metadata, node: BrokerNode) -> BrokerStop:
    """What is moved and what is not served while a broker is away."""
    led = [one for one in metadata.partitions if one.leader == node.broker_id]
    offline = sum(not (metadata.brokers.keys() - {node.broker_id}) & set(one.isr) for one in led)
    return BrokerStop(node.broker_id, node.host, node.port, len(led), offline)


async def _stoppable(cluster: Cluster, node: BrokerNode) -> Channel:
    """The connection to a broker that can be asked to stop; Refused where it cannot."""
    channel = await cluster.channel(node.broker_id)
    if ApiKey.STOP_BROKER not in channel.versions:
        raise Refused(
            f"broker {node.broker_id} at {node.address} is not a klog broker and does not support remote stop",
            hint="send SIGTERM to its process",
        )
    return channel


async def clock_ms(cluster: Cluster) -> int | None:
    """The time by the brokers' clocks, the latest of them, in ms; None where no klog broker answers."""
    answers = (await cluster.to_each(ApiKey.DESCRIBE_SELF, 0)).values()
    return max((int(one.now_ms) for one in answers if not isinstance(one, KlogError)), default=None)


async def describe_self(cluster: Cluster, broker_id: int) -> Any | None:
    """klog's DescribeSelf; None where the broker is not klog, is down or hangs."""
    try:
        return await cluster.to_broker(broker_id, ApiKey.DESCRIBE_SELF, 0)
    except (UnsupportedVersion, *SILENCE):
        return None


def shares(metadata: Metadata) -> tuple[Counter[int | None], Counter[int]]:
    """How many partitions each broker leads, and of how many it has a replica."""
    partitions = metadata.partitions
    return Counter(one.leader for one in partitions), Counter(broker for one in partitions for broker in one.replicas)


def _row(
    node: BrokerNode, metadata: Metadata, counts: tuple[Counter[int | None], Counter[int]], self_: Any | KlogError
) -> BrokerRow:
    """``self_``: klog's DescribeSelf, why there is none, or DEAD. Raises what is neither an answer nor silence."""
    leaders, replicas = counts
    row: dict[str, Any] = {
        "broker": node.broker_id,
        "host": node.host or None,
        "port": node.port or None,
        "rack": node.rack,
        "controller": node.broker_id == metadata.controller_id,
        "leaders": leaders[node.broker_id],
        "replicas": replicas[node.broker_id],
        "since": None,
        "cluster_id": metadata.cluster_id,
    }
    if self_ == DEAD:
        row["state"] = DEAD
    elif isinstance(self_, SILENCE):
        row["state"] = NO_ANSWER
    elif isinstance(self_, UnsupportedVersion):
        row["state"] = None  # Kafka's
    elif isinstance(self_, KlogError):
        raise self_
    else:
        row |= {
            "since": moment(int(self_.started_at_ms)),
            "state": str(self_.state),
            "version": str(self_.version),
            "incarnation": int(self_.incarnation),
            "zookeeper": str(self_.zookeeper) or None,
            "listeners": [
                f"{Endpoint(one.name, one.protocol, one.host, one.port)} {one.protocol} {one.ranges}"
                for one in self_.listeners
            ]
            or None,
        }
    return BrokerRow(**row)
