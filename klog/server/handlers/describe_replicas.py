"""DescribeReplicas (klog's own, 10013): what this broker has on its disks, for the choice of leaders (rule R1).

Behaviour
    Asked by the controller when it sees this incarnation for the first time. Every log is described, whether or not
    this broker has been told anything about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DESCRIBE_REPLICAS, 0, 0, refusal={"replicas": []})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        await broker.authority.check(request.entity.controller_epoch, request.entity.incarnation)
    except KlogError as error:
        return {"error_code": error.wire, "replicas": []}
    return {"error_code": 0, "replicas": await broker.replicas.describe()}
