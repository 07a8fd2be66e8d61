"""AlterReassignments (klog's own, 10020): AlterPartitionReassignments with a throttle.

Behaviour
    Like Kafka's request. ZooKeeper holds the throttle with each reassignment, and both are removed together, however
    the reassignment ends. A second request with the same target changes the throttle alone.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.handlers.alter_partition_reassignments import alter
from klog.server.partition_answers import outcome_rows
from klog.server.parts import Parts


@handles(ApiKey.ALTER_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return outcome_rows(await alter(request, parts, request.entity.throttle))
