"""PurgeTopic (klog's own, 10026): a deleted topic is deleted for good.

Behaviour
    The answer comes when its name is free, or where a broker with a replica is away or slow.
"""

from __future__ import annotations

from klog.errors import InvalidRequest
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.PURGE_TOPIC, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    parts.controller.require()
    if request.entity.topic_id is None:
        raise InvalidRequest("the topic to purge has no id")
    deleted = await parts.controller.deleted_topics.purge(request.entity.topic_id, actor=request.actor)
    await deleted()
    return {}
