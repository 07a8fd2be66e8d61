"""DescribeSelf (klog's own, 10004): who this broker is, since when, its clock, and which ZooKeeper it uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import klog
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DESCRIBE_SELF, 0, 0)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return {
        "error_code": 0,
        "broker_id": broker.broker_id,
        "incarnation": broker.incarnation,
        "cluster_id": broker.image.cluster_id,
        "zookeeper": broker.zookeeper_connect,
        "started_at_ms": broker.started_at_ms,
        "now_ms": time.time_ns() // 1_000_000,
        "state": broker.state.value,
        "version": klog.__version__,
        "leaders": len(broker.partitions),
        "replicas": len(broker.replicas.partitions) + len(broker.replicas.followed),
    }
