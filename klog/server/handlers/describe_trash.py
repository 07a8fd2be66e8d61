"""DescribeTrash (klog's own, 10024): the logs of deleted topics that wait in the trash of this broker's disks.

Behaviour
    One row per log, of these topics or of all, from memory. The answer omits an offline log dir. A log that is in the
    trash twice is listed twice.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.runtime import Identity
from klog.storage.log_dir import LogDirs


@handles(ApiKey.DESCRIBE_TRASH, 0, 0)
async def handle(request: Request, *, identity: Identity, log_dirs: LogDirs) -> dict[str, Any]:
    asked = request.entity.topic_ids
    wanted = None if asked is None else set(asked)
    share = request.share()
    rows = []
    for log_dir in log_dirs.dirs:
        if log_dir.failure is not None:
            continue
        for one in sorted(log_dir.trash.waiting.copy().values(), key=lambda one: (one.name, one.trashed_ms)):
            await share.breathe()
            if wanted is None or one.topic_id in wanted:
                rows.append(
                    {
                        "topic": one.name.topic,
                        "partition_index": one.name.partition,
                        "topic_id": one.topic_id,
                        "trashed_ms": one.trashed_ms,
                        "start_offset": one.start_offset,
                        "end_address": one.end_address,
                        "messages": one.messages,
                        "bytes": one.size_bytes,
                    }
                )
    return {"error_code": 0, "broker_id": identity.broker_id, "logs": rows}
