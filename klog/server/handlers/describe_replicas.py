"""DescribeReplicas (klog's own, 10013): the logs on this broker's disks, for the election of leaders (rule R1).

Behaviour
    The controller asks when it sees this incarnation for the first time. The answer describes every log, also those
    about which the controller has sent this broker no request.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_REPLICAS, 0, 0, refusal={"replicas": []})
async def handle(request: Request, parts: Parts) -> dict[str, Any]:
    try:
        await parts.authority.check(request.entity.controller_epoch, request.entity.incarnation)
    except KlogError as error:
        return {"error_code": error.wire, "replicas": []}
    return {"error_code": 0, "replicas": parts.replicas.describe()}
