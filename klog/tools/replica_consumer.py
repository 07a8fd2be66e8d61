"""One broker's replicas, read as confluent-kafka's Consumer reads leaders: the methods that `klog.tools.reader` uses.

librdkafka asks leaders alone. Here Fetch and ListOffsets go to one broker, under the replica id that says so (-2,
Kafka's debugging consumer), and it shows what its replicas have up to the high watermark that they know of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message
from confluent_kafka import TopicPartition as Assigned

from klog.client import partition_requests
from klog.client.answers import error_of
from klog.client.blocking import BlockingChannel
from klog.client.metadata import BrokerNode
from klog.client.partition_requests import REPLICA
from klog.client.positions import EARLIEST, LATEST
from klog.errors import CorruptBatch, KlogError, ReplicaNotAvailable, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.record.batch import check_crc, walk
from klog.record.records import Record, each_record
from klog.tools.reader import Reader
from klog.tools.time_merge import Partition

ANSWER_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
READY_MAX = 100_000
"""Messages that are given out before more are fetched: a batch of a few KB may hold millions of them."""


class ReplicaConsumer:
    """One thread at a time; one connection."""

    def __init__(self, channel: BlockingChannel, broker_id: int) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._next: dict[Partition, int] = {}
        """Where to read on, in the order in which they are asked for: who has given something goes to the end."""
        self._highs: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._at_end: set[Partition] = set()
        """Those whose end has been told since the last message of them."""
        self._ready: deque[Message] = deque()

    def close(self) -> None:
        self._channel.close()

    # --- What is read -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[Assigned]) -> None:
        """These from their offsets on, and nothing else."""
        self._ready.clear()
        self._at_end.clear()
        self._next = {(one.topic, one.partition): one.offset for one in partitions}
        for place in [place for place, offset in self._next.items() if offset == OFFSET_BEGINNING]:
            self._next[place] = self._bound(place, EARLIEST)

    def assignment(self) -> list[Assigned]:
        return [Assigned(*place) for place in self._next]

    def position(self, partitions: Iterable[Assigned]) -> list[Assigned]:
        """Where each would be read on, after what has been given out."""
        waiting: dict[Partition, int] = {}
        for one in self._ready:
            waiting.setdefault((one.topic(), one.partition()), one.offset())
        places = [(one.topic, one.partition) for one in partitions]
        return [Assigned(*place, waiting.get(place, self._next[place])) for place in places]

    def pause(self, partitions: Iterable[Assigned]) -> None:
        """Nothing more of these, also of what was fetched: that is fetched again."""
        for one in self.position(partitions):
            place = one.topic, one.partition
            self._paused.add(place)
            self._next[place] = one.offset
        self._ready = deque(one for one in self._ready if (one.topic(), one.partition()) not in self._paused)

    def resume(self, partitions: Iterable[Assigned]) -> None:
        self._paused.difference_update((one.topic, one.partition) for one in partitions)

    def get_watermark_offsets(self, partition: Assigned, *, cached: bool, timeout: float = 0) -> tuple[int, int]:
        """Where the replica's log starts, and its high watermark; cached: (-1, that of the last answer; -1 before)."""
        place = partition.topic, partition.partition
        if cached:
            return -1, self._highs.get(place, -1)
        return self._bound(place, EARLIEST), self._bound(place, LATEST)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def poll(self, wait_s: float) -> Message | None:
        """The next message, or what there is to say of a partition; None where nothing comes in that time.

        Raises CannotConnect where the broker goes away, and its error for a replica that it no longer has.
        """
        if not self._ready:
            self._fetch(wait_s)
        return self._ready.popleft() if self._ready else None

    def consume(self, count: int, wait_s: float) -> list[Message]:
        """Up to so many of those that are there."""
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _fetch(self, wait_s: float) -> None:
        asked = [place for place in self._next if place not in self._paused]
        # Whose end was not told yet has news either way: nothing is waited for.
        wait_ms = int(wait_s * 1000) if all(place in self._at_end for place in asked) else 0
        answer = self._channel.request(
            partition_requests.fetch(
                self._channel,
                {TopicPartition(*place): self._next[place] for place in asked},
                max_wait_ms=wait_ms,
                max_bytes=ANSWER_BYTES,
                partition_max_bytes=PARTITION_BYTES,
                replica_id=REPLICA,
            )
        )
        for topic in answer.responses:
            for one in topic.partitions:
                self._take((str(topic.topic), int(one.partition_index)), one)

    def _take(self, place: Partition, answer: Any) -> None:
        name = TopicPartition(*place)
        code = int(answer.error_code)
        if code == KafkaError.OFFSET_OUT_OF_RANGE:
            self._out_of_range(place)
            return
        if code:
            raise self._refusal(name, code)
        self._highs[place] = int(answer.high_watermark)
        offset, records = self._next[place], memoryview(answer.records or b"")
        for at, header in walk(records, allow_partial=True):
            try:
                check_crc(records, at, header)
            except CorruptBatch as error:
                self._next[place] = offset
                self._say(place, KafkaError._BAD_MSG, f"of broker {self._broker_id}: {error.message}")
                return
            room = READY_MAX - len(self._ready)
            unread = (record for record in each_record(records, at) if record.offset >= offset)
            found = [message_of(place, record, header.leader_epoch) for record in islice(unread, max(room, 0))]
            left = next(unread, None)
            self._ready.extend(found)
            if left is not None:
                offset = left.offset
                break
            offset = max(offset, header.last_offset + 1)
        if records:
            del self._next[place]
            self._at_end.discard(place)
        elif place not in self._at_end:
            self._at_end.add(place)
            self._say(place, KafkaError._PARTITION_EOF)
        self._next[place] = offset

    def _out_of_range(self, place: Partition) -> None:
        offset, end = self._next[place], self._bound(place, LATEST)
        if offset > end:
            raise KlogError(
                f"{TopicPartition(*place)} on broker {self._broker_id} was cut: it ends at {end}, and was read up to "
                f"{offset}",
                hint="`klog lost list` shows what truncation has set aside",
            )
        self._say(place, KafkaError.OFFSET_OUT_OF_RANGE)

    def _say(self, place: Partition, code: int, what: str | None = None) -> None:
        self._ready.append(Message(*place, self._next[place], error=KafkaError(code, what)))

    def _bound(self, place: Partition, which: int) -> int:
        name = TopicPartition(*place)
        answer = self._channel.request(
            partition_requests.list_offsets(self._channel, {name: which}, replica_id=REPLICA)
        )
        (found,) = [one for topic in answer.topics for one in topic.partitions]
        if found.error_code:
            raise self._refusal(name, int(found.error_code))
        return int(found.offset)

    def _refusal(self, name: TopicPartition, code: int) -> KlogError:
        if code == ReplicaNotAvailable.wire:
            return ReplicaNotAvailable(
                f"broker {self._broker_id} has no replica of {name} (any more)",
                hint=f"`klog topic describe {name.topic}` shows who has one",
            )
        if code == UnknownTopicOrPartition.wire:
            return UnknownTopicOrPartition(f"the topic was deleted: {name}")
        return error_of(code, f"{name} on broker {self._broker_id}")


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


class ReplicaReader(Reader):
    """Reads the replicas of one broker."""

    around_damage = (
        "another ID reads another replica; on this broker `klog log verify` tells all that is damaged, "
        "`klog log dump` shows it"
    )

    def __init__(self, node: BrokerNode, *arguments: Any, **keywords: Any) -> None:
        """As `Reader`, of that broker's replicas. Raises CannotConnect."""
        self._node = node
        super().__init__(*arguments, **keywords)

    def _connected(self, bootstrap: str) -> Any:
        node = self._node
        channel = BlockingChannel.connect(node.host, node.port, timeout_s=self._timeout_s, client_id="klog-tail")
        return ReplicaConsumer(channel, node.broker_id)
