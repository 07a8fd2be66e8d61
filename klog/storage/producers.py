"""Idempotence (rule L6): the last batches of each producer id in one partition.

A producer numbers its records per partition from 0 (wrapping after 2^31 - 1) and may have five batches in flight, so
the last five batches of each id tell a repeated batch from a gap. They are kept as long as the id
(``producer.id.expiration.ms``), even where retention has removed them, as Kafka does since KIP-360. An unknown id may
start at any sequence: Java's clients rely on it.
Values are immutable, so a snapshot is a shallow copy. Owner thread only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.errors import InvalidProducerEpoch, OutOfOrderSequence
from klog.record.batch import BatchHeader

WINDOW_BATCHES: Final = 5
"""max.in.flight.requests.per.connection of an idempotent producer is at most 5."""
SEQUENCE_END: Final = 1 << 31
NO_PRODUCER: Final = -1


class WrittenBatch(NamedTuple):
    """A batch of a producer, with all that answers its repetition."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    next_address: int


class Producer(NamedTuple):
    """The state of one producer id; ``batches``: oldest first, at most five, empty if truncation removed them."""

    epoch: int
    batches: tuple[WrittenBatch, ...]
    timestamp_ms: int


def last_sequence(first_sequence: int, count: int) -> int:
    """The sequence number of the last of ``count`` records that begin at ``first_sequence``."""
    return (first_sequence + count - 1) % SEQUENCE_END


class Producers:
    """The producer ids known to one partition."""

    __slots__ = ("_known",)

    def __init__(self, known: dict[int, Producer] | None = None) -> None:
        self._known: dict[int, Producer] = known or {}

    def snapshot(self) -> dict[int, Producer]:
        return self._known.copy()

    def check(self, header: BatchHeader, *, may_begin_anywhere: bool = True) -> WrittenBatch | None:
        """None if the batch may be appended; the batch that it repeats, if that is in the log.

        ``may_begin_anywhere``: an unknown id may start at any sequence, not only at 0. Raises InvalidProducerEpoch (an
        older incarnation of the producer) or OutOfOrderSequence.
        """
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        known = self._known.get(producer_id)
        if known is None:
            self._check_beginning(header, may_begin_anywhere)
            return None
        if epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} wrote with epoch {epoch}, but epoch {known.epoch} has written since"
            )
        if epoch > known.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {epoch} with sequence {first}, expected 0", is_ahead=True
                )
            return None
        if not known.batches:
            self._check_beginning(header, may_begin_anywhere)
            return None
        expected = (known.batches[-1].last_sequence + 1) % SEQUENCE_END
        if first == expected:
            return None
        last = last_sequence(first, header.count)
        for written in known.batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        raise OutOfOrderSequence(
            f"producer {producer_id}, epoch {epoch}: found sequence {first} to {last}, expected {expected}",
            is_ahead=(first - expected) % SEQUENCE_END < SEQUENCE_END // 2,
        )

    def _check_beginning(self, header: BatchHeader, may_begin_anywhere: bool) -> None:
        if header.base_sequence != 0 and not may_begin_anywhere:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} is not known and begins with sequence {header.base_sequence}",
                is_ahead=True,
            )

    def written(self, address: int, header: BatchHeader) -> None:
        """Record a batch written at ``address``."""
        count = header.count
        batch = WrittenBatch(
            header.base_sequence,
            last_sequence(header.base_sequence, count),
            address,
            address + count - 1,
            address + max(header.size_bytes, count),
        )
        known = self._known.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            batches: tuple[WrittenBatch, ...] = (batch,)
        else:
            batches = (*known.batches[1 - WINDOW_BATCHES :], batch)
        self._known[header.producer_id] = Producer(header.producer_epoch, batches, header.max_timestamp_ms)

    def merge(self, found: dict[int, Producer]) -> None:
        """Add what a walk over other segments of the same log found."""
        for producer_id, other in found.items():
            known = self._known.get(producer_id)
            if known is None or known.epoch < other.epoch:
                self._known[producer_id] = other
            elif known.epoch == other.epoch:
                batches = sorted({*known.batches, *other.batches}, key=_base_offset)[-WINDOW_BATCHES:]
                latest_ms = max(known.timestamp_ms, other.timestamp_ms)
                self._known[producer_id] = Producer(known.epoch, tuple(batches), latest_ms)

    def truncate(self, address: int) -> None:
        """Remove batches at or after ``address``.

        An id that loses all its batches keeps its epoch and may go on at any sequence: all it can repeat are the
        batches that it had in flight, and those are removed.
        """
        for producer_id, known in list(self._known.items()):
            batches = tuple(batch for batch in known.batches if batch.base_offset < address)
            if len(batches) != len(known.batches):
                self._known[producer_id] = known._replace(batches=batches)

    def forget_idle(self, oldest_ms: int) -> None:
        """Remove ids whose last timestamps are older than ``oldest_ms`` (``producer.id.expiration.ms``)."""
        for producer_id, known in list(self._known.items()):
            if known.timestamp_ms < oldest_ms:
                del self._known[producer_id]


def _base_offset(batch: WrittenBatch) -> int:
    return batch.base_offset
