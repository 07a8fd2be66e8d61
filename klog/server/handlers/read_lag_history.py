"""ReadLagHistory (klog's own, 10029): the data of groups' lag over the last day.

Behaviour
    The ends of the logs that this broker leads and a client has read, and the commits of groups that it coordinates.
    `klog.server.offset_history` has the bounds. To compute a lag, ask every broker: the leader of a partition and the
    coordinator of a group are rarely the same. A thread makes the answer.
"""

from __future__ import annotations

import time
from typing import Any

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.groups.commits import GroupPartition
from klog.server.offset_history import Minute, Snapshot
from klog.server.parts import Parts
from klog.storage.lookup_budget import LookupBudget


@handles(ApiKey.READ_LAG_HISTORY, 0, 0)
async def handle(request: Request, parts: Parts) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "error_code": 0,
        "broker_id": parts.identity.broker_id,
        "now_ms": time.time_ns() // 1_000_000,
        "is_full": False,
        "end_since_ms": 0,
        "end_curves": [],
        "end_minutes": [],
        "commit_since_ms": 0,
        "commit_curves": [],
        "commit_minutes": [],
    }

    def fill(_: LookupBudget) -> None:
        ends, commits = snapshots
        answer["is_full"] = ends.is_full or commits.is_full
        answer["end_since_ms"], answer["commit_since_ms"] = ends.begin_ms, commits.begin_ms
        answer["end_curves"] = [_curve(one.number, "", *one.key, one.base) for one in ends.curves]
        answer["commit_curves"] = [_curve(one.number, *one.key, one.base) for one in commits.curves]
        answer["end_minutes"], answer["commit_minutes"] = _minutes(ends.minutes), _minutes(commits.minutes)

    try:
        with parts.look_ups.of(request.connection) as look_up:
            snapshots: tuple[Snapshot[TopicPartition], Snapshot[GroupPartition]] = parts.history.lag()
            await look_up.run("", fill)
    except KlogError as refused:
        answer["error_code"] = refused.wire
    return answer


def _curve(number: int, group: str, topic: str, partition: int, base: int) -> dict[str, Any]:
    return {"number": number, "group": group, "topic": topic, "partition_index": partition, "base": base}


def _minutes(minutes: list[Minute]) -> list[dict[str, Any]]:
    return [
        {"time_ms": one.time_ms, "curves": tuple(one.curves), "offsets": tuple(one.values)}
        for one in minutes
        if one.curves
    ]
