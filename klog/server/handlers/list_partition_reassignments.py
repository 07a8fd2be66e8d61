"""ListPartitionReassignments: v0 (KIP-455).

Behaviour
    The reassignments under way, of all partitions or of those asked for; partitions that are not being reassigned, or
    are not there, are left out. ``replicas`` are the new and the old ones together, the target first.

Not here: origin, throttle, and why one stands still, for which klog has a request of its own (DescribeReassignments).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import told

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    asked = request.entity.topics
    wanted = None if asked is None else {str(topic.name): set(topic.partition_indexes) for topic in asked}
    try:
        broker.controller.require()
    except KlogError as error:
        return {**told(error), "topics": []}
    topics: dict[str, list[dict[str, Any]]] = {}
    for one in broker.controller.reassigner.underway():
        if wanted is None or one.name.partition in wanted.get(one.name.topic, ()):
            topics.setdefault(one.name.topic, []).append(
                {
                    "partition_index": one.name.partition,
                    "replicas": one.entry.replicas,
                    "adding_replicas": one.entry.adding,
                    "removing_replicas": one.entry.removing,
                }
            )
    return {**told(None), "topics": [{"name": name, "partitions": found} for name, found in topics.items()]}
