"""DescribeLogDirs: v1-4 (KIP-113).

Behaviour
    Each log dir of this broker with the bytes of each partition in it: of all partitions, or of those that the request
    names. The answer omits partitions that this broker does not have. An offline dir has KAFKA_STORAGE_ERROR alone.

Version notes
    v2 is flexible, v3 has an error for the whole answer, v4 the dir's total and usable bytes (KIP-827).

Not here: copies on their way from one dir to another (is_future_key is always false).
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from klog.client.partition_requests import by_topic
from klog.errors import RequestTimedOut, StorageError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts

if TYPE_CHECKING:
    from klog.storage.log_dir import LogDir

UNKNOWN = -1


@handles(ApiKey.DESCRIBE_LOG_DIRS, 1, 4)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity.topics
    wanted = None if asked is None else set(named_partitions(asked, topic="topic"))
    online = [one for one in parts.log_dirs.dirs if one.failure is None]
    paths = {*parts.log_dirs.offline, *(one.path for one in parts.log_dirs.dirs)}
    results = [_offline(path) for path in paths - {one.path for one in online}]
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        results += [await _online(look_up, one, wanted) for one in online]
    return {"error_code": 0, "results": sorted(results, key=lambda one: str(one["log_dir"]))}


def _offline(path: str) -> dict[str, Any]:
    sizes = {"total_bytes": UNKNOWN, "usable_bytes": UNKNOWN}
    return {"error_code": StorageError.wire, "log_dir": path, "topics": [], **sizes}


async def _online(look_up: LookUp, log_dir: LogDir, wanted: set[TopicPartition] | None) -> dict[str, Any]:
    rows = [
        (name, {"partition_size": log.size_bytes, "offset_lag": 0, "is_future_key": False})
        for name, log in sorted(log_dir.logs.items())
        if wanted is None or name in wanted
    ]
    sizes: dict[str, int] = {}
    with suppress(OSError, RequestTimedOut):  # the next read or write finds the fault; this just lacks the numbers
        usage = await look_up.run(log_dir.path, lambda _: shutil.disk_usage(log_dir.path))
        sizes = {"total_bytes": usage.total, "usable_bytes": usage.free}
    return {**_offline(log_dir.path), "error_code": 0, "topics": by_topic(rows), **sizes}
