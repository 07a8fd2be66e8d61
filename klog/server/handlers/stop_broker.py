"""StopBroker (klog's own, 10002): controlled shutdown of this broker.

Behaviour
    Answered before the shutdown begins. The broker refuses a request that does not name its own id, so that a load
    balancer in between cannot stop the wrong broker.
"""

from __future__ import annotations

from typing import Any

from klog.errors import BrokerNotAvailable
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.lifecycle import Lifecycle
from klog.server.runtime import Identity


@handles(ApiKey.STOP_BROKER, 0, 0)
def handle(request: Request, *, identity: Identity, lifecycle: Lifecycle) -> dict[str, Any]:
    if request.entity.broker_id != identity.broker_id:
        return {
            "error_code": BrokerNotAvailable.wire,
            "error_message": f"this is broker {identity.broker_id}, not {request.entity.broker_id}",
        }
    lifecycle.stop_soon(f"asked by {request.peer}")
    return {"error_code": 0, "error_message": None}
