"""PurgeTopic (klog's own, 10026): a deleted topic leaves the trash for good.

Behaviour
    Brokers delete its logs soon after. If its deletion is not complete, those that are still to stop delete theirs.
"""

from __future__ import annotations

from typing import Any

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.controller.controller import Controller
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import error_fields


@handles(ApiKey.PURGE_TOPIC, 0, 0, of_controller=True)
async def handle(request: Request, *, controller: Controller) -> dict[str, Any]:
    try:
        controller.require()
        if request.entity.topic_id is None:
            raise InvalidRequest("the topic to purge has no id")
        await controller.trash.purge(request.entity.topic_id, actor=request.actor)
    except KlogError as error:
        return error_fields(error)
    return error_fields(None)
