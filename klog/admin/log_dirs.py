"""A broker's log dirs and how much room they have, as DescribeLogDirs tells it (KIP-827)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from klog.client.cluster import Cluster
from klog.errors import StorageError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey

ROOM_BYTES_MIN: Final = 16 << 20
"""Less is as good as nothing: one large batch away from a full disk, and a full one takes nothing before 1 MiB is free
beside what comes."""


@dataclass(frozen=True, slots=True)
class LogDirFact:
    """A broker's log dir; ``error`` None: it serves. ``free_bytes``, ``total_bytes``: of its file system, None where
    the broker does not say (before version 4 of the request, or an offline dir)."""

    broker: int
    path: str
    error: str | None
    free_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def is_full(self) -> bool:
        """Appends fail there, or will soon."""
        return self.free_bytes is not None and self.free_bytes < ROOM_BYTES_MIN


async def log_dirs(cluster: Cluster, broker: int, having: TopicPartition | None = None) -> list[LogDirFact]:
    """All of a broker, or those in which it has a partition."""
    wanted = [] if having is None else [{"topic": having.topic, "partitions": [having.partition]}]
    answer = await cluster.to_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, 1, topics=wanted)
    return [_log_dir(broker, one) for one in answer.results if one.topics or having is None]


def _log_dir(broker: int, result: Any) -> LogDirFact:
    wire = int(result.error_code)
    error = None if not wire else "offline" if wire == StorageError.wire else str(result.error_code.name)
    sizes = (int(getattr(result, name, -1)) for name in ("usable_bytes", "total_bytes"))
    return LogDirFact(broker, str(result.log_dir), error, *(None if size < 0 else size for size in sizes))
