"""ControlledShutdown (klog's own, 10014): a broker goes, and asks the controller to have its partitions led elsewhere.

Behaviour
    Answered when the leaders are elected and told. ``remaining`` counts what it leads still: nobody else may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.CONTROLLED_SHUTDOWN, 0, 0, refusal={"remaining": -1})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        remaining = await broker.controller.leave(request.entity.broker_id, request.entity.incarnation)
    except KlogError as error:
        return {"error_code": error.wire, "remaining": -1}
    return {"error_code": 0, "remaining": remaining}
