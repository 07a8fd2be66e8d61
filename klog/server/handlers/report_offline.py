"""ReportOffline (klog's own, 10016): replicas that a broker cannot serve (rule L5), or cannot lead (rule R4).

Behaviour
    Without ``may_follow`` the replicas count as dead until the broker's next incarnation: they leave every ISR, and
    other replicas lead. With it the broker gives up only leadership, where another replica is in sync.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts


@handles(ApiKey.REPORT_OFFLINE, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    names = named_partitions(asked.topics)
    parts.controller.require()
    if asked.may_follow:
        await parts.controller.give_up_leadership(asked.broker_id, asked.incarnation, names)
    else:
        parts.controller.replicas_lost(asked.broker_id, asked.incarnation, names)
    return {}
