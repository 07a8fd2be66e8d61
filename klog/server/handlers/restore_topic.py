"""RestoreTopic (klog's own, 10025): a deleted topic comes back from the trash, under its id, with a name.

Behaviour
    The name must be free, and the topic's deletion complete. The answer comes when the partitions have leaders, as far
    as a replica that had everything is alive. A restore that takes longer goes on after a time-out.
"""

from __future__ import annotations

from typing import Any

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.controller.controller import Controller
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import error_fields


@handles(ApiKey.RESTORE_TOPIC, 0, 0, of_controller=True)
async def handle(request: Request, *, controller: Controller) -> dict[str, Any]:
    asked = request.entity
    try:
        controller.require()
        if asked.topic_id is None:
            raise InvalidRequest("the topic to restore has no id")
        await controller.restorer.restore(asked.topic_id, asked.name, actor=request.actor)
    except KlogError as error:
        return error_fields(error)
    return error_fields(None)
