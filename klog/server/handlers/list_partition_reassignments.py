"""ListPartitionReassignments: v0 (KIP-455).

Behaviour
    The reassignments under way, of all partitions or of those that the request names. The answer omits partitions that
    are not being reassigned or do not exist. ``replicas`` are the new and the old ones together, the target first.

Not here: origin, throttle, and why one makes no progress, which klog's own request DescribeReassignments has.
"""

from __future__ import annotations

from klog.client.partition_requests import by_topic
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity.topics
    wanted = None if asked is None else set(named_partitions(asked, array="partition_indexes"))
    parts.controller.require()
    listed = (
        (
            one.name,
            {
                "replicas": one.entry.replicas,
                "adding_replicas": one.entry.adding,
                "removing_replicas": one.entry.removing,
            },
        )
        for one in parts.controller.reassigner.underway()
        if wanted is None or one.name in wanted
    )
    return {"topics": by_topic(listed)}
