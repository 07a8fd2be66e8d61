"""FindCoordinator: v0-4: nobody coordinates groups yet.

Behaviour
    COORDINATOR_NOT_AVAILABLE for every group: clients that consume by assignment go on without one. It is listed all
    the same, because librdkafka compresses with lz4 only for brokers that list it.

Version notes
    v1 asks for a kind of key (0 group, 1 transaction); v3 is flexible; v4 asks for several keys (KIP-699).

Not here: groups, transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import CoordinatorNotAvailable
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.FIND_COORDINATOR, 0, 4)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    refused = {
        "error_code": CoordinatorNotAvailable.wire,
        "error_message": "this broker coordinates no groups; consume by assignment",
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if request.head.version >= 4:
        return {"coordinators": [{**refused, "key": key} for key in request.entity.coordinator_keys]}
    return refused
