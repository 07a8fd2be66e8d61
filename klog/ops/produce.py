"""Messages in: from files or stdin to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from klog.client.cluster import Cluster
from klog.ops.units import Rate


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How input becomes messages and how they are sent.

    ``key_delimiter`` (-K) splits each line into key and value; ``key`` (-k) is the key of all; ``empty_is_null`` is -Z.
    ``librdkafka`` are further settings of the client by its own names (-X).
    """

    input: Literal["lines", "jsonl", "raw"] = "lines"
    partition: int | None = None
    key: bytes | None = None
    key_delimiter: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False
    acks: Literal["0", "1", "all"] = "all"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    batch_messages: int | None = None
    rate: Rate | None = None
    librdkafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """What one partition acknowledged. Offsets are None with acks=0, where nobody says."""

    topic: str
    partition: int
    messages: int
    bytes: int
    first_offset: int | None
    last_offset: int | None
    flushed_by: tuple[int, ...] | None
    """The brokers that have it on disk (with acks=all: those in sync); None where that is not known."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of all input. ``failed`` > 0 or ``interrupted`` means that not all of it is in the log."""

    topic: str
    messages: int
    bytes: int
    failed: int
    ms: int
    partitions: tuple[PartitionReceipt, ...]
    interrupted: bool
    first_error: str | None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages * 1000 / max(self.ms, 1)

    @property
    def tail_line(self) -> str | None:
        """The command that shows what was sent; None where nothing was acknowledged with an offset."""
        raise NotImplementedError


async def produce(cluster: Cluster, topic: str, sources: Iterable[BinaryIO], options: ProduceOptions) -> Receipt:
    """Send everything that ``sources`` hold; cancel the task to stop early: what was acknowledged is then told.

    A missing topic is made where the cluster allows it (auto.create.topics.enable).
    """
    raise NotImplementedError
