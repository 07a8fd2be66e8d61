"""FindCoordinator: v0-4: which broker coordinates a group.

Behaviour
    Any broker answers, from what the controller has said last: the holder of the group's slot (rule G1), at the address
    that clients are told. COORDINATOR_NOT_AVAILABLE while that broker is not alive: the slot is about to be given to
    another, and the client asks again.

Version notes
    v1 asks for a kind of key (0 group, 1 transaction); v3 is flexible; v4 asks for several keys (KIP-699).

Not here: transactions, whose keys get COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import CoordinatorNotAvailable
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker

GROUP = 0


@handles(ApiKey.FIND_COORDINATOR, 0, 4)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity = request.entity
    kind = getattr(entity, "key_type", GROUP)
    if request.head.version >= 4:
        return {"coordinators": [{**_find(broker, key, kind), "key": key} for key in entity.coordinator_keys]}
    return _find(broker, entity.key, kind)


def _find(broker: Broker, key: str, kind: int) -> dict[str, Any]:
    if kind != GROUP:
        return _refused("this broker coordinates no transactions")
    found = broker.image.coordinator(key)
    if found is None:
        return _refused(f"group {key!r} has no live coordinator at the moment")
    return {"error_code": 0, "error_message": None, "node_id": found.broker_id, "host": found.host, "port": found.port}


def _refused(message: str) -> dict[str, Any]:
    return {
        "error_code": CoordinatorNotAvailable.wire,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
