"""DescribeReassignments (klog's own, 10021): what is being reassigned, how fast it may go, why it stands still.

Behaviour
    Every reassignment under way, in order, as the controller sees it. Of those that stand still the reason is said: a
    broker that is to be filled is not alive, or nobody leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.reassignment import COPYING, STALLED
from klog.server.dispatch import Request, handles
from klog.server.handlers.alter_partition_reassignments import told

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DESCRIBE_REASSIGNMENTS, 0, 0, of_controller=True)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        broker.controller.require()
    except KlogError as error:
        return {**told(error), "reassignments": []}
    return {
        **told(None),
        "reassignments": [
            {
                "topic": one.name.topic,
                "partition_index": one.name.partition,
                "origin": one.entry.origin,
                "target": one.entry.target,
                "missing": one.missing,
                "leader": one.leader,
                "throttle": one.entry.throttle,
                "state": STALLED if one.reason else COPYING,
                "reason": one.reason,
            }
            for one in broker.controller.reassigner.underway()
        ],
    }
