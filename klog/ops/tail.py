"""Messages out: from topics to a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from klog.client.cluster import Cluster
from klog.ops.positions import Range


@dataclass(frozen=True, slots=True)
class TailOptions:
    """What to show and how.

    ``offset`` None: what comes from now on. ``last`` (-n): the last N over all partitions, by time, then what comes
    (unless ``until_end``). ``count`` (-c) stops after N messages. ``until_end`` (-e) stops at the end there was at the
    start. ``format`` is kcat's (see `formats`); ``grep`` is searched in values.
    """

    partitions: tuple[int, ...] | None = None
    offset: Range | None = None
    last: int | None = None
    count: int | None = None
    until_end: bool = False
    output: Literal["value", "format", "jsonl"] = "value"
    format: str | None = None
    grep: str | None = None
    merge_by_time: bool = False
    librdkafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TailSummary:
    """``earlier``: messages before the first shown, None where not known."""

    messages: int
    bytes: int
    earlier: int | None


async def tail(
    cluster: Cluster,
    topics: Sequence[str],
    options: TailOptions,
    sink: BinaryIO,
    *,
    note: Callable[[str], None] = lambda text: None,
) -> TailSummary:
    """Write messages to ``sink`` until told otherwise; cancel the task to stop.

    ``note`` gets sentences for stderr ("1,204 earlier: -o start", "end of partition"). Never creates a topic:
    UnknownTopicOrPartition. BrokenPipeError of the sink comes through.
    """
    raise NotImplementedError


def parse_partitions(text: str) -> tuple[int, ...]:
    """``0,2,5-8`` -> (0, 2, 5, 6, 7, 8); UsageError otherwise."""
    raise NotImplementedError
