"""CreatePartitions: v0-3: more partitions for an existing topic.

Behaviour
    ``count`` is the new total; one that is not above the present number is INVALID_PARTITIONS. An answer without error
    means that the new partitions exist and have leaders. A topic that a request names twice is refused, both times.

Version notes
    v2 is flexible. v3 refuses what is beyond the client's quota with THROTTLING_QUOTA_EXCEEDED (KIP-599); before, it is
    carried out, and the client must wait after it.
"""

from __future__ import annotations

from collections import Counter

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.handlers.create_topics import admitting, mutations
from klog.server.parts import Parts

STRICT_FROM = 3


@handles(ApiKey.CREATE_PARTITIONS, 0, 3, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota = mutations(parts.quota_keeper.throttling, request, STRICT_FROM)
    times_named = Counter(topic.name for topic in request.entity.topics)
    answers = []
    async for topic in request.in_turn(request.entity.topics):
        outcome = error_fields(None)
        assignment = None if topic.assignments is None else [list(one.broker_ids) for one in topic.assignments]
        try:
            parts.controller.require()
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named {times_named[topic.name]} times in one request")
            await parts.controller.topics.add_partitions(
                topic.name,
                topic.count,
                assignment,
                actor=request.actor,
                validate_only=request.entity.validate_only,
                admit=admitting(parts.zookeeper_admission, request, quota),
            )
        except KlogError as error:
            outcome = error_fields(error)
        answers.append({"name": topic.name, **outcome})
    return {"throttle_time": quota.throttle_ms(), "results": answers}
