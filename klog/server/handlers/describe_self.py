"""DescribeSelf (klog's own, 10004): this broker's identity, start time, clock and ZooKeeper."""

from __future__ import annotations

import time
from typing import Any

import klog
from klog.config import BrokerConfig
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.image import ClusterImage
from klog.server.lifecycle import Lifecycle
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Identity


@handles(ApiKey.DESCRIBE_SELF, 0, 0)
def handle(
    request: Request,
    *,
    config: BrokerConfig,
    identity: Identity,
    lifecycle: Lifecycle,
    image: ClusterImage,
    partitions: LedPartitions,
    replicas: Replicas,
) -> dict[str, Any]:
    return {
        "error_code": 0,
        "broker_id": identity.broker_id,
        "incarnation": identity.incarnation,
        "cluster_id": image.cluster_id,
        "zookeeper": config.text("zookeeper.connect"),
        "started_at_ms": identity.started_at_ms,
        "now_ms": time.time_ns() // 1_000_000,
        "state": lifecycle.state.value,
        "version": klog.__version__,
        "leaders": len(partitions),
        "replicas": len(replicas.partitions) + len(replicas.followed),
    }
