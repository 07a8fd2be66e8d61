"""Fetch: v4-12.

Behaviour
    Whole batches from the first one that has a record at or after the asked offset, up to the high watermark, as
    ranges of segment files that go out by sendfile. The first partition with data gives at least one batch, however
    large (KIP-74). Long poll: with fewer than min_bytes the answer waits for the high watermark to move, max_wait at
    most. An offset between the last record + 1 and the log's end is empty, not out of range; below the start or beyond
    the end it is OFFSET_OUT_OF_RANGE.
    Data that is not in the page cache is read ahead in a thread first, so that a cold read does not stop the loop
    (rule L8).
    Replica id -2 asks for this broker's own replica, led or not, up to the high watermark that it knows of; where it
    has none: REPLICA_NOT_AVAILABLE.

Version notes
    v7 sessions (KIP-227): none is kept, the session id is always 0. v9 the leader epoch is checked (KIP-320). v12 is
    flexible. v13 needs topic ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.errors import KlogError, NotLeader
from klog.net.connection import Connection, Reply
from klog.protocol import fetch
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.fetch import AskedPartition, FetchedPartition, FetchRequest
from klog.replication.partition import Partition
from klog.server import local_replicas
from klog.server.dispatch import handles_frame
from klog.server.executors import Purpose
from klog.server.purgatory import DelayedFetch
from klog.storage.log import FileRange

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

Fetched = list[FetchedPartition[FileRange]]


@handles_frame(ApiKey.FETCH, 4, 12)
def handle(broker: Broker, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection) -> None:
    request = fetch.read_request(frame, head)
    if request.replica_id == local_replicas.DEBUGGING_REPLICA:
        broker.spawn(_answer_locally(broker, head, request, reply, connection))
        return
    read = _Read(broker, head, request, reply, connection)
    if request.max_wait_ms <= 0 or read.enough():
        read.answer()
    else:
        wait_s = request.max_wait_ms / 1000
        DelayedFetch(broker.purgatory, read.watched(), wait_s, read.enough_with, read.answer, connection)


async def _answer_locally(
    broker: Broker, head: RequestHead, request: FetchRequest, reply: Reply, connection: Connection
) -> None:
    fetched = await local_replicas.fetch(broker, request, connection.address)
    if reply.wanted:
        _send(broker, head, reply, fetched)


class _Read:
    """One fetch request's reading: tried when it comes, and again when there is more."""

    def __init__(
        self, broker: Broker, head: RequestHead, request: FetchRequest, reply: Reply, connection: Connection
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._head = head
        self._request = request
        self._reply = reply
        self._watched: dict[Partition, AskedPartition] = {}
        """While it waits: those that may get more."""
        self._there: dict[Partition, int] = {}
        """Bytes that lie there for it, where there are any."""
        self._bytes_there = 0
        self._asked: list[tuple[AskedPartition, Partition | None, KlogError | None]] = []
        self._failed = False
        wanted: Iterable[AskedPartition] = request.partitions
        if len(request.partitions) > 1:  # of a partition that is named twice the last one counts, as in Kafka
            wanted = {(asked.topic, asked.partition): asked for asked in request.partitions}.values()
        for asked in wanted:
            partition, error = None, None
            try:
                partition = broker.leader_of(asked.topic, asked.partition)
                partition.check_epoch(asked.leader_epoch)
                partition.log.check_offset(asked.offset)
            except KlogError as problem:
                error = problem.bare()
                self._failed = True
            self._asked.append((asked, partition, error))

    def enough(self) -> bool:
        """Whether the answer need not wait: an error, nobody there to take it, or min_bytes below high watermarks."""
        min_bytes = self._request.min_bytes
        if self._failed or not self._asked or min_bytes <= 0 or not self._reply.wanted:
            return True
        total = 0
        for asked, partition, _ in self._asked:
            if partition is None or partition.resigned:
                return True
            total += _bytes_below(partition, asked)
            if total >= min_bytes:
                return True
        return False

    def watched(self) -> list[Partition]:
        """Where there may be more, of a request that waits from now on. `enough` has said that all are led."""
        self._watched = {partition: asked for asked, partition, _ in self._asked if partition is not None}
        for partition in self._watched:
            self._look(partition)
        return list(self._watched)

    def _look(self, partition: Partition) -> None:
        size = _bytes_below(partition, self._watched[partition])
        if size:
            self._bytes_there += size - self._there.get(partition, 0)
            self._there[partition] = size

    def enough_with(self, partition: Partition) -> bool:
        """As `enough`, for a request that waits, after something has happened in one partition: of the others' many
        none is looked at."""
        if partition.resigned or not self._reply.wanted:
            return True
        self._look(partition)
        return self._bytes_there >= self._request.min_bytes

    def answer(self) -> None:
        """Read and reply, by way of a thread where that may have to wait for the disk."""
        if not self._reply.wanted:
            return
        if not all(partition is None or partition.log.is_known(asked.offset) for asked, partition, _ in self._asked):
            self._broker.spawn(self._answer_cold(None))
            return
        fetched = self._read()
        if self._cold(fetched):
            self._broker.spawn(self._answer_cold(fetched))
        else:
            _send(self._broker, self._head, self._reply, fetched)

    def _cold(self, fetched: Fetched) -> list[tuple[Partition, list[FileRange]]]:
        """What is not in the page cache."""
        return [
            (partition, list(one.ranges))
            for (_, partition, _), one in zip(self._asked, fetched, strict=True)
            if partition is not None and one.ranges and not partition.log.is_resident(list(one.ranges))
        ]

    async def _answer_cold(self, fetched: Fetched | None) -> None:
        run, whose = self._broker.executors.run_in_turn, self._connection.address
        if fetched is None:
            disks = {partition.log.home.path for _, partition, _ in self._asked if partition is not None}
            disk = disks.pop() if len(disks) == 1 else ""  # of several: a thread that belongs to none of them
            fetched = await run(whose, disk, Purpose.COLD_READS, self._read)
        try:
            for partition, ranges in self._cold(fetched):
                await run(whose, partition.log.home.path, Purpose.COLD_READS, partition.log.warm, ranges)
        except KlogError as error:
            log.error("reading ahead failed: %s", error.message)
        _send(self._broker, self._head, self._reply, fetched)

    def _read(self) -> Fetched:
        left = min(max(self._request.max_bytes, 0), self._broker.fetch_bytes_max)
        nothing_yet = True
        fetched: Fetched = []
        for asked, partition, error in self._asked:
            ranges: list[FileRange] = []
            size = 0
            if partition is not None and error is None:
                try:
                    if partition.resigned:
                        raise NotLeader(f"{partition.topic_partition} is led by another broker")
                    if asked.offset < partition.high_watermark.offset and (left > 0 or nothing_yet):
                        ranges = partition.log.read(
                            asked.offset,
                            min(left, asked.max_bytes),
                            partition.high_watermark.address,
                            at_least_one=nothing_yet,
                        )
                        size = sum(one.size for one in ranges)
                except KlogError as problem:
                    error = problem.bare()
            if error is not None or partition is None:
                code = error.wire if error is not None else -1
                start = partition.log.start_offset if partition is not None else -1
                fetched.append(FetchedPartition(asked.topic, asked.partition, code, -1, start, (), 0))
                continue
            if ranges:
                nothing_yet = False
                left -= size
            fetched.append(
                FetchedPartition(
                    asked.topic,
                    asked.partition,
                    0,
                    _shown_end(partition, asked.offset),
                    partition.log.start_offset,
                    ranges,
                    size,
                )
            )
        return fetched


def _bytes_below(partition: Partition, asked: AskedPartition) -> int:
    """How much a partition has for who asks."""
    high = partition.high_watermark
    return min(high.address - asked.offset, asked.max_bytes) if asked.offset < high.offset else 0


def _send(broker: Broker, head: RequestHead, reply: Reply, fetched: Fetched) -> None:
    traffic = broker.measures.traffic
    for one in fetched:
        if one.error_code == 0:
            numbers = traffic.of(one.topic)
            numbers.fetches += 1
            numbers.bytes_out += one.size_bytes
        else:
            traffic.refused(one.topic).failed_fetches += 1
    reply.send(*fetch.write_response(head, fetched))


def _shown_end(partition: Partition, asked: int) -> int:
    """The end that a consumer is shown. It has seen all below where it asks committed, and never sees the end go back,
    though a new leader may not know yet how far that is (rule R8)."""
    high = partition.high_watermark.offset
    return high if partition.end_is_known else max(high, asked)
