"""DescribeReplicas (klog's own, 10013): the logs on this broker's disks, for the election of leaders (rule R1).

Behaviour
    The controller asks when it sees this incarnation for the first time. The answer describes every log, also those
    about which the controller has sent this broker no request.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_REPLICAS, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    await parts.authority.check(request.entity.controller_epoch, request.entity.incarnation)
    return {"replicas": parts.replicas.describe()}
