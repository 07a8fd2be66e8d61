"""DescribeCluster: v0-1 (KIP-700).

Behaviour
    The cluster's id, its controller and its live brokers at the addresses advertised to clients. A request for the
    permitted operations is answered with all of them; `klog.server.access` puts in what the principal may do.

Version notes
    v1 asks for one sort of servers (KIP-919): klog's brokers are brokers (1); for controllers (2), which only a cluster
    without ZooKeeper has apart, the answer is an error.
"""

from __future__ import annotations

from klog.errors import MismatchedEndpointType
from klog.protocol.apis import ApiKey
from klog.security.permissions import ALL_OPERATIONS, OPERATIONS_NOT_ASKED, ResourceType
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

BROKERS = 1


@handles(ApiKey.DESCRIBE_CLUSTER, 0, 1, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    asked = getattr(request.entity, "endpoint_type", BROKERS)
    if asked != BROKERS:
        raise MismatchedEndpointType(f"the endpoint type must be {BROKERS} (brokers), got {asked}")
    may_do = request.entity.include_cluster_authorized_operations
    return {
        "cluster_id": parts.image.cluster_id,
        "endpoint_type": BROKERS,
        "cluster_authorized_operations": ALL_OPERATIONS[ResourceType.CLUSTER] if may_do else OPERATIONS_NOT_ASKED,
        "controller_id": parts.image.controller_id,
        "brokers": [
            {"broker_id": one.broker_id, "host": address[0], "port": address[1], "rack": one.rack}
            for _, one in sorted(parts.image.brokers.items())
            if (address := one.address_of(request.listener)) is not None
        ],
    }
