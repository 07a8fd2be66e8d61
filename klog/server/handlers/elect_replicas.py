"""ElectReplicas (klog's own, 10023): in-sync replicas of the client's choice become leaders.

Behaviour
    Like ElectLeaders, except that each partition has the broker that is to lead it. `klog undo` takes elections back by
    it. Each partition succeeds or fails alone.
"""

from __future__ import annotations

from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import outcome_rows
from klog.server.parts import Parts


@handles(ApiKey.ELECT_REPLICAS, 0, 0, of_controller=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    wanted = {TopicPartition(one.topic, one.partition_index): one.broker_id for one in request.entity.replicas}
    return outcome_rows(await parts.controller.elections.elect_chosen(wanted, request.actor))
