"""Produce: v3-9 (0-2 advertised and refused, as Kafka 4.0 does: librdkafka before 2.11.1 compresses only if it sees 0).

Behaviour
    acks=0   no answer; what cannot be appended closes the connection, the only sign the producer can get.
    acks=1   answered when appended.
    acks=-1  answered when committed: the high watermark has passed it (rule R9). With fewer in-sync replicas than
             min.insync.replicas refused before the append (NOT_ENOUGH_REPLICAS); committed with fewer, since some left
             meanwhile, it is NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    Each partition of a request succeeds or fails alone. Record bytes go from the receive buffer to the page cache.

Version notes
    v5 adds the log start offset, v8 an error message for each partition (KIP-467), v9 is flexible.

Not here: transactions; a transactional id is refused with the protocol's own code.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klog.errors import (
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    KlogError,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    PeerError,
    RequestError,
    StorageError,
    TransactionsNotServed,
)
from klog.names import EVENTS_TOPIC, TopicPartition
from klog.net.connection import Connection, Reply
from klog.protocol import produce
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.produce import PartitionAnswer, ProducedPartition, ProduceRequest
from klog.record.batch import BatchHeader
from klog.replication.partition import REFUSED_S, Partition
from klog.server.batch_order import batch_id
from klog.server.dispatch import handles_frame
from klog.server.inspection import Found, at_once, look
from klog.server.purgatory import DelayedProduce
from klog.storage.log import AppendResult

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


@handles_frame(ApiKey.PRODUCE, 3, 9, advertised_min_version=0)
def handle(broker: Broker, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection) -> None:
    request = produce.read_request(frame, head)
    found: list[Found] | None = None
    for index, asked in enumerate(request.partitions):
        partition = broker.partitions.get(TopicPartition(asked.topic, asked.partition))
        if partition is not None and not partition.log.is_plain(asked.records):
            found = found or [None] * len(request.partitions)
            found[index] = at_once(partition.log, asked.records)
            if found[index] is None:
                connection.pause_reading(len(frame))
                broker.dispatcher.follow(_inspect(broker, head, memoryview(bytearray(frame)), reply, connection))
                return
    _append_all(broker, head, request, reply, connection, found)


async def _inspect(broker: Broker, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection) -> None:
    """Go on once the contents of all record sets are known. Nothing is appended before, so that what is appended in one
    request waits for its commit in the epoch in which it was appended.
    """
    try:
        request = produce.read_request(frame, head)
        found: list[Found] = [None] * len(request.partitions)
        for index, asked in enumerate(request.partitions):
            try:
                found[index] = await look(
                    broker.executors, broker.leader_of(asked.topic, asked.partition), asked.records, connection
                )
            except KlogError as error:  # were it led from now on, nobody would have looked
                found[index] = error.bare()
        _append_all(broker, head, request, reply, connection, found)
    except Exception:
        log.exception("closing the connection of %s: our fault", connection.peer, extra={"peer": connection.peer})
        connection.close(None)
    finally:
        connection.resume_reading()


def _append_all(
    broker: Broker,
    head: RequestHead,
    request: ProduceRequest,
    reply: Reply,
    connection: Connection,
    found: list[Found] | None,
) -> None:
    """Append to every partition, or say why not; answered at once or when it is committed."""
    answers: list[PartitionAnswer] = []
    appended: list[tuple[Partition, int, int]] = []
    traffic, order = broker.measures.traffic, broker.batch_order
    batches = [batch_id(asked.records) for asked in request.partitions]  # before the bytes are somebody else's
    for index, asked in enumerate(request.partitions):
        looked = None if found is None else found[index]
        if isinstance(looked, KlogError):  # not raised: a frame that holds what it raises is a cycle
            order.refused(connection, asked.topic, asked.partition, batches[index], looked)
            answers.append(_refused(broker, asked, looked, connection))
            continue
        refusal = order.behind(connection, asked.topic, asked.partition, batches[index])
        if refusal is not None:
            answers.append(_refused(broker, asked, refusal, connection))
            continue
        try:
            if asked.topic == EVENTS_TOPIC and not connection.is_broker:
                raise InvalidTopic(f"{EVENTS_TOPIC} is internal: only brokers write it")
            partition, result = _append(broker, request, asked, looked)
        except KlogError as error:
            order.refused(connection, asked.topic, asked.partition, batches[index], error)
            answers.append(_refused(broker, asked, error, connection))
            continue
        answers.append(PartitionAnswer(asked.topic, asked.partition, 0, result.base_offset, partition.log.start_offset))
        appended.append((partition, result.end.address, index))
        order.accepted(connection, asked.topic, asked.partition, batches[index])
        numbers = traffic.topics.get(asked.topic) or traffic.of(asked.topic)
        numbers.produces += 1
        if not result.duplicate:
            numbers.messages_in += result.count
            numbers.bytes_in += len(asked.records)
    if request.acks == 0:
        if len(appended) < len(answers):
            connection.close("a produce request with acks=0 failed; closing is the only way to tell")
        reply.nothing()
    elif request.acks == 1 or not appended:
        reply.send(produce.write_response(head, answers))
    else:
        deadline_s = broker.loop.time() + request.timeout_ms / 1000
        delayed = DelayedProduce(head, reply, answers, deadline_s, batches, connection, order)
        for partition, end, index in appended:
            delayed.wait_for(partition, end, index)
        if delayed.done:
            delayed.answer()
        else:
            broker.purgatory.add(delayed)


def _append(
    broker: Broker, request: ProduceRequest, asked: ProducedPartition, checked: list[BatchHeader] | None
) -> tuple[Partition, AppendResult]:
    if request.transactional_id is not None:
        raise TransactionsNotServed
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks is {request.acks}; -1 (all), 0 and 1 are allowed")
    if broker.fenced is not None:
        raise broker.fenced.bare()
    partition = broker.leader_of(asked.topic, asked.partition)
    try:
        if request.acks == -1:
            partition.check_in_sync()
        # A new leader, or one that has just refused something, may be sent what comes after it first.
        repeats_expected = partition.refused_until_s > 0 and broker.loop.time() < partition.refused_until_s
        return partition, partition.append(asked.records, repeats_expected=repeats_expected, checked=checked)
    except OutOfOrderSequence as error:
        # Its predecessor was refused, here or by the leader before, while this one was on its way. Were it told that it
        # is out of order, librdkafka would begin anew under another epoch in all partitions, and send twice what is
        # appended and not acknowledged yet; told to try again, it sends both in their order.
        if error.is_ahead and broker.loop.time() < partition.refused_until_s:
            raise NotLeader(f"{error.message}; what comes before it was refused and has to come first") from None
        if partition.log.needs_rebuild:  # a checkpoint was lost, and what the segments have is still being read
            raise NotLeader(f"{error.message}, as far as the log has been read again; it is not through yet") from None
        raise
    except (NotEnoughReplicas, StorageError):
        partition.refused_until_s = broker.loop.time() + REFUSED_S
        raise


def _refused(broker: Broker, asked: ProducedPartition, error: KlogError, connection: Connection) -> PartitionAnswer:
    _note(error, asked, connection)
    broker.measures.traffic.refused(asked.topic).failed_produces += 1
    if isinstance(error, StorageError):
        broker.replicas.look_at_disks()
    named = error.record_errors if isinstance(error, InvalidTimestamp) else ()
    return PartitionAnswer(asked.topic, asked.partition, error.wire, -1, -1, error.message, named)


def _note(error: KlogError, asked: ProducedPartition, connection: Connection) -> None:
    """Bad bytes and bad disks belong into the log; a caller's mistakes only at debug, for he is told."""
    level = logging.WARNING if isinstance(error, PeerError) or not isinstance(error, RequestError) else logging.DEBUG
    about = (connection.peer, asked.topic, asked.partition, error.message)
    log.log(level, "produce of %s to %s-%d: %s", *about, extra={"peer": connection.peer})
