"""ReadLagHistory (klog's own, 10029): the data of groups' lag over the last day.

Behaviour
    The ends of the logs that this broker leads and a client has read, and the commits of groups that it coordinates.
    `klog.server.offset_history` has the bounds. To compute a lag, ask every broker: the leader of a partition and the
    coordinator of a group are rarely the same. A thread makes the answer.
"""

from __future__ import annotations

import time
from typing import Any

from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.groups.commits import GroupPartition
from klog.server.look_ups import LookUp
from klog.server.offset_history import Minute, Snapshot
from klog.server.parts import Parts


@handles(ApiKey.READ_LAG_HISTORY, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    now_ms = time.time_ns() // 1_000_000
    ends, commits = parts.history.lag()
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        found = await look_up.run("", lambda _: _histories(ends, commits))
    return {"broker_id": parts.identity.broker_id, "now_ms": now_ms, **found}


def _histories(ends: Snapshot[TopicPartition], commits: Snapshot[GroupPartition]) -> dict[str, Any]:
    """In a thread."""
    return {
        "is_full": ends.is_full or commits.is_full,
        "end_since_ms": ends.begin_ms,
        "end_curves": [_curve(one.number, "", *one.key, one.base) for one in ends.curves],
        "end_minutes": _minutes(ends.minutes),
        "commit_since_ms": commits.begin_ms,
        "commit_curves": [_curve(one.number, *one.key, one.base) for one in commits.curves],
        "commit_minutes": _minutes(commits.minutes),
    }


def _curve(number: int, group: str, topic: str, partition: int, base: int) -> dict[str, Any]:
    return {"number": number, "group": group, "topic": topic, "partition_index": partition, "base": base}


def _minutes(minutes: list[Minute]) -> list[dict[str, Any]]:
    return [
        {"time_ms": one.time_ms, "curves": tuple(one.curves), "offsets": tuple(one.values)}
        for one in minutes
        if one.curves
    ]
