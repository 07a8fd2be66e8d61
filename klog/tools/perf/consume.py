"""How fast messages come out: what the log has, read and thrown away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from klog.client.cluster import Cluster
from klog.client.positions import END, START
from klog.names import TopicPartition
from klog.tools.options import Span, TailOptions
from klog.tools.perf.measurement import MIB, Clock, Measurement, csv_time
from klog.tools.reader import Reader
from klog.tools.tail import spans_of

FETCH_BYTES_MAX = 1_000_000_000
"""librdkafka takes no more."""


@dataclass(frozen=True, slots=True)
class ConsumedRow:
    """Messages and the bytes of their values."""

    start_time: datetime
    end_time: datetime
    fetch_bytes: int
    threads: int
    messages: int
    bytes: int
    mib_per_s: float
    messages_per_s: float

    CSV_HEADER: ClassVar[str] = (
        "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
    )

    @property
    def csv(self) -> str:
        return (
            f"{csv_time(self.start_time)}, {csv_time(self.end_time)}, {self.fetch_bytes}, {self.bytes / MIB:.4f}, "
            f"{self.mib_per_s:.4f}, {self.messages}, {self.messages_per_s:.4f}"
        )


async def consume(
    cluster: Cluster,
    topics: Sequence[str],
    *,
    messages: int | None = None,
    fetch_size: int = 4 * MIB,
    threads: int = 1,
    librdkafka: dict[str, str] | None = None,
) -> Measurement[ConsumedRow]:
    """Read what the topics have, or the first ``messages`` of it, partitions dealt out over the threads."""
    spans = await spans_of(cluster, topics, None, START, END, lambda text: None)
    stop, goal = threading.Event(), _Goal(messages)
    options = TailOptions(librdkafka={"fetch.message.max.bytes": str(fetch_size), **(librdkafka or {})})

    def take(messages: list[Any]) -> None:
        goal.add(messages)
        clock.lap()
        if goal.is_reached:
            stop.set()

    def reader(part: dict[TopicPartition, Span]) -> Callable[[], Any]:
        bootstrap, timeout_s = cluster.bootstrap, cluster.timeout_s
        return Reader(bootstrap, part, options, take, stop=stop, timeout_s=timeout_s).run

    dealt = [dict(list(spans.items())[number::threads]) for number in range(threads)]
    work = [reader(part) for part in dealt if part]
    clock = Clock()

    def row() -> ConsumedRow:
        end, seconds = clock.stop()
        return ConsumedRow(
            clock.start_time,
            end,
            fetch_size,
            len(work),
            goal.messages,
            goal.bytes,
            round(goal.bytes / MIB / seconds, 3),
            round(goal.messages / seconds, 1),
        )

    return Measurement(work, stop, lambda: goal.messages, row)


class _Goal:
    """How many messages were read by all threads together, and whether that is enough."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self.messages = self.bytes = 0

    @property
    def is_reached(self) -> bool:
        return self._wanted is not None and self.messages >= self._wanted

    def add(self, messages: list[Any]) -> None:
        with self._lock:
            if self._wanted is not None:
                messages = messages[: self._wanted - self.messages]
            self.messages += len(messages)
            self.bytes += sum(map(len, messages))
