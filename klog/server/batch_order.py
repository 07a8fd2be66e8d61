"""Batches of idempotent producers that were refused, and must come again before what was sent after them.

A producer with several requests in flight sends batch 2 before it has heard that batch 1 was refused, for it is not the
leader's yet, or too few replicas are in sync. Where batch 1 is in the log already, because this is its repetition after
a restart or a change of leaders, nothing in the log's sequence numbers keeps batch 2 from being accepted a moment
later, when the refusal's cause has gone. librdkafka takes that for an acknowledgement of batch 1 as well ("implicit
ack"), and reports its messages as delivered without an offset. So, on the connection on which a batch was refused, what
its producer sends after it is refused too, with an error upon which everything is sent again in order.

Only what was on its way when the refusal was sent can come too early: FOLLOWING_MAX requests. What comes after them was
sent by a producer that has heard of the refusal. Where the refused batch has not come by then it went elsewhere, to
another leader: were its successors still refused once that one has given the partition back, it would be for good.

A producer's requests are in order on one connection only, so this is kept by connection. Event loop only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from klog.errors import KlogError, NotLeader, StorageError
from klog.net.connection import Connection
from klog.record.batch import HEADER_BYTES
from klog.replication.partition import REFUSED_S
from klog.storage.producers import NO_PRODUCER, SEQUENCE_END

REFUSED_MAX: Final = 1_000
"""Producers and partitions noted of one connection; beyond that the oldest is forgotten."""

FOLLOWING_MAX: Final = 4
"""An idempotent producer has five requests in flight at most (KIP-98), the refused one among them."""

_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


class BatchId(NamedTuple):
    """Which batch of which producer."""

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
    """How many more may be refused that come after it."""


_Key = tuple[str, int, int]
"""Topic, partition, producer id."""


def batch_id(records: memoryview) -> BatchId | None:
    """Of a record set that is one batch of an idempotent producer; None of any other."""
    if len(records) < HEADER_BYTES:
        return None
    found = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return None if found[0] == NO_PRODUCER else BatchId(*found)


class BatchOrder:
    """See the module. ``clock_s`` never goes back."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._refused: WeakKeyDictionary[Connection, dict[_Key, _Refused]] = WeakKeyDictionary()

    def refused(
        self, connection: Connection, topic: str, partition: int, batch: BatchId | None, error: KlogError
    ) -> None:
        """The batch was answered with ``error``; noted where its producer will send it again.

        Not for a batch that `behind` has refused: it says nothing new of the one before it.
        """
        if batch is None or not (error.retriable or isinstance(error, StorageError)):
            return
        there = self._refused.setdefault(connection, {})
        key = (topic, partition, batch.producer_id)
        known = there.pop(key, None)
        first = known.batch if known is not None and batch.is_after(known.batch) else batch
        there[key] = _Refused(first, self._clock_s() + REFUSED_S, FOLLOWING_MAX)
        if len(there) > REFUSED_MAX:
            del there[next(iter(there))]

    def behind(self, connection: Connection, topic: str, partition: int, batch: BatchId | None) -> NotLeader | None:
        """What to answer where something that comes before the batch was refused and has not come again; or None."""
        if batch is None or not self._refused:
            return None
        there = self._refused.get(connection)
        key = (topic, partition, batch.producer_id)
        known = None if there is None else there.get(key)
        if there is None or known is None or not batch.is_after(known.batch) or self._clock_s() >= known.until_s:
            return None
        if known.following == 0:
            del there[key]
            return None
        there[key] = known._replace(following=known.following - 1)
        return NotLeader(
            f"{topic}-{partition}: producer {batch.producer_id} sent sequence {known.batch.first_sequence} before "
            f"{batch.first_sequence}; that was refused and has to come first"
        )

    def accepted(self, connection: Connection, topic: str, partition: int, batch: BatchId | None) -> None:
        """The batch is in the log: what comes after it may follow."""
        if batch is None or not self._refused:
            return
        there = self._refused.get(connection)
        if there is not None:
            there.pop((topic, partition, batch.producer_id), None)
            if not there:
                del self._refused[connection]
