"""StopBroker (klog's own, 10002): controlled shutdown of this broker.

Behaviour
    Answered before the shutdown begins. Refused unless the request names this broker's id, so that a balancer in
    between cannot stop the wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import BrokerNotAvailable
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.STOP_BROKER, 0, 0)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    if request.entity.broker_id != broker.broker_id:
        return {
            "error_code": BrokerNotAvailable.wire,
            "error_message": f"this is broker {broker.broker_id}, not {request.entity.broker_id}",
        }
    broker.stop_soon(f"asked by {request.peer}")
    return {"error_code": 0, "error_message": None}
