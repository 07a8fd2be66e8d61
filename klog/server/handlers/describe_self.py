"""DescribeSelf (klog's own, 10004): this broker's identity, start time, clock, ZooKeeper and listeners."""

from __future__ import annotations

import time
from typing import Any, Final

import klog
from klog.config import BrokerConfig
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.image import ClusterImage
from klog.server.lifecycle import Lifecycle
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Identity

SENDFILE: Final = "sendfile"
ENCRYPTED: Final = "encrypted"
"""OpenSSL encrypts what klog has read: Python's ssl does not tell whether the kernel would (kernel TLS)."""


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
        "listeners": _listeners(config, identity),
    }


def _listeners(config: BrokerConfig, identity: Identity) -> list[dict[str, Any]]:
    """Each as advertised."""
    if identity.registration is None:
        return []
    encrypted = {one.name for one in config.listeners.all if one.has_tls}
    return [
        {
            "name": one.listener,
            "protocol": one.protocol,
            "host": one.host,
            "port": one.port,
            "ranges": ENCRYPTED if one.listener in encrypted else SENDFILE,
        }
        for one in identity.registration.broker.endpoints
    ]
