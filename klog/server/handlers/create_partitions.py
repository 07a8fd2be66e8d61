"""CreatePartitions: v0-3: more partitions for a topic that is there.

Behaviour
    ``count`` is the total afterwards; fewer or as many as there are is INVALID_PARTITIONS. An answer without error
    means that the new partitions are there and led. A topic that is named twice in one request is refused, both times.

Version notes
    v2 is flexible; v3 could answer THROTTLING_QUOTA_EXCEEDED, which klog never does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.CREATE_PARTITIONS, 0, 3, of_controller=True)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    times_named = Counter(topic.name for topic in request.entity.topics)
    answers = []
    share = request.share()
    for topic in request.entity.topics:
        await share.breathe()
        answer = {"name": topic.name, "error_code": 0, "error_message": None}
        assignment = None if topic.assignments is None else [list(one.broker_ids) for one in topic.assignments]
        try:
            broker.controller.require()
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named {times_named[topic.name]} times in one request")
            await broker.controller.topics.add_partitions(
                topic.name, topic.count, assignment, validate_only=request.entity.validate_only
            )
        except KlogError as error:
            answer |= {"error_code": error.wire, "error_message": error.message}
        answers.append(answer)
    return {"results": answers}
