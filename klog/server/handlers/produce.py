"""Produce: v3-9 (0-2 advertised and refused, as Kafka 4.0 does: librdkafka before 2.11.1 compresses only if it sees 0).

Behaviour
    acks=0   no answer; a failed append closes the connection, the only sign that the producer can get.
    acks=1   answered after the append.
    acks=-1  answered after the commit: the high watermark has passed the batch (rule R9). With fewer in-sync replicas
             than min.insync.replicas the leader refuses the batch before the append (NOT_ENOUGH_REPLICAS). If replicas
             leave the ISR after the append and fewer commit it, the answer is NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    Each partition of a request succeeds or fails alone. Record bytes go from the receive buffer to the page cache.

Version notes
    v5 adds the log start offset, v8 an error message for each partition (KIP-467), v9 is flexible.

Not here: transactions; a transactional id is refused with the protocol's own code.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final

from klog.errors import (
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    KlogError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    PeerError,
    RequestError,
    StorageError,
    TransactionsNotServed,
)
from klog.names import CLOSED_TOPICS, TopicPartition
from klog.net.connection import Connection, Reply
from klog.protocol import produce
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.produce import PartitionAnswer, ProducedPartition, ProduceRequest
from klog.record.admission import RequestBudget, Unread
from klog.record.batch import BatchHeader
from klog.replication.batch_order import BatchId, BatchOrder, batch_id, batch_of
from klog.replication.led_partition import REFUSED_S, LedPartition
from klog.security.permissions import Operation
from klog.server.dispatch import handles
from klog.server.event_limits import EventLimit
from klog.server.executors import Purpose
from klog.server.parts import Parts
from klog.server.purgatory import DelayedProduce
from klog.storage.log import AppendResult

log = logging.getLogger(__name__)

Found = list[BatchHeader] | KlogError | None
"""The headers to append a record set by, the error to answer, or None where this broker does not lead the partition."""

TOO_LARGE_NOTED_MAX: Final = 30
"""Messages per minute that the log names as too large; any client can send more."""


@handles(ApiKey.PRODUCE, 3, 9, advertised_min_version=0, takes_frames=True)
class ProduceHandler:
    """See the module. Event loop only."""

    def __init__(self, parts: Parts) -> None:
        self._access = parts.access
        self._identity = parts.identity
        self._partitions = parts.partitions
        self._replicas = parts.replicas
        self._order = BatchOrder(parts.runtime.loop.time)
        self._purgatory = parts.purgatory
        self._executors = parts.runtime.executors
        self._traffic = parts.runtime.measures.traffic
        self._clock = parts.runtime.loop.time
        self._too_large = EventLimit(TOO_LARGE_NOTED_MAX)

    def __call__(
        self, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection
    ) -> Coroutine[Any, Any, None] | None:
        request = produce.read_request(frame, head)
        access, partitions = self._access, self._partitions
        found: list[Found] = []
        unread: dict[int, Unread] = {}
        budget = RequestBudget()
        for index, (topic, number, records) in enumerate(request.partitions):
            denied = None if access is None else access.refusal(connection, Operation.WRITE, topic, ApiKey.PRODUCE)
            if denied is not None:
                found.append(denied)
                continue
            partition = partitions.get(TopicPartition(topic, number))
            if partition is None:
                found.append(None)
                continue
            try:
                admitted = partition.log.admit(records, budget)
            except KlogError as error:
                found.append(self._identity.by_its_clock(error.bare()))
                continue
            if isinstance(admitted, Unread):
                unread[index] = admitted
                admitted = admitted.headers  # until they are read: `_inspect` takes their place
            found.append(admitted)
        if not unread:
            self._append_all(head, request, reply, connection, found)
            return None
        connection.pause_reading(len(frame))
        kept = [one._replace(records=memoryview(bytearray(one.records))) for one in request.partitions]
        return self._inspect(head, request._replace(partitions=kept), reply, connection, found, unread)

    async def _inspect(
        self,
        head: RequestHead,
        request: ProduceRequest,
        reply: Reply,
        connection: Connection,
        found: list[Found],
        unread: dict[int, Unread],
    ) -> None:
        """Read the ``unread`` records, then append all.

        In threads, where addresses take turns, one record set of a request at a time: a large request does not delay
        the small ones of others. The connection is not read meanwhile, which keeps its appends in order and limits the
        waiting work. All are read before the first append, so that every batch of a request waits for its commit in the
        epoch in which it was appended.
        """
        for index, one in unread.items():
            try:
                found[index] = await self._executors.run_in_turn(
                    connection.address, "", Purpose.UNPACKING, one.inspect, request.partitions[index].records
                )
            except KlogError as error:
                found[index] = self._identity.by_its_clock(error.bare())
        self._append_all(head, request, reply, connection, found)
        connection.resume_reading()

    def _append_all(
        self,
        head: RequestHead,
        request: ProduceRequest,
        reply: Reply,
        connection: Connection,
        found: list[Found],
    ) -> None:
        """Append to each partition or note its error; the answer goes out at once or after the commit."""
        answers: list[PartitionAnswer] = []
        appended: list[tuple[LedPartition, int, int]] = []
        traffic, order = self._traffic, self._order
        batches: list[BatchId | None] = []  # before the buffer is used again
        for index, asked in enumerate(request.partitions):
            looked = found[index]
            batches.append(batch_of(looked) if isinstance(looked, list) else batch_id(asked.records))
            if isinstance(looked, KlogError):  # not raised here: a frame that holds what it raises is a cycle
                order.refused(connection, asked.topic, asked.partition, batches[index], looked)
                answers.append(self._refused(asked, looked, connection))
                continue
            refusal = order.behind(connection, asked.topic, asked.partition, batches[index])
            if refusal is not None:
                answers.append(self._refused(asked, refusal, connection))
                continue
            try:
                if asked.topic in CLOSED_TOPICS and not connection.is_broker:
                    raise InvalidTopic(f"{asked.topic} is internal: only brokers write it")
                partition, result = self._append(request, asked, looked)
            except KlogError as error:
                order.refused(connection, asked.topic, asked.partition, batches[index], error)
                answers.append(self._refused(asked, error, connection))
                continue
            answers.append(
                PartitionAnswer(asked.topic, asked.partition, 0, result.base_offset, partition.log.start_offset)
            )
            appended.append((partition, result.end.address, index))
            order.accepted(connection, asked.topic, asked.partition, batches[index])
            connection.writes = partition.topic_partition.topic
            numbers = traffic.topics.get(asked.topic) or traffic.of(asked.topic)
            numbers.produces += 1
            if not result.duplicate:
                numbers.messages_in += result.count
                numbers.bytes_in += len(asked.records)
        if request.acks == 0:
            if len(appended) < len(answers):
                connection.close("a produce request with acks=0 failed, and has no answer for the error")
            reply.nothing()
        elif request.acks == 1 or not appended:
            reply.send(produce.write_response(head, answers))
        else:
            deadline_s = self._clock() + request.timeout_ms / 1000
            delayed = DelayedProduce(head, reply, answers, deadline_s, batches, connection, order)
            for partition, end, index in appended:
                delayed.wait_for(partition, end, index)
            if delayed.done:
                delayed.answer()
            else:
                self._purgatory.add(delayed)

    def _append(
        self, request: ProduceRequest, asked: ProducedPartition, headers: list[BatchHeader] | None
    ) -> tuple[LedPartition, AppendResult]:
        if request.transactional_id is not None:
            raise TransactionsNotServed
        if request.acks not in (-1, 0, 1):
            raise InvalidRequiredAcks(f"acks must be -1 (all), 0 or 1, got {request.acks}")
        if self._identity.fenced is not None:
            raise self._identity.fenced.bare()
        partition = self._partitions.leader_of(asked.topic, asked.partition)
        if headers is None:
            raise NotLeader(f"{asked.topic}-{asked.partition} was not led here when the request came")
        try:
            if request.acks == -1:
                partition.check_in_sync()
            # A new leader, or one that has just refused a batch, may receive the batches after it first.
            repeats_expected = partition.refused_until_s > 0 and self._clock() < partition.refused_until_s
            return partition, partition.append(asked.records, headers, repeats_expected=repeats_expected)
        except OutOfOrderSequence as error:
            # The batch before it was refused, here or by the previous leader, while this one was on its way. On an
            # out-of-order error librdkafka would start again under another epoch in all partitions, and send twice what
            # is appended and not acknowledged yet. On a retriable error it sends both batches in order.
            if error.is_ahead and self._clock() < partition.refused_until_s:
                raise NotLeader(f"{error.message}; the batch before it was refused and must come first") from None
            if partition.log.needs_rebuild:  # a checkpoint was lost; the segments are being read again
                raise NotLeader(f"{error.message}, but the log's segments are still being read again") from None
            raise
        except (NotEnoughReplicas, StorageError):
            partition.refused_until_s = self._clock() + REFUSED_S
            raise

    def _refused(self, asked: ProducedPartition, error: KlogError, connection: Connection) -> PartitionAnswer:
        self._note(error, asked, connection)
        self._traffic.refused(asked.topic).failed_produces += 1
        if isinstance(error, StorageError):
            self._replicas.look_at_disks()
        named = error.record_errors if isinstance(error, InvalidTimestamp) else ()
        return PartitionAnswer(asked.topic, asked.partition, error.wire, -1, -1, error.message, named)

    def _note(self, error: KlogError, asked: ProducedPartition, connection: Connection) -> None:
        """Log bad bytes, bad disks and, at a limited rate, messages that are too large.

        Other mistakes of clients are logged at debug, since the client gets an answer. The size has limits in the
        settings of broker, topic and producer, which different people set.
        """
        is_operators = isinstance(error, PeerError) or not isinstance(error, RequestError)
        if isinstance(error, MessageTooLarge):
            is_operators = self._too_large.allows(self._clock())
        about = (connection.peer, asked.topic, asked.partition, error.message)
        level = logging.WARNING if is_operators else logging.DEBUG
        log.log(level, "produce of %s to %s-%d: %s", *about, extra={"peer": connection.peer})
