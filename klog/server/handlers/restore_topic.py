"""RestoreTopic (klog's own, 10025): a deleted topic exists again, with all it had.

Behaviour
    The answer comes when the partitions have leaders, as far as an in-sync replica is alive.
"""

from __future__ import annotations

from klog.errors import InvalidRequest
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.RESTORE_TOPIC, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    parts.controller.require()
    if request.entity.topic_id is None:
        raise InvalidRequest("the topic to restore has no id")
    await parts.controller.deleted_topics.restore(request.entity.topic_id, actor=request.actor)
    return {}
