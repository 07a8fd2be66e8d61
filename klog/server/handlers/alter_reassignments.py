"""AlterReassignments (klog's own, 10020): AlterPartitionReassignments with a throttle.

Behaviour
    As Kafka's. The throttle stands with each reassignment in ZooKeeper and goes with it, however that ends; asked again
    with the same target, it alone is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import alter, told

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.ALTER_REASSIGNMENTS, 0, 0, of_controller=True)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        outcome = await alter(broker, request.entity.topics, request.entity.throttle)
    except KlogError as error:
        return {**told(error), "outcomes": []}
    return {
        **told(None),
        "outcomes": [
            {"topic": name.topic, "partition_index": name.partition, **told(error)} for name, error in outcome.items()
        ],
    }
