"""ReportIsr (klog's own, 10015): a leader has changed the ISR of these partitions in ZooKeeper.

Behaviour
    The controller reads the partition states and informs every broker. A lost report only delays this: the controller's
    next write finds the change.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts


@handles(ApiKey.REPORT_ISR, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    parts.controller.require()
    await parts.controller.isr_reported(named_partitions(request.entity.topics))
    return {}
