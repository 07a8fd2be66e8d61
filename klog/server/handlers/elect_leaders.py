"""ElectLeaders: v0-2 (KIP-183, KIP-460).

Behaviour
    Preferred (0): the first replica of the assignment becomes leader, where it is in sync and alive. Unclean (1): in a
    partition without a leader, the live replica with the longest log becomes leader, even if messages are lost and even
    if the topic's settings forbid it, because the request asks for exactly this. Each partition succeeds or fails
    alone. A partition that needs no election gets an error; a request for all partitions omits it instead.

Version notes
    v1 adds the type of election, and an error for the whole answer. v2 is flexible.
"""

from __future__ import annotations

from typing import Any

from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts

PREFERRED = 0
UNCLEAN = 1


@handles(ApiKey.ELECT_LEADERS, 0, 2, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    kind = int(getattr(request.entity, "election_type", PREFERRED))
    asked = request.entity.topic_partitions
    names = None
    if asked is not None:
        names = [TopicPartition(str(topic.topic), int(number)) for topic in asked for number in topic.partitions]
    try:
        parts.controller.require()
        if kind not in (PREFERRED, UNCLEAN):
            raise InvalidRequest(
                f"the election type must be {PREFERRED} (preferred) or {UNCLEAN} (unclean), got {kind}"
            )
        outcome = await parts.controller.elections.elect(names, unclean=kind == UNCLEAN, actor=request.actor)
    except KlogError as error:
        # Version 0 has no error for the whole answer: each partition has it.
        outcome = dict.fromkeys(names or (), error.bare())
        return {"error_code": error.wire, "replica_election_results": _results(outcome)}
    return {"error_code": 0, "replica_election_results": _results(outcome)}


def _results(outcome: dict[TopicPartition, KlogError | None]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, error in outcome.items():
        topics.setdefault(name.topic, []).append({"partition_id": name.partition, **error_fields(error)})
    return [{"topic": topic, "partition_result": results} for topic, results in topics.items()]
