"""ReportIsr (klog's own, 10015): a leader has changed the ISR of these partitions in ZooKeeper.

Behaviour
    The controller reads the states and lets every broker know. A report that is lost costs nothing but time: the next
    write of the controller finds the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.REPORT_ISR, 0, 0, refusal={})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    names = [TopicPartition(topic.name, number) for topic in request.entity.topics for number in topic.partitions]
    try:
        broker.controller.require()
        await broker.controller.isr_reported(names)
    except KlogError as error:
        return {"error_code": error.wire}
    return {"error_code": 0}
