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
from typing import TYPE_CHECKING, Any

from klog.coordination.acts import Actor
from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.controller.controller import Controller
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts

if TYPE_CHECKING:
    from klog.server.controller.reassigner import Target


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    topics = request.entity.topics
    outcome = await alter(parts.controller, topics, request.actor)
    answers = [
        {"partition_index": one.partition_index, **error_fields(outcome[_name(topic, one)])}
        for topic in topics
        for one in topic.partitions
    ]
    return {"responses": in_topics(topics, answers)}


async def alter(
    controller: Controller, topics: Any, actor: Actor, throttle: int = 0
) -> dict[TopicPartition, KlogError | None]:
    """The outcome of each partition in a request. Raises NotController."""
    controller.require()
    times_named = Counter(_name(topic, one) for topic in topics for one in topic.partitions)
    wanted: dict[TopicPartition, Target] = {
        name: None if one.replicas is None else tuple(map(int, one.replicas))
        for topic in topics
        for one in topic.partitions
        if times_named[name := _name(topic, one)] == 1
    }
    outcome: dict[TopicPartition, KlogError | None] = {
        name: InvalidRequest(f"{name} is named {times} times in one request")
        for name, times in times_named.items()
        if times > 1
    }
    return outcome | await controller.reassigner.alter(wanted, throttle, actor=actor)


def _name(topic: Any, partition: Any) -> TopicPartition:
    return TopicPartition(str(topic.name), int(partition.partition_index))
