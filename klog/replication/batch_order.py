"""Refused batches of idempotent producers, which must arrive again before the batches that follow them.

A producer with several requests in flight sends batch 2 before it learns that the broker refused batch 1, because the
broker does not lead the partition yet, or too few replicas are in sync. If batch 1 is in the log already (the refused
request repeats it after a restart or a change of leaders), the log's sequence numbers allow batch 2 a moment later,
when the cause of the refusal has gone. librdkafka takes this as an acknowledgement of batch 1 as well ("implicit ack"),
and reports its messages as delivered without an offset. So, on the connection on which it refused a batch, the broker
refuses the producer's later batches too, with an error after which the producer sends everything again in order.

Only requests in flight at the time of the refusal can arrive too early: FOLLOWING_MAX requests. The producer sent later
ones after it had learned of the refusal. If the refused batch has not arrived by then, it went to another leader. The
broker must then accept its successors: if that leader gives the partition back, it would otherwise refuse them forever.

A producer's requests are in order only within one connection, so each connection has its own list. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from klog.errors import KlogError, NotLeader, StorageError
from klog.net.connection import Connection
from klog.record.batch import HEADER_BYTES, BatchHeader, read_header
from klog.replication.led_partition import REFUSED_S
from klog.storage.producers import NO_PRODUCER, SEQUENCE_END

REFUSED_MAX: Final = 1_000
"""Pairs of producer and partition remembered per connection; beyond that the oldest is forgotten."""

FOLLOWING_MAX: Final = 4
"""An idempotent producer has five requests in flight at most (KIP-98), the refused one among them."""


class BatchId(NamedTuple):
    """Identifies one batch of one producer."""

    producer_id: int
    epoch: int
    first_sequence: int

    def is_after(self, other: BatchId) -> bool:
        """Whether it comes later in the sequence of the same producer in the same epoch."""
        ahead = (self.first_sequence - other.first_sequence) % SEQUENCE_END
        return self.epoch == other.epoch and 0 < ahead < SEQUENCE_END // 2


class _Refused(NamedTuple):
    batch: BatchId
    until_s: float
    following: int
    """How many more of the following batches may be refused."""


_Key = tuple[str, int, int]
"""Topic, partition, producer id."""


def batch_id(records: memoryview) -> BatchId | None:
    """The id of a record set that is one batch of an idempotent producer; None for any other."""
    return None if len(records) < HEADER_BYTES else batch_of([read_header(records)])


def batch_of(headers: list[BatchHeader]) -> BatchId | None:
    """`batch_id` from parsed headers."""
    header = headers[0]
    if header.producer_id == NO_PRODUCER:
        return None
    return BatchId(header.producer_id, header.producer_epoch, header.base_sequence)


class BatchOrder:
    """See the module. ``clock_s`` is monotonic."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s

    def refused(
        self, connection: Connection, topic: str, partition: int, batch: BatchId | None, error: KlogError
    ) -> None:
        """Note a batch that was answered with ``error``, if its producer will send it again.

        Not for a batch that `behind` has refused: that adds nothing about the batch before it.
        """
        if batch is None or not (error.retriable or isinstance(error, StorageError)):
            return
        there: dict[_Key, _Refused] = connection.states.setdefault(self, {})
        key = (topic, partition, batch.producer_id)
        known = there.pop(key, None)
        first = known.batch if known is not None and batch.is_after(known.batch) else batch
        there[key] = _Refused(first, self._clock_s() + REFUSED_S, FOLLOWING_MAX)
        if len(there) > REFUSED_MAX:
            del there[next(iter(there))]

    def behind(self, connection: Connection, topic: str, partition: int, batch: BatchId | None) -> NotLeader | None:
        """The error to answer if an earlier batch was refused and has not arrived again; otherwise None."""
        there = self._refused(connection)
        if batch is None or not there:
            return None
        key = (topic, partition, batch.producer_id)
        known = there.get(key)
        if known is None or not batch.is_after(known.batch) or self._clock_s() >= known.until_s:
            return None
        if known.following == 0:
            del there[key]
            return None
        there[key] = known._replace(following=known.following - 1)
        return NotLeader(
            f"{topic}-{partition}: producer {batch.producer_id} sent sequence {known.batch.first_sequence} before "
            f"{batch.first_sequence}; that was refused and must come first"
        )

    def accepted(self, connection: Connection, topic: str, partition: int, batch: BatchId | None) -> None:
        """The batch is in the log: later batches may follow."""
        there = self._refused(connection)
        if batch is not None and there:
            there.pop((topic, partition, batch.producer_id), None)

    def _refused(self, connection: Connection) -> dict[_Key, _Refused] | None:
        """By producer and partition; None if nothing was ever refused there."""
        return connection.states.get(self)
