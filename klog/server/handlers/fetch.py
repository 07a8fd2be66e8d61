"""Fetch: v4-12.

Behaviour
    Whole batches from the first one that has a record at or after the asked offset, up to the high watermark, as
    ranges of segment files that sendfile sends. The first partition with data gives at least one batch, however large
    (KIP-74). Long poll: with fewer than min_bytes the answer waits for the high watermark to move, max_wait at most.
    An offset between the last record + 1 and the log's end gets an empty answer; an offset below the start or beyond
    the end is OFFSET_OUT_OF_RANGE.
    A thread first reads data that is not in the page cache, so that a cold read does not block the event loop
    (rule L8). A request of very many partitions lets others run in between, and threads decode it and encode its answer
    (rule P1).
    With quotas an answer has no more than they allow at once, and one that is too much now has no partitions and a
    throttle time (KIP-219).
    Replica id -2 asks for this broker's own replica, leader or follower, up to the high watermark that it knows;
    without a replica the broker answers REPLICA_NOT_AVAILABLE.

Version notes
    v7 sessions (KIP-227): klog keeps none, the session id is always 0. v9 checks the leader epoch (KIP-320). v12 is
    flexible. v13 needs topic ids.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final

from klog.errors import KlogError, NotLeader, StorageError
from klog.net.connection import Connection, Reply
from klog.net.turns import Share
from klog.protocol import fetch
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.fetch import AskedPartition, FetchedPartition, FetchRequest
from klog.replication.led_partition import LedPartition
from klog.security.permissions import Operation
from klog.server.dispatch import guarded, handles
from klog.server.executors import Purpose
from klog.server.parts import Parts
from klog.server.purgatory import DelayedFetch
from klog.server.replicas.local_replicas import DEBUGGING_REPLICA
from klog.server.throttling import MeteredReply
from klog.storage.log import FileRange

log = logging.getLogger(__name__)

READS_NOTED: Final = 16
"""Number of partitions in a request whose topics are kept for `describe_clients`."""
LONG_REQUEST_BYTES: Final = 64 * 1024
"""A longer request has some 2,000 partitions or more, at some 8 us each."""

Fetched = list[FetchedPartition[FileRange]]


@handles(ApiKey.FETCH, 4, 12, takes_frames=True)
class FetchHandler:
    """See the module. Event loop only."""

    def __init__(self, parts: Parts) -> None:
        self.access = parts.access
        self.bytes_max = parts.config.integer("fetch.max.bytes")
        self.runtime = parts.runtime
        self.partitions = parts.partitions
        self._local_replicas = parts.local_replicas
        self._purgatory = parts.purgatory
        self._traffic = parts.runtime.measures.traffic

    def __call__(
        self, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection
    ) -> Coroutine[Any, Any, None] | None:
        if len(frame) > LONG_REQUEST_BYTES:
            connection.pause_reading(len(frame))
            return self._serve_long(head, bytes(frame), reply, connection)
        request = fetch.read_request(frame, head)
        if request.replica_id == DEBUGGING_REPLICA:
            self.runtime.spawn(
                guarded(self._answer_from_local_replicas(head, request, reply, connection), head, connection)
            )
            return None
        read = _Read(self, head, request, reply, connection)
        for asked in request.partitions:
            read.add(asked)
        connection.reads = read.topics()
        self._answer_or_wait(read)
        return None

    async def _serve_long(self, head: RequestHead, frame: bytes, reply: Reply, connection: Connection) -> None:
        """Serve a long request; the connection's next one waits until all partitions have been looked up."""
        request = await self.runtime.executors.run_in_turn(
            connection.address, "", Purpose.ANSWERS, fetch.read_request, memoryview(frame), head
        )
        if request.replica_id == DEBUGGING_REPLICA:
            connection.resume_reading()
            await self._answer_from_local_replicas(head, request, reply, connection)
            return
        read = _Read(self, head, request, reply, connection, is_long=True)
        share = Share(connection.turns, connection.address)
        for asked in request.partitions:
            read.add(asked)
            await share.yield_if_due()
        connection.resume_reading()
        self._answer_or_wait(read)

    def _answer_or_wait(self, read: _Read) -> None:
        wait_s = read.request.max_wait_ms / 1000
        if wait_s <= 0 or read.enough():
            read.answer()
        else:
            answer = read.reply.measured(read.answer) if isinstance(read.reply, MeteredReply) else read.answer
            DelayedFetch(self._purgatory, read.watched(), wait_s, read.enough_with, answer, read.connection)

    async def _answer_from_local_replicas(
        self, head: RequestHead, request: FetchRequest, reply: Reply, connection: Connection
    ) -> None:
        denied: Fetched = []
        if self.access is not None:
            allowed = []
            for asked in request.partitions:
                error = self.access.refusal(connection, Operation.READ, asked.topic, ApiKey.FETCH)
                if error is None:
                    allowed.append(asked)
                else:
                    denied.append(FetchedPartition(asked.topic, asked.partition, error.wire, -1, -1, (), 0))
            request = request._replace(partitions=allowed)
        fetched = [*await self._local_replicas.fetch(request, connection), *denied]
        if reply.wanted:
            await self.send_long(head, reply, fetched, connection)

    def send(self, head: RequestHead, reply: Reply, fetched: Fetched) -> None:
        """Answer, and count the bytes."""
        if isinstance(reply, MeteredReply) and reply.refuses(_size_bytes(fetched)):
            fetched = []
        for one in fetched:
            self._count(one)
        reply.send(*fetch.write_response(head, fetched))

    async def send_long(self, head: RequestHead, reply: Reply, fetched: Fetched, connection: Connection) -> None:
        """The same for an answer of any number of partitions."""
        if isinstance(reply, MeteredReply) and reply.refuses(_size_bytes(fetched)):
            fetched = []
        share = Share(connection.turns, connection.address)
        for one in fetched:
            self._count(one)
            await share.yield_if_due()
        reply.send(
            *await self.runtime.executors.run_in_turn(
                connection.address, "", Purpose.ANSWERS, fetch.write_response, head, fetched
            )
        )

    def _count(self, one: FetchedPartition[FileRange]) -> None:
        traffic = self._traffic
        if one.error_code == 0:
            numbers = traffic.of(one.topic)
            numbers.fetches += 1
            numbers.bytes_out += one.size_bytes
        else:
            traffic.refused(one.topic).failed_fetches += 1


class _Read:
    """One fetch request: read when it arrives, and again when there is more data."""

    def __init__(
        self,
        handler: FetchHandler,
        head: RequestHead,
        request: FetchRequest,
        reply: Reply,
        connection: Connection,
        *,
        is_long: bool = False,
    ) -> None:
        """``is_long``: so many partitions that a thread reads them."""
        self.connection = connection
        self.request = request
        self.reply = reply
        self._handler = handler
        self._head = head
        self._is_long = is_long
        self._bytes_max = handler.bytes_max
        if isinstance(reply, MeteredReply):
            self._bytes_max = reply.fetch_bytes_max(handler.bytes_max)
            self.request = request._replace(min_bytes=min(request.min_bytes, self._bytes_max))
        self._watched: dict[LedPartition, AskedPartition] = {}
        """The partitions that may get more data while the request waits."""
        self._there: dict[LedPartition, int] = {}
        """Available bytes in each partition that has any."""
        self._bytes_there = 0
        self._asked: list[tuple[AskedPartition, LedPartition | None, KlogError | None]] = []
        self._failed = False

    def add(self, asked: AskedPartition) -> None:
        """Add a partition, each once; call for all before anything else."""
        partition, error = None, None
        access = self._handler.access
        if access is not None:
            error = access.refusal(self.connection, Operation.READ, asked.topic, ApiKey.FETCH)
            if error is not None:
                self._failed = True
                self._asked.append((asked, None, error))
                return
        try:
            partition = self._handler.partitions.leader_of(asked.topic, asked.partition)
            partition.check_epoch(asked.leader_epoch)
            partition.log.check_offset(asked.offset)
        except KlogError as problem:
            error = problem.bare()
            self._failed = True
        self._asked.append((asked, partition, error))

    def topics(self) -> tuple[str, ...]:
        """Topics among the first `READS_NOTED` partitions that this broker leads and the client may read. Uses the
        leaders' strings, so that none from the client is kept."""
        led = (one.topic_partition.topic for _, one, _ in self._asked[:READS_NOTED] if one is not None)
        return tuple(dict.fromkeys(led))

    def enough(self) -> bool:
        """Whether the answer need not wait: an error, a closed connection, or min_bytes below the high watermarks."""
        min_bytes = self.request.min_bytes
        if self._failed or not self._asked or min_bytes <= 0 or not self.reply.wanted:
            return True
        total = 0
        for asked, partition, _ in self._asked:
            if partition is None or partition.resigned:
                return True
            total += _bytes_below(partition, asked)
            if total >= min_bytes:
                return True
        return False

    def watched(self) -> list[LedPartition]:
        """The partitions that may get more data for a waiting request; by `enough` this broker leads all."""
        self._watched = {partition: asked for asked, partition, _ in self._asked if partition is not None}
        for partition in self._watched:
            self._look(partition)
        return list(self._watched)

    def _look(self, partition: LedPartition) -> None:
        size = _bytes_below(partition, self._watched[partition])
        if size:
            self._bytes_there += size - self._there.get(partition, 0)
            self._there[partition] = size

    def enough_with(self, partition: LedPartition) -> bool:
        """As `enough`, for a waiting request, after a change in one partition; does not look at the others, which may
        be many."""
        if partition.resigned or not self.reply.wanted:
            return True
        self._look(partition)
        return self._bytes_there >= self.request.min_bytes

    def answer(self) -> None:
        """Read and reply; through a thread if the read may wait for the disk, or takes long."""
        if not self.reply.wanted:
            return
        if self._is_long or not all(
            partition is None or partition.log.is_known(asked.offset) for asked, partition, _ in self._asked
        ):
            self._answer_later(None)
            return
        fetched = self._read()
        if self._cold(fetched):
            self._answer_later(fetched)
        else:
            self._handler.send(self._head, self.reply, fetched)

    def _answer_later(self, fetched: Fetched | None) -> None:
        """``fetched``: None if a thread must read the partitions first."""
        self._handler.runtime.spawn(guarded(self._answer_by_threads(fetched), self._head, self.connection))

    def _cold(self, fetched: Fetched) -> list[tuple[LedPartition, list[FileRange]]]:
        """The file ranges that are not in the page cache, by partition."""
        return [
            (partition, list(one.ranges))
            for (_, partition, _), one in zip(self._asked, fetched, strict=True)
            if partition is not None and one.ranges and not partition.log.is_resident(list(one.ranges))
        ]

    async def _answer_by_threads(self, fetched: Fetched | None) -> None:
        run, whose = self._handler.runtime.executors.run_in_turn, self.connection.address
        if fetched is None:
            disks = {partition.log.log_dir.path for _, partition, _ in self._asked if partition is not None}
            disk = disks.pop() if len(disks) == 1 else ""  # for several disks: a thread of the common pool
            fetched = await run(whose, disk, Purpose.COLD_READS, self._read)
        try:
            for partition, ranges in self._cold(fetched):
                await run(whose, partition.log.log_dir.path, Purpose.COLD_READS, partition.log.warm, ranges)
        except KlogError as error:
            log.error("reading ahead failed: %s", error.message)
        if self._is_long:
            await self._handler.send_long(self._head, self.reply, fetched, self.connection)
        else:
            self._handler.send(self._head, self.reply, fetched)

    def _read(self) -> Fetched:
        left = min(max(self.request.max_bytes, 0), self._bytes_max)
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
                    if partition.resigned and isinstance(error, StorageError):  # the log was closed; no disk has failed
                        error = NotLeader(f"{partition.topic_partition} is led by another broker")
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


def _size_bytes(fetched: Fetched) -> int:
    return sum(one.size_bytes for one in fetched)


def _bytes_below(partition: LedPartition, asked: AskedPartition) -> int:
    """The bytes of a partition available to the request."""
    high = partition.high_watermark
    return min(high.address - asked.offset, asked.max_bytes) if asked.offset < high.offset else 0


def _shown_end(partition: LedPartition, asked: int) -> int:
    """The end offset in the answer. A new leader may not know the end yet: then at least the requested offset, since
    the consumer has read committed messages up to there and must never see the end move back (rule R8)."""
    high = partition.high_watermark.offset
    return high if partition.end_is_known else max(high, asked)
