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

from klog.client.partition_requests import by_topic
from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts

PREFERRED = 0
UNCLEAN = 1


@handles(ApiKey.ELECT_LEADERS, 0, 2, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    kind = int(getattr(request.entity, "election_type", PREFERRED))
    asked = request.entity.topic_partitions
    names = None if asked is None else named_partitions(asked, topic="topic")
    code = 0
    try:
        parts.controller.require()
        if kind not in (PREFERRED, UNCLEAN):
            raise InvalidRequest(
                f"the election type must be {PREFERRED} (preferred) or {UNCLEAN} (unclean), got {kind}"
            )
        found = await parts.controller.elections.elect(names, unclean=kind == UNCLEAN, actor=request.actor)
    except KlogError as error:
        # Version 0 has no error for the whole answer: each partition has it.
        code, found = error.wire, dict.fromkeys(names or (), error.bare())
    rows = ((name, error_fields(problem)) for name, problem in found.items())
    results = by_topic(rows, topic="topic", inner="partition_result", number="partition_id")
    return {"error_code": code, "replica_election_results": results}
