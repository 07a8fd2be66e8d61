"""What `tail` is asked for, and what it reads of each partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from klog.client.positions import Range

if TYPE_CHECKING:
    from klog.tools.schemas import MessageDecoder

Sink = BinaryIO | Callable[[list[Any]], None]
"""A stream that messages are written to; or what takes them as they are, all of them, in the thread that reads."""

SETTLE_S = 0.5
"""How long, while following in the order of time, a message waits for earlier ones of other partitions: longer than a
producer usually lingers and a fetch usually takes."""


@dataclass(frozen=True, slots=True)
class TailOptions:
    """What to show and how.

    ``offset`` None: what comes from now on. ``last`` (-n): the last N over all partitions, in the order of
    ``merge_by_time``, then what comes (unless ``until_end``). ``count`` (-c) stops after N messages. ``until_end`` (-e)
    stops at the end there was at the start, as does a range with an end. ``format`` is kcat's (see
    `klog.tools.formats`); ``grep`` is searched in
    values, ``grep_key`` in keys, ``grep_header`` in headers as ``name=value``. ``match``: also topics whose name
    matches. ``merge_by_time``: over partitions in the order of time; what comes waits ``settle_s`` for what is
    earlier. ``decoder``: values are shown as it decodes them. ``replica``: what this broker
    has of the partitions, not their leaders. ``group`` (-G): as a member of
    it, from where it has committed; where it has not, ``offset``. ``on_terminal``: what would command one is shown
    escaped.
    """

    partitions: tuple[int, ...] | None = None
    offset: Range | None = None
    last: int | None = None
    count: int | None = None
    until_end: bool = False
    output: Literal["value", "format", "jsonl"] = "value"
    format: str | None = None
    grep: str | None = None
    grep_key: str | None = None
    grep_header: str | None = None
    match: str | None = None
    group: str | None = None
    replica: int | None = None
    decoder: MessageDecoder | None = None
    merge_by_time: bool = False
    settle_s: float = SETTLE_S
    on_terminal: bool = False
    librdkafka: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """What to read of one partition: from ``begin`` up to, not with, ``end``; None: for ever."""

    begin: int
    end: int | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.begin >= self.end
