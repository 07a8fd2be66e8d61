"""DescribeTrash (klog's own, 10024): the logs that this broker's disks have of deleted topics.

Behaviour
    One row per log under one of these topic ids. Whether the topics are deleted is the caller's to know. The answer
    omits an offline log dir.
"""

from __future__ import annotations

import functools

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.parts import Parts
from klog.storage.log import Log
from klog.storage.lookup_budget import LookupBudget

UNKNOWN = -1


@handles(ApiKey.DESCRIBE_TRASH, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    wanted = set(request.entity.topic_ids)
    rows = []
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        for log_dir in parts.log_dirs.dirs:
            if log_dir.failure is not None:
                continue
            for name, topic_id in sorted(log_dir.topic_ids.items()):
                log = log_dir.logs.get(name)
                if topic_id not in wanted or log is None:
                    continue
                messages = await look_up.run(log_dir.path, functools.partial(_messages, log))
                rows.append(
                    {
                        "topic": name.topic,
                        "partition_index": name.partition,
                        "topic_id": topic_id,
                        "end_address": log.end.address,
                        "messages": UNKNOWN if messages is None else messages,
                        "bytes": log.size_bytes,
                    }
                )
    return {"error_code": 0, "broker_id": parts.identity.broker_id, "logs": rows}


def _messages(log: Log, _: LookupBudget) -> int | None:
    """In a thread."""
    return log.count(log.start_offset, log.end.offset)
