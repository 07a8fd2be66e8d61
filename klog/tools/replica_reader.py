"""One broker's replicas, read as `klog.tools.reader` reads leaders.

librdkafka asks leaders alone. Here Fetch and ListOffsets go to one broker, under the replica id that says so (-2,
Kafka's debugging consumer), and it shows what its replicas have up to the high watermark that they know of.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from klog.client import partition_requests
from klog.client.answers import error_of
from klog.client.blocking import BlockingChannel
from klog.client.metadata import BrokerNode
from klog.client.partition_requests import REPLICA
from klog.client.positions import EARLIEST, LATEST
from klog.errors import CorruptBatch, KlogError, OffsetOutOfRange, ReplicaNotAvailable, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.record.batch import check_crc, walk
from klog.record.records import Record, each_record
from klog.tools.reader import RUN_MESSAGES, WAIT_S, Reader
from klog.tools.time_merge import Partition

ANSWER_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
READY_MAX = 100_000
"""Messages that are given out before more are fetched: a batch of a few KB may hold millions of them."""


class ReplicaReader(Reader):
    """Reads the replicas of one broker, over one connection."""

    around_damage = (
        "another ID reads another replica; on this broker `klog log verify` tells all that is damaged, "
        "`klog log dump` shows it"
    )

    def __init__(self, node: BrokerNode, *arguments: Any, **keywords: Any) -> None:
        """As `Reader`, of that broker's replicas. Raises CannotConnect."""
        self._node = node
        self._next: dict[Partition, int] = {}
        """Where to fetch, in the order in which they are asked for: who has given something goes to the end."""
        self._highs: dict[Partition, int] = {}
        self._at_end: set[Partition] = set()
        """Those of which the last answer had nothing."""
        self._ready: deque[Message] = deque()
        super().__init__(*arguments, **keywords)

    def _connected(self, bootstrap: str) -> Any:
        host, port = self._node.host, self._node.port
        return BlockingChannel.connect(host, port, timeout_s=self._timeout_s, client_id="klog-tail")

    # --- What is read ---

    def _assign(self, offsets: Mapping[Partition, int]) -> None:
        self._ready.clear()
        self._at_end.clear()
        self._paused.clear()
        self._next = {
            place: self._bound(place, EARLIEST) if offset == OFFSET_BEGINNING else offset
            for place, offset in offsets.items()
        }
        self._last_heard = time.monotonic()

    def _pause(self, places: Collection[Partition]) -> None:
        """Nothing more of these, also of what was fetched: that is fetched again."""
        self._paused.update(places)
        kept: deque[Message] = deque()
        for one in self._ready:
            place = one.topic(), one.partition()
            if place in self._paused:
                self._next[place] = min(self._next[place], one.offset())
            else:
                kept.append(one)
        self._ready = kept

    def _resume(self, places: Collection[Partition]) -> None:
        self._paused.difference_update(list(places))

    def _go_on_at(self, place: Partition, offset: int) -> None:
        self._next[place] = offset

    # --- Reading ---

    def _next_run(self, wait_s: float = WAIT_S) -> list[Message]:
        """Raises CannotConnect where the broker goes away, and its error for a replica that it no longer has."""
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            self._fetch(wait_s)
        run = [self._ready.popleft() for _ in range(min(RUN_MESSAGES, len(self._ready)))]
        if not run:
            self._check_patience()
            return run
        self._last_heard = time.monotonic()
        return self._before_the_ends(run) if self._ends else run

    def _fetch(self, wait_s: float) -> None:
        asked = [place for place in self._next if place not in self._paused]
        # Whose end was not told yet has news either way: nothing is waited for.
        wait_ms = int(wait_s * 1000) if all(place in self._at_end for place in asked) else 0
        answer = self._consumer.request(
            partition_requests.fetch(
                self._consumer,
                {TopicPartition(*place): self._next[place] for place in asked},
                max_wait_ms=wait_ms,
                max_bytes=ANSWER_BYTES,
                partition_max_bytes=PARTITION_BYTES,
                replica_id=REPLICA,
            )
        )
        for place, one in partition_requests.by_partition(answer.responses, topic="topic"):
            self._take(place, one)

    def _take(self, place: Partition, answer: Any) -> None:
        name, offset = TopicPartition(*place), self._next[place]
        if answer.error_code == OffsetOutOfRange.wire:
            if offset > (end := self._bound(place, LATEST)):
                raise KlogError(
                    f"{name} on broker {self._node.broker_id} was cut: it ends at {end}, and was read up to {offset}",
                    hint="`klog lost list` shows what truncation has set aside",
                )
            self._go_on_inside(place, offset)
            return
        if answer.error_code:
            raise self._refusal(name, int(answer.error_code))
        self._highs[place] = int(answer.high_watermark)
        records = memoryview(answer.records or b"")
        if not records:
            self._at_end.add(place)
            if offset >= self._ends.get(place, 0):
                self._open.discard(place)
            return
        for at, header in walk(records, allow_partial=True):
            try:
                check_crc(records, at, header)
            except CorruptBatch as error:
                where = f"{name}: of broker {self._node.broker_id}"
                self._failure = CorruptBatch(f"{where}: {error.message}", hint=self.around_damage)
                break
            room = READY_MAX - len(self._ready)
            unread = (record for record in each_record(records, at) if record.offset >= offset)
            self._ready += [message_of(place, one, header.leader_epoch) for one in islice(unread, max(room, 0))]
            left = next(unread, None)
            if left is not None:
                offset = left.offset
                break
            offset = max(offset, header.last_offset + 1)
        self._at_end.discard(place)
        del self._next[place]
        self._next[place] = offset

    def _bounds(self, place: Partition) -> tuple[int, int]:
        return self._bound(place, EARLIEST), self._bound(place, LATEST)

    def _bound(self, place: Partition, which: int) -> int:
        name = TopicPartition(*place)
        asked = partition_requests.list_offsets(self._consumer, {name: which}, replica_id=REPLICA)
        (found,) = [one for topic in self._consumer.request(asked).topics for one in topic.partitions]
        if found.error_code:
            raise self._refusal(name, int(found.error_code))
        return int(found.offset)

    def _watermark(self, topic: str, partition: int) -> int:
        return self._highs.get((topic, partition), -1)

    def _refusal(self, name: TopicPartition, code: int) -> KlogError:
        broker_id = self._node.broker_id
        if code == ReplicaNotAvailable.wire:
            return ReplicaNotAvailable(
                f"broker {broker_id} has no replica of {name} (any more)",
                hint=f"`klog topic describe {name.topic}` shows who has one",
            )
        if code == UnknownTopicOrPartition.wire:
            return UnknownTopicOrPartition(f"the topic was deleted: {name}")
        return error_of(code, f"{name} on broker {broker_id}")


def message_of(place: Partition, record: Record, epoch: int = -1) -> Message:
    """A record as confluent-kafka's Consumer would give it out."""
    ms = record.timestamp_ms
    return Message(
        *place,
        record.offset,
        record.key,
        record.value,
        headers=list(record.headers) or None,
        timestamp=(TIMESTAMP_CREATE_TIME, ms) if ms >= 0 else (TIMESTAMP_NOT_AVAILABLE, -1),
        leader_epoch=epoch,
    )
