"""AlterPartitionReassignments: v0 (KIP-455).

Behaviour
    Begins, replaces (another target for a partition that is being reassigned) and cancels (no replicas named)
    reassignments, each partition by itself: one that is refused does not keep the others. An answer without error means
    that it is written and goes on, whoever becomes controller; it is over when it is listed no more. A partition that
    is named twice in one request is refused, both times.

Not here: a throttle, for which klog has a request of its own (AlterReassignments).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.reassigner import Target


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, of_controller=True)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        outcome = await alter(broker, request.entity.topics)
    except KlogError as error:
        return {"error_code": error.wire, "error_message": error.message, "responses": []}
    return {
        "error_code": 0,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, **told(outcome[_name(topic, one)])}
                    for one in topic.partitions
                ],
            }
            for topic in request.entity.topics
        ],
    }


async def alter(broker: Broker, topics: Any, throttle: int = 0) -> dict[TopicPartition, KlogError | None]:
    """What became of each partition of a request; NotController is raised."""
    broker.controller.require()
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
    return outcome | await broker.controller.reassigner.alter(wanted, throttle)


def told(error: KlogError | None) -> dict[str, Any]:
    """Error code and message of one part of an answer."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.wire, "error_message": error.message}


def _name(topic: Any, partition: Any) -> TopicPartition:
    return TopicPartition(str(topic.name), int(partition.partition_index))
