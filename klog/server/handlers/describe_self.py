"""DescribeSelf (klog's own, 10004): this broker's identity, start time, clock, ZooKeeper and listeners."""

from __future__ import annotations

import time
from typing import Any, Final

import klog
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

SENDFILE: Final = "sendfile"
ENCRYPTED: Final = "encrypted"
"""OpenSSL encrypts what klog has read: Python's ssl does not tell whether the kernel would (kernel TLS)."""


@handles(ApiKey.DESCRIBE_SELF, 0, 0)
def handle(request: Request, parts: Parts) -> Answer:
    return {
        "error_code": 0,
        "broker_id": parts.identity.broker_id,
        "incarnation": parts.identity.incarnation,
        "cluster_id": parts.image.cluster_id,
        "zookeeper": parts.config.text("zookeeper.connect"),
        "started_at_ms": parts.identity.started_at_ms,
        "now_ms": time.time_ns() // 1_000_000,
        "state": parts.runtime.state.label,
        "version": klog.__version__,
        "leaders": len(parts.partitions),
        "replicas": len(parts.replicas.partitions) + len(parts.replicas.followed),
        "listeners": _listeners(parts),
    }


def _listeners(parts: Parts) -> list[dict[str, Any]]:
    """Each as advertised."""
    registration = parts.identity.registration
    if registration is None:
        return []
    encrypted = {one.name for one in parts.config.listeners.all if one.has_tls}
    return [
        {
            "name": one.listener,
            "protocol": one.protocol,
            "host": one.host,
            "port": one.port,
            "ranges": ENCRYPTED if one.listener in encrypted else SENDFILE,
        }
        for one in registration.broker.endpoints
    ]
