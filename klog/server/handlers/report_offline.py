"""ReportOffline (klog's own, 10016): replicas of a broker that cannot be served (rule L5), or not be led (rule R4).

Behaviour
    Without ``may_follow`` the replicas count as dead until the broker's next incarnation: they leave every ISR, and
    others lead. With it only leadership is given up, where another replica is in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.REPORT_OFFLINE, 0, 0, refusal={})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    asked, controller = request.entity, broker.controller
    names = [TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partitions]
    try:
        controller.require()
        if asked.may_follow:
            await controller.give_up_leadership(asked.broker_id, asked.incarnation, names)
        else:
            controller.replicas_lost(asked.broker_id, asked.incarnation, names)
    except KlogError as error:
        return {"error_code": error.wire}
    return {"error_code": 0}
