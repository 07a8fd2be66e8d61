"""AlterPartitionReassignments: v0 (KIP-455).

Behaviour
    Begins, replaces (another target for a partition that is being reassigned) and cancels (no replicas named)
    reassignments. Each partition succeeds or fails alone. An answer without error means that ZooKeeper has the
    reassignment: it continues under any later controller, and is complete when it is no longer listed. A partition that
    a request names twice is refused, both times.

Not here: a throttle, which klog's own request AlterReassignments has.
"""

from __future__ import annotations

from collections import Counter

from klog.client.partition_requests import by_partition
from klog.errors import InvalidRequest
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.controller.reassigner import Target
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.partition_answers import Outcomes, in_topics
from klog.server.parts import Parts


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    topics = request.entity.topics
    found = await alter(request, parts)
    answers = [{"partition_index": name.partition, **error_fields(found[name])} for name, _ in by_partition(topics)]
    return {"responses": in_topics(topics, answers)}


async def alter(request: Request, parts: Parts, throttle: int = 0) -> Outcomes:
    """The outcome of each partition in a request. Raises NotController."""
    parts.controller.require()
    asked = list(by_partition(request.entity.topics))
    times_named = Counter(name for name, _ in asked)
    wanted: dict[TopicPartition, Target] = {
        name: None if one.replicas is None else tuple(map(int, one.replicas))
        for name, one in asked
        if times_named[name] == 1
    }
    twice: Outcomes = {
        name: InvalidRequest(f"{name} is named {times} times in one request")
        for name, times in times_named.items()
        if times > 1
    }
    return twice | await parts.controller.reassigner.alter(wanted, throttle, actor=request.actor)
