"""The verbs of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from klog.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One live broker. What Kafka's protocol has no request for is None where the broker is no klog."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    since: datetime | None
    state: str | None = field(default=None, metadata={"wide": True})
    version: str | None = field(default=None, metadata={"wide": True})
    incarnation: int | None = field(default=None, metadata={"wide": True})
    cluster_id: str | None = field(default=None, metadata={"wide": True})
    zookeeper: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting of a broker. ``effect`` is ``none`` for those of Kafka's that klog has no use for."""

    name: str
    value: str | None
    source: str
    default: str | None
    effect: str | None
    doc: str | None


@dataclass(frozen=True, slots=True)
class BrokerStopped:
    """``stopped`` is False where the broker still answered when the wait was over."""

    broker: int
    host: str
    port: int
    stopped: bool


async def list_brokers(cluster: Cluster) -> list[BrokerRow]:
    raise NotImplementedError


async def describe_broker(cluster: Cluster, broker_id: int) -> BrokerRow:
    raise NotImplementedError


async def broker_settings(cluster: Cluster, broker_id: int | None = None) -> list[BrokerSetting]:
    """Every setting of a broker, or of the one that answers first."""
    raise NotImplementedError


async def stop_broker(cluster: Cluster, broker_id: int, *, wait_s: float = 30.0) -> BrokerStopped:
    """Ask a broker to stop in order, and wait until it has closed its connection."""
    raise NotImplementedError
