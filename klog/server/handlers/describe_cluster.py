"""DescribeCluster: v0-1 (KIP-700).

Behaviour
    The cluster's id, its controller and its live brokers at the addresses that clients are to use. Who asks what one
    may do is told all operations: there are no access lists.

Version notes
    v1 asks for one sort of servers (KIP-919): klog's brokers are brokers (1); for controllers (2), which only a cluster
    without ZooKeeper has apart, the answer is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import MismatchedEndpointType
from klog.protocol.apis import ApiKey
from klog.server import operations
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker

BROKERS = 1


@handles(ApiKey.DESCRIBE_CLUSTER, 0, 1)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    image = broker.image
    asked = getattr(request.entity, "endpoint_type", BROKERS)
    answer = {"cluster_id": image.cluster_id, "endpoint_type": BROKERS}
    if asked != BROKERS:
        error = MismatchedEndpointType(f"this is a broker (endpoint type {BROKERS}), type {asked} was asked for")
        return {**answer, "error_code": error.wire, "error_message": error.message, "controller_id": -1, "brokers": []}
    may_do = request.entity.include_cluster_authorized_operations
    return {
        **answer,
        "cluster_authorized_operations": operations.CLUSTER if may_do else operations.NOT_ASKED,
        "error_code": 0,
        "error_message": None,
        "controller_id": image.controller_id,
        "brokers": [
            {"broker_id": one.broker_id, "host": one.host, "port": one.port, "rack": one.rack}
            for _, one in sorted(image.brokers.items())
        ],
    }
