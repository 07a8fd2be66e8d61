"""ListLost (klog's own, 10006): what truncation and recovery have set aside on this broker's disks.

Behaviour
    One row per file that lies beside the segments of this broker's replicas, of the requested topics or of all. A
    thread reads the files. The answer omits an offline log dir.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from klog.errors import StorageError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.parts import Parts
from klog.storage.lookup_budget import LookupBudget
from klog.storage.quarantine import list_quarantined

if TYPE_CHECKING:
    from klog.storage.filesystem import FileSystem
    from klog.storage.log import Log

_log = logging.getLogger(__name__)


@handles(ApiKey.LIST_LOST, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity.topics
    wanted = None if asked is None else set(asked)
    stretches: list[dict[str, Any]] = []
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        for log_dir in parts.log_dirs.dirs:
            if log_dir.failure is not None:
                continue
            logs = [one for name, one in sorted(log_dir.logs.items()) if wanted is None or name.topic in wanted]
            stretches += await look_up.run(log_dir.path, functools.partial(_list, log_dir.file_system, logs))
    return {"broker_id": parts.identity.broker_id, "stretches": stretches}


def _list(file_system: FileSystem, logs: list[Log], budget: LookupBudget) -> list[dict[str, Any]]:
    """In a thread."""
    rows = []
    for log in logs:
        budget.spend()
        try:
            found = list_quarantined(file_system, log.folder)
        except StorageError as error:
            if not log.is_closed:
                _log.error("%s: %s", log.topic_partition, error.message)
            continue
        for one in found:
            rows.append(
                {
                    "topic": log.topic_partition.topic,
                    "partition_index": log.topic_partition.partition,
                    "from_address": one.first,
                    "to_address": one.end,
                    "messages": -1 if one.messages is None else one.messages,
                    "bytes": one.size,
                    "reason": one.reason,
                    "time_ms": one.time_ms,
                    "file": one.file,
                }
            )
    return rows
