"""ProduceAt (klog's own, 10030): an append that is made only where the log ends at the offset its writer expects.

Behaviour
    The end that counts is that of the leader's log, committed or not: what another has appended and nobody has
    committed yet is in the way, or it could be committed in between. A writer that has read all that is committed, and
    finds the end there, has therefore seen everything that will ever stand before what it appends. Where the end is
    another one the answer is END_MOVED (OFFSET_OUT_OF_RANGE on the wire) with the end there is and who moved it.

    Copiers name the source whose messages they append, and are in the way of the same source alone: else a busy
    producer, or a second source, would keep them from ever finding the end where they have seen it. The leader
    remembers for each source where its last append ended, and an append is made where that is not behind the expected
    end. Of two writers of one source the older is to go on (their names are compared as texts): the younger, which may
    well be the faster one, is refused once, with INVALID_PRODUCER_EPOCH, whenever the older has asked in vain.

    Of what was there before it began to remember a leader knows nothing: an expected end below that is not good enough.

    The leader's epoch must be the one that the writer knows, and so must the topic's id, where one is given: a topic
    that was deleted and made again may well end at the same offset.

    Answered when committed, as Produce with acks=all (rule R9). An answer that is lost, or an error after the append,
    leaves it open whether the records stand there; asking again is safe, for the end has moved if they do.

Not here: idempotent batches; the condition does what sequences do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from klog.errors import (
    EndMoved,
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidTopic,
    KlogError,
    NotEnoughReplicas,
    RequestTimedOut,
    StorageError,
)
from klog.names import EVENTS_TOPIC, TopicPartition
from klog.protocol.apis import ApiKey
from klog.replication.partition import REFUSED_S, Partition
from klog.server.dispatch import Request, handles
from klog.server.inspection import Found, look

if TYPE_CHECKING:
    from klog.net.connection import Connection
    from klog.server.broker import Broker

SOURCES_MAX = 1000
"""Remembered a partition; the one that was silent for longest is forgotten first."""


class _Sources:
    """What one leader remembers of the appends it has made in this way."""

    def __init__(self, end: int) -> None:
        self.floor = end
        """Of what was appended below it nothing is known."""
        self._last: dict[str, tuple[int, str]] = {}
        self._contested: dict[str, str] = {}
        """The older writer that has lately found its source's end moved by a younger one."""

    def check(self, asked: Any, end: int) -> None:
        """EndMoved unless the writer has seen all that could be its own.

        InvalidProducerEpoch where an older writer of the same source is alive too, for it has asked in vain since this
        one appended.
        """
        older = self._contested.pop(asked.source, None)
        if older is not None and older < asked.writer:
            raise InvalidProducerEpoch(f"{asked.source} is copied by an older writer as well")
        expected = asked.expected_end
        if expected == end:
            return
        last, writer = self._last.get(asked.source, (-1, ""))
        if not asked.source or not max(self.floor, last) <= expected <= end:
            if asked.source and expected < last and asked.writer < writer:
                self._contested[asked.source] = asked.writer
            raise EndMoved(f"{asked.topic}-{asked.partition_index} ends at {end}, not at {expected}")

    def appended(self, source: str, end: int, writer: str) -> None:
        self._last.pop(source, None)
        self._last[source] = end, writer
        if len(self._last) > SOURCES_MAX:
            silent = next(iter(self._last))
            self.floor = max(self.floor, self._last.pop(silent)[0])
            self._contested.pop(silent, None)

    def writer(self, source: str) -> str:
        """Who is in the way of others: the older one that lives, or else who appended last."""
        return self._contested.get(source) or self._last.get(source, (-1, ""))[1]


_SOURCES: WeakKeyDictionary[Partition, _Sources] = WeakKeyDictionary()
"""A `Partition` is one leader in one epoch, and what is remembered goes with it."""


@handles(ApiKey.PRODUCE_AT, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    timeout_s = max(request.entity.timeout_ms, 0) / 1000
    asked = request.entity.partitions
    records = [memoryview(bytearray(one.records)) for one in asked]
    looked = [await _look(broker, one, data, request.connection) for one, data in zip(asked, records, strict=True)]
    # All appends are made before anything else is waited for: one flush serves them.
    is_broker = request.connection is not None and request.connection.is_broker
    answers = [_append(broker, *one, is_broker=is_broker) for one in zip(asked, records, looked, strict=True)]
    waiting = [answer.committed for answer in answers if answer.committed is not None]
    if waiting:
        await asyncio.wait(waiting, timeout=timeout_s)
    return {"partitions": [answer.values() for answer in answers]}


class _Answer:
    """What became of one append."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.partition: Partition | None = None
        self.error: KlogError | None = None
        self.base_offset = -1
        self.end_offset = -1
        self.writer = ""
        self.committed: asyncio.Future[KlogError | None] | None = None

    def values(self) -> dict[str, Any]:
        error = self.error
        if self.committed is not None:
            error = self.committed.result() if self.committed.done() else _LATE
        end = -1 if self.partition is None else self.partition.log.end.offset
        return {
            "topic": self.asked.topic,
            "partition_index": self.asked.partition_index,
            "error_code": 0 if error is None else error.wire,
            "error_message": None if error is None else error.message,
            "base_offset": self.base_offset if error is None else -1,
            "end_offset": end if error is not None else self.end_offset,
            "writer": self.writer,
        }


_LATE = RequestTimedOut("not committed within the request's timeout")


class _Waiter:
    """Fills a future when an append is committed, or has failed."""

    def __init__(self, future: asyncio.Future[KlogError | None]) -> None:
        self._future = future

    def committed(self, error: KlogError | None) -> None:
        if not self._future.done():
            self._future.set_result(error)


async def _look(broker: Broker, asked: Any, records: memoryview, connection: Connection | None) -> Found:
    try:
        return await look(broker.executors, broker.leader_of(asked.topic, asked.partition_index), records, connection)
    except KlogError as error:
        return error.bare()


def _append(broker: Broker, asked: Any, records: memoryview, looked: Found, *, is_broker: bool) -> _Answer:
    """Append, or say why not; nothing else runs in between, so the end that is looked at is the end appended to."""
    answer = _Answer(asked)
    traffic = broker.measures.traffic
    try:
        if asked.topic == EVENTS_TOPIC and not is_broker:
            raise InvalidTopic(f"{EVENTS_TOPIC} is internal: only brokers write it")
        if broker.fenced is not None:
            raise broker.fenced.bare()
        partition = answer.partition = broker.leader_of(asked.topic, asked.partition_index)
        if asked.leader_epoch < 0:
            raise FencedLeaderEpoch(
                f"leader epoch {asked.leader_epoch}: its writer has to know which one it appends in"
            )
        partition.check_epoch(asked.leader_epoch)
        _check_topic_id(broker, asked)
        sources = _SOURCES.get(partition)
        if sources is None:
            sources = _SOURCES[partition] = _Sources(partition.log.end.offset)
        answer.writer = sources.writer(asked.source)
        sources.check(asked, partition.log.end.offset)
        if isinstance(looked, KlogError):
            answer.error = looked
            traffic.refused(asked.topic).failed_produces += 1
            return answer
        try:
            partition.check_in_sync()
            result = partition.append(records, checked=looked)
        except (NotEnoughReplicas, StorageError):
            partition.refused_until_s = broker.loop.time() + REFUSED_S
            raise
    except KlogError as error:
        traffic.refused(asked.topic).failed_produces += 1
        if isinstance(error, StorageError):
            broker.replicas.look_at_disks()
        answer.error = error.bare()
        return answer
    answer.writer = asked.writer
    sources.appended(asked.source, result.end.offset, asked.writer)
    answer.base_offset, answer.end_offset = result.base_offset, result.end.offset
    numbers = traffic.topics.get(asked.topic) or traffic.of(asked.topic)
    numbers.produces += 1
    numbers.messages_in += result.count
    numbers.bytes_in += len(asked.records)
    future: asyncio.Future[KlogError | None] = broker.loop.create_future()
    if not partition.when_committed(result.end.address, _Waiter(future)):
        answer.committed = future
    return answer


def _check_topic_id(broker: Broker, asked: Any) -> None:
    there = broker.log_dirs.topic_id(TopicPartition(asked.topic, asked.partition_index))
    if asked.topic_id is not None and there != asked.topic_id:
        raise InconsistentTopicId(f"topic {asked.topic} has the id {there}, not {asked.topic_id}")
