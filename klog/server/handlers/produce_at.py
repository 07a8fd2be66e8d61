"""ProduceAt (klog's own, 10030): an append that the leader makes only if its log ends at the offset the writer expects.

Behaviour
    The leader compares the end of its log, committed or not: another writer's batch that is not committed yet counts,
    because it could still be committed first. A writer that has read all committed messages, and expects the end right
    after them, has therefore seen everything that will ever precede its own messages. If the log ends elsewhere, the
    answer is END_MOVED (OFFSET_OUT_OF_RANGE on the wire), with the actual end and the writer that moved it.

    Copiers name the source whose messages they append, and conflict only with copiers of the same source. Otherwise a
    busy producer, or a second source, could move the end before every append of theirs. The leader remembers for each
    source where its last append ended, and appends if that offset is not above the expected end. Of two writers of one
    source the older one continues (their names are compared as texts). The younger one may well be the faster; it is
    refused once, with INVALID_PRODUCER_EPOCH, each time an append of the older one has failed.

    A leader knows nothing of appends before it began to remember: it refuses an expected end below that offset.

    The writer must know the leader's present epoch, and the topic's id where it gives one: a topic that was deleted and
    created again may end at the same offset.

    Answered after the commit, as Produce with acks=all (rule R9). After a lost answer, or an error after the append,
    the writer does not know whether the log has its records. It can safely ask again: if it has, the end has moved.

Not here: idempotent batches; the condition does what sequences do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
from klog.names import CLOSED_TOPICS, TopicPartition
from klog.protocol.apis import ApiKey
from klog.record.admission import RequestBudget, Unread
from klog.record.batch import BatchHeader
from klog.replication.led_partition import REFUSED_S, LedPartition
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.executors import Purpose
from klog.server.parts import Parts

if TYPE_CHECKING:
    from klog.net.connection import Connection

SOURCES_MAX = 1000
"""Sources remembered per partition; the least recently used is dropped first."""


class _Sources:
    """A leader's memory of its ProduceAt appends."""

    def __init__(self, end: int) -> None:
        self.floor = end
        """The leader knows nothing of appends below this offset."""
        self._last: dict[str, tuple[int, str]] = {}
        self._contested: dict[str, str] = {}
        """Source -> the older writer whose last append failed because a younger one had moved the end."""

    def check(self, asked: Any, end: int) -> None:
        """Raise EndMoved unless the writer has seen every message that could be its own.

        Raises InvalidProducerEpoch if an older writer of the same source is alive, too: one of its appends has failed
        since this writer's last append.
        """
        older = self._contested.pop(asked.source, None)
        if older is not None and older < asked.writer:
            raise InvalidProducerEpoch(f"an older writer copies {asked.source} as well")
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
        """The writer that others conflict with: the older one that is alive, or else the last that appended."""
        return self._contested.get(source) or self._last.get(source, (-1, ""))[1]


class _Answer:
    """The outcome of one append; it waits for the commit, and must not keep the records for so long (rule P2)."""

    def __init__(self, asked: Any) -> None:
        self.topic, self.partition_index = asked.topic, asked.partition_index
        self.partition: LedPartition | None = None
        self.error: KlogError | None = None
        self.base_offset = -1
        self.end_offset = -1
        self.writer = ""
        self.waiting: asyncio.Future[KlogError | None] | None = None

    def committed(self, error: KlogError | None) -> None:
        """The append is committed, or has failed."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(error)

    def values(self) -> dict[str, Any]:
        error = self.error
        if self.waiting is not None:
            error = self.waiting.result() if self.waiting.done() else _LATE
        end = -1 if self.partition is None else self.partition.log.end.offset
        return {
            "topic": self.topic,
            "partition_index": self.partition_index,
            **error_fields(error),
            "base_offset": self.base_offset if error is None else -1,
            "end_offset": end if error is not None else self.end_offset,
            "writer": self.writer,
        }


_LATE = RequestTimedOut("not committed within the request's timeout")


@handles(ApiKey.PRODUCE_AT, 0, 0)
class ProduceAtHandler:
    """See the module. Event loop only."""

    def __init__(self, parts: Parts) -> None:
        self._identity = parts.identity
        self._log_dirs = parts.log_dirs
        self._partitions = parts.partitions
        self._replicas = parts.replicas
        self._loop = parts.runtime.loop
        self._executors = parts.runtime.executors
        self._traffic = parts.runtime.measures.traffic

    async def __call__(self, request: Request) -> Answer:
        timeout_s = max(request.entity.timeout_ms, 0) / 1000
        asked = request.entity.partitions
        records = [memoryview(bytearray(one.records)) for one in asked]
        budget = RequestBudget()
        found = [
            await self._admit(one, data, budget, request.connection) for one, data in zip(asked, records, strict=True)
        ]
        # All appends are made before the first wait: one flush serves them.
        is_broker = request.connection is not None and request.connection.is_broker
        answers = [self._append(*one, is_broker=is_broker) for one in zip(asked, records, found, strict=True)]
        waiting = [answer.waiting for answer in answers if answer.waiting is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)
        return {"partitions": [answer.values() for answer in answers]}

    async def _admit(
        self, asked: Any, records: memoryview, budget: RequestBudget, connection: Connection | None
    ) -> list[BatchHeader] | KlogError:
        """The headers to append the record set by, or the error; its records are read in a thread where that takes
        long."""
        try:
            partition = self._partitions.leader_of(asked.topic, asked.partition_index)
            admitted = partition.log.admit(records, budget)
            if not isinstance(admitted, Unread):
                return admitted
            address = "" if connection is None else connection.address
            return await self._executors.run_in_turn(address, "", Purpose.UNPACKING, admitted.inspect, records)
        except KlogError as error:
            return self._identity.by_its_clock(error.bare())

    def _append(
        self, asked: Any, records: memoryview, found: list[BatchHeader] | KlogError, *, is_broker: bool
    ) -> _Answer:
        """Append, or answer with the error. Nothing runs between the check of the end and the append."""
        answer = _Answer(asked)
        traffic = self._traffic
        try:
            if asked.topic in CLOSED_TOPICS and not is_broker:
                raise InvalidTopic(f"{asked.topic} is internal: only brokers write it")
            if self._identity.fenced is not None:
                raise self._identity.fenced.bare()
            partition = answer.partition = self._partitions.leader_of(asked.topic, asked.partition_index)
            if asked.leader_epoch < 0:
                raise FencedLeaderEpoch(
                    f"leader epoch {asked.leader_epoch}: the writer must name the epoch in which it appends"
                )
            partition.check_epoch(asked.leader_epoch)
            self._check_topic_id(asked)
            sources = partition.sources
            if not isinstance(sources, _Sources):
                sources = partition.sources = _Sources(partition.log.end.offset)
            answer.writer = sources.writer(asked.source)
            sources.check(asked, partition.log.end.offset)
            if isinstance(found, KlogError):
                answer.error = found
                traffic.refused(asked.topic).failed_produces += 1
                return answer
            try:
                partition.check_in_sync()
                result = partition.append(records, found)
            except (NotEnoughReplicas, StorageError):
                partition.refused_until_s = self._loop.time() + REFUSED_S
                raise
        except KlogError as error:
            traffic.refused(asked.topic).failed_produces += 1
            if isinstance(error, StorageError):
                self._replicas.look_at_disks()
            answer.error = error.bare()
            return answer
        answer.writer = asked.writer
        sources.appended(asked.source, result.end.offset, asked.writer)
        answer.base_offset, answer.end_offset = result.base_offset, result.end.offset
        numbers = traffic.topics.get(asked.topic) or traffic.of(asked.topic)
        numbers.produces += 1
        numbers.messages_in += result.count
        numbers.bytes_in += len(asked.records)
        if not partition.when_committed(result.end.address, answer):
            answer.waiting = self._loop.create_future()
        return answer

    def _check_topic_id(self, asked: Any) -> None:
        there = self._log_dirs.topic_id(TopicPartition(asked.topic, asked.partition_index))
        if asked.topic_id is not None and there != asked.topic_id:
            raise InconsistentTopicId(f"topic {asked.topic} has the id {there}, not {asked.topic_id}")
