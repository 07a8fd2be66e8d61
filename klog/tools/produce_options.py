"""What `klog produce` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from klog.config.units import Rate

if TYPE_CHECKING:
    from klog.tools.schemas import MessageEncoder


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How input becomes messages and how they are sent.

    ``delimiter`` (-D) ends each line; ``key_delimiter`` (-K) splits it into key and value; ``key`` (-k) is the key of
    all; ``empty_is_null`` is -Z; ``format`` (-f) is the form of each line, as `klog.tools.line_format` reads it.
    ``keep_partitions``: each message goes to the partition that its line names.
    ``create``: make the topic where it is missing. ``audit``: stamp every message and publish how many were sent, for
    `klog audit`; None: where the topic's ``klog.audit.enable`` says so.
    ``give_up_after_s``: so long after it was read an unacknowledged message is given up; None: never.
    ``encoder``: values are JSON, and sent as it encodes them.
    ``librdkafka`` are further settings of the client by its own names (-X).
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
