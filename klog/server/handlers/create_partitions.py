"""CreatePartitions: v0-3: more partitions for an existing topic.

Behaviour
    ``count`` is the new total; one that is not above the present number is INVALID_PARTITIONS. An answer without error
    means that the new partitions exist and have leaders. A topic that a request names twice is refused, both times.

Version notes
    v2 is flexible. v3 refuses what is beyond the client's quota with THROTTLING_QUOTA_EXCEEDED (KIP-599); before, it is
    carried out, and the client must wait after it.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles, outcome
from klog.server.handlers.create_topics import admitting, mutations, once
from klog.server.parts import Parts

STRICT_FROM = 3


@handles(ApiKey.CREATE_PARTITIONS, 0, 3, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota, check = mutations(request, parts, STRICT_FROM), once(request.entity.topics)

    async def add(topic: Any) -> None:
        parts.controller.require()
        check(topic.name)
        await parts.controller.topics.add_partitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [list(one.broker_ids) for one in topic.assignments],
            actor=request.actor,
            validate_only=request.entity.validate_only,
            admit=admitting(request, parts, quota),
        )

    results = [
        {"name": topic.name, **await outcome(add(topic))} async for topic in request.in_turn(request.entity.topics)
    ]
    return {"throttle_time": quota.throttle_ms(), "results": results}
