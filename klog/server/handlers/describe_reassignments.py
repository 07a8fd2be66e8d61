"""DescribeReassignments (klog's own, 10021): reassignments under way, their throttle, and why one makes no progress.

Behaviour
    Every reassignment under way, in order, as the controller sees it. One that makes no progress has the reason: a
    broker that must get a replica is not alive, or the partition has no leader.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.protocol.klog_apis import COPYING, STALLED
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_REASSIGNMENTS, 0, 0, of_controller=True, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    parts.controller.require()
    return {
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
            for one in parts.controller.reassigner.underway()
        ]
    }
