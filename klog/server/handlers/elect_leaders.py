"""ElectLeaders: v0-2 (KIP-183, KIP-460).

Behaviour
    Preferred (0): the first replica of the assignment leads, where it is in sync and alive. Unclean (1): a partition
    that nobody leads is led by the longest log alive, whatever is lost by it, and whatever its topic's settings say:
    somebody has asked. Each partition by itself. Where a partition needs no election that is said by an error, unless
    all were asked for: then such partitions are left out.

Version notes
    v1 adds the type of election, and an error of the whole. v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import InvalidRequest, KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import told

if TYPE_CHECKING:
    from klog.server.broker import Broker

PREFERRED = 0
UNCLEAN = 1


@handles(ApiKey.ELECT_LEADERS, 0, 2, of_controller=True)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    kind = int(getattr(request.entity, "election_type", PREFERRED))
    asked = request.entity.topic_partitions
    names = None
    if asked is not None:
        names = [TopicPartition(str(topic.topic), int(number)) for topic in asked for number in topic.partitions]
    try:
        broker.controller.require()
        if kind not in (PREFERRED, UNCLEAN):
            raise InvalidRequest(f"election type {kind}; expected {PREFERRED} (preferred) or {UNCLEAN} (unclean)")
        outcome = await broker.controller.elections.elect(names, unclean=kind == UNCLEAN)
    except KlogError as error:
        # Version 0 has no error of the whole: it stands with each partition.
        outcome = dict.fromkeys(names or (), error.bare())
        return {"error_code": error.wire, "replica_election_results": _results(outcome)}
    return {"error_code": 0, "replica_election_results": _results(outcome)}


def _results(outcome: dict[TopicPartition, KlogError | None]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, error in outcome.items():
        topics.setdefault(name.topic, []).append({"partition_id": name.partition, **told(error)})
    return [{"topic": topic, "partition_result": results} for topic, results in topics.items()]
