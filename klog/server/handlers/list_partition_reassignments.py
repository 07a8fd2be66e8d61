"""ListPartitionReassignments: v0 (KIP-455).

Behaviour
    The reassignments under way, of all partitions or of those that the request names. The answer omits partitions that
    are not being reassigned or do not exist. ``replicas`` are the new and the old ones together, the target first.

Not here: origin, throttle, and why one makes no progress, which klog's own request DescribeReassignments has.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity.topics
    wanted = None if asked is None else {str(topic.name): set(topic.partition_indexes) for topic in asked}
    parts.controller.require()
    topics: dict[str, list[dict[str, Any]]] = {}
    for one in parts.controller.reassigner.underway():
        if wanted is None or one.name.partition in wanted.get(one.name.topic, ()):
            topics.setdefault(one.name.topic, []).append(
                {
                    "partition_index": one.name.partition,
                    "replicas": one.entry.replicas,
                    "adding_replicas": one.entry.adding,
                    "removing_replicas": one.entry.removing,
                }
            )
    return {"topics": [{"name": name, "partitions": found} for name, found in topics.items()]}
