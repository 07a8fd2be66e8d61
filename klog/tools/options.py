"""What `klog tail` and `klog produce` are asked for, and what tail reads of each partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from klog.client.positions import Range
from klog.config.units import Rate

if TYPE_CHECKING:
    from klog.tools.schemas import MessageDecoder, MessageEncoder

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
    `klog.tools.formats`); ``grep`` is searched in values, ``grep_key`` in keys, ``grep_header`` in headers as
    ``name=value``. ``match``: also topics whose name matches. ``merge_by_time``: over partitions in the order of time;
    what comes waits ``settle_s`` for what is earlier. ``decoder``: values are shown as it decodes them. ``replica``:
    what this broker has of the partitions, not their leaders. ``group`` (-G): as a member of it, from where it has
    committed; where it has not, ``offset``. ``on_terminal``: what would command one is shown escaped.
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


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How input becomes messages and how they are sent.

    ``delimiter`` (-D) ends each line; ``key_delimiter`` (-K) splits it into key and value; ``key`` (-k) is the key of
    all; ``empty_is_null`` is -Z; ``format`` (-f) is the form of each line, as `klog.tools.input_messages` reads it.
    ``keep_partitions``: each message goes to the partition that its line names. ``create``: make the topic where it is
    missing. ``audit``: stamp every message and publish how many were sent, for `klog audit`; None: where the topic's
    ``klog.audit.enable`` says so. ``give_up_after_s``: so long after it was read an unacknowledged message is given up;
    None: never. ``encoder``: values are JSON, and sent as it encodes them. ``librdkafka`` are further settings of the
    client by its own names (-X).
    """

    input: Literal["lines", "jsonl", "raw"] = "lines"
    partition: int | None = None
    keep_partitions: bool = False
    key: bytes | None = None
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    format: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False
    acks: Literal["0", "1", "all"] = "all"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    batch_messages: int | None = None
    rate: Rate | None = None
    create: bool = False
    give_up_after_s: float | None = None
    audit: bool | None = None
    encoder: MessageEncoder | None = None
    librdkafka: dict[str, str] = field(default_factory=dict)
