"""The leader's side of one follower's connection: named partitions, their positions, the waiting fetch (rule R3).

Strategy
    A slot is looked at only after an event: the follower has sent something, the leader has appended or resigned. Such
    slots are *news*; an answer is written from them and from nothing else, so that idle partitions cost nothing. A
    fetch without news waits. A new high watermark is not news; it is added to answers that are sent anyway, and once
    per max_wait all slots are checked for one.
    A partition is sent once for each time that the follower asks for more of it, so the follower sets the pace.
Rules
    * The leader counts a follower's position only if its log agrees with the leader's (`replication.divergence`). After
      each answer the follower must report the end that the answer gave it, or the logs are compared again.
    * All state of a follower ends with its connection, except what `LedPartition` knows of its position.
    * A thread reads ahead data far below the end, since that may wait for the disk (rule L8); then the slot is news.
      In-sync replicas do not wait for a replica that catches up.
Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from klog.errors import (
    KlogError,
    MalformedRequest,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StorageError,
    UnknownTopicId,
)
from klog.names import TopicPartition
from klog.net.connection import Part, Reply
from klog.protocol import replica_fetch
from klog.protocol.codec import RequestHead
from klog.protocol.replica_fetch import Fetch, FetchEntry, Flushed, Name, Range, Want
from klog.replication.divergence import Disagreement, Diverged, disagreement
from klog.replication.led_partition import LedPartition
from klog.server.broker_probes import BrokerProbes
from klog.server.executors import Purpose
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.runtime import Runtime
from klog.storage.log import FileRange, Log, LogEnd
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)

INLINE_BYTES: Final = 16 * 1024
"""Batches up to this size are read and sent with their head: one TCP segment and one wake-up of the follower, not
two."""
FAR_BYTES: Final = 16 * 1024 * 1024
"""Data within this distance of the log end was written just now and is in the page cache."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A partition that the follower has named. Watches it for appends."""

    session: ReplicaSession
    number: int
    name: TopicPartition
    partition: LedPartition | None = None
    agreed: bool = False
    greeted: bool = False
    """Whether it was answered since the logs agreed: the first answer confirms that, and does not wait."""
    wanting: bool = False
    end: int = -1
    expected: int = -1
    max_bytes: int = 0
    told_high: int = -1
    told_start: int = -1
    prepared: _Chunk | None = None
    """Data read ahead for it, from its position."""
    preparing: bool = False
    refusal: bytes | None = None
    """Where the follower must truncate or restart its log; then it asks again."""
    failure: KlogError | None = None

    def more(self, partition: LedPartition) -> None:
        self.session.happened(self)

    def fail(self, error: KlogError) -> None:
        self.failure = error
        self.wanting = False
        self.session.happened(self)

    def forget(self) -> None:
        if self.partition is not None:
            self.partition.unwatch_appends(self)
            self.partition = None


class _Parked(NamedTuple):
    """The fetch that waits."""

    request: Fetch
    head: RequestHead
    reply: Reply
    timer: asyncio.TimerHandle | None


class _Chunk(NamedTuple):
    """Batches for one slot."""

    slot: _Slot
    end: int
    """The slot's position when this was read."""
    first: int
    ranges: list[FileRange]
    size: int


class ReplicaSession:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        led: LedPartitions,
        log_dirs: LogDirs,
        probes: BrokerProbes,
        broker_id: int,
        incarnation: int,
    ) -> None:
        """``broker_id``, ``incarnation``: the follower's."""
        self.broker_id = broker_id
        self.incarnation = incarnation
        self._runtime = runtime
        self._led = led
        self._log_dirs = log_dirs
        self._probes = probes
        self._loop = runtime.loop
        self._slots: dict[int, _Slot] = {}
        self._news: dict[_Slot, None] = {}
        self._parked: _Parked | None = None
        self._woken = False
        self._look_through_at_s = 0.0

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the follower fetches."""
        return [slot.name for slot in self._slots.values()]

    def ended(self) -> None:
        """The connection is closed."""
        self._probes.doubt(self.broker_id)
        self._unpark()
        for slot in self._slots.values():
            slot.forget()
        self._slots.clear()
        self._news.clear()

    # --- requests -----------------------------------------------------------------------------------------------------

    def fetch(self, request: Fetch, entries: Iterable[FetchEntry], head: RequestHead, reply: Reply) -> None:
        if self._parked is not None:
            raise MalformedRequest("a replica's fetch came before the answer to the previous one")
        self._parked = _Parked(request, head, reply, None)
        self._take(entries)
        if request.max_wait_ms <= 0 or self._enough():
            self._answer()
        else:
            timer = self._loop.call_later(request.max_wait_ms / 1000, self._waited)
            self._parked = self._parked._replace(timer=timer)

    def update(self, entries: Iterable[FetchEntry]) -> None:
        self._take(entries)

    def _take(self, entries: Iterable[FetchEntry]) -> None:
        for entry in entries:
            if isinstance(entry, Name):
                self._name(entry)
                continue
            slot = self._slots.get(entry.slot)
            if slot is None:
                continue  # the leader has dropped the slot, and the follower has not read that yet
            if isinstance(entry, Want):
                self._want(slot, entry)
            elif isinstance(entry, Flushed):
                if slot.agreed:
                    self._fetched(slot, LogEnd(entry.address, entry.offset))
            else:
                slot.forget()
                del self._slots[slot.number]
                self._news.pop(slot, None)

    def _name(self, entry: Name) -> None:
        if entry.slot in self._slots:
            raise MalformedRequest(f"slot {entry.slot} is named twice")
        name = TopicPartition(entry.topic, entry.partition)
        slot = self._slots[entry.slot] = _Slot(self, entry.slot, name)
        try:
            partition = self._partition(name, entry.topic_id, entry.leader_epoch)
        except KlogError as error:
            slot.fail(error.bare())
            return
        slot.partition = partition
        partition.watch_appends(slot)

    def _partition(self, name: TopicPartition, topic_id: UUID, leader_epoch: int) -> LedPartition:
        """The partition, if this broker leads it and the follower is a replica of it. Raises KlogError otherwise."""
        partition = self._led.leader_of(*name)
        if self._log_dirs.topic_id(name) != topic_id:
            raise UnknownTopicId(f"{name} belongs to another topic of that name here")
        partition.check_replica(leader_epoch, self.broker_id, self.incarnation)
        return partition

    def _want(self, slot: _Slot, entry: Want) -> None:
        partition = slot.partition
        if partition is None or slot.failure is not None:
            return
        slot.max_bytes = entry.max_bytes
        slot.prepared = None
        if slot.agreed and entry.end_address == slot.expected:
            self._agree(slot, entry)
            return
        slot.agreed = slot.wanting = slot.greeted = False
        slot.refusal = None
        slot.end = entry.end_address
        if partition.log.is_known(entry.end_address):
            try:
                self._compared(slot, entry, disagreement(partition.log, entry.last_epoch, entry.end_address))
            except KlogError as error:
                slot.fail(error.bare())
        else:
            self._runtime.spawn(self._compare(slot, entry, partition))

    async def _compare(self, slot: _Slot, entry: Want, partition: LedPartition) -> None:
        try:
            found = await self._runtime.executors.run_at(
                partition.log.log_dir.path,
                Purpose.FOLLOWERS,
                disagreement,
                partition.log,
                entry.last_epoch,
                entry.end_address,
            )
        except KlogError as error:
            if slot.partition is partition:
                slot.fail(error.bare())
            return
        if slot.partition is partition and slot.end == entry.end_address and not slot.agreed:
            self._compared(slot, entry, found)

    def _compared(self, slot: _Slot, entry: Want, found: Disagreement | None) -> None:
        if found is None:
            self._agree(slot, entry)
        elif slot.partition is None:
            return
        elif isinstance(found, Diverged):
            slot.refusal = replica_fetch.diverged(slot.number, found.epoch, *found.end)
            self.happened(slot)
        elif slot.partition.log.needs_rebuild and entry.end_address >= found.address and entry.last_epoch >= 0:
            # Old segments are still being read, and the epoch in question may be in one: the log need not restart.
            slot.fail(OffsetNotAvailable(f"{slot.name}: the epochs of old segments are not known yet"))
        else:
            slot.refusal = replica_fetch.elsewhere(slot.number, found.address, found.offset)
            self.happened(slot)

    def _agree(self, slot: _Slot, entry: Want) -> None:
        slot.agreed = slot.wanting = True
        slot.end = entry.end_address
        self._fetched(slot, LogEnd(entry.flushed_address, entry.flushed_offset))
        if slot.partition is not None and (not slot.greeted or slot.partition.log.end.address > slot.end):
            self.happened(slot)

    def _fetched(self, slot: _Slot, flushed: LogEnd) -> None:
        """Report the follower's position to the partition, unless another broker leads it by now."""
        partition = slot.partition
        if partition is None or slot.failure is not None:
            return
        if flushed.address > partition.log.end.address:
            raise MalformedRequest(
                f"{slot.name}: flushed up to {flushed.address}; our log ends at {partition.log.end.address}"
            )
        try:
            partition.check_replica(partition.leader_epoch, self.broker_id, self.incarnation)
        except KlogError as error:
            slot.fail(error.bare())
            return
        partition.replica_fetched(
            self.broker_id, self.incarnation, max(slot.end, flushed.address), flushed, self._loop.time()
        )

    # --- ranges that its disk has lost --------------------------------------------------------------------------------

    def range(self, asked: Range, head: RequestHead, reply: Reply) -> None:
        """Send bytes that the follower has lost, whatever its position."""
        self._runtime.spawn(self._send_range(asked, head, reply))

    async def _send_range(self, asked: Range, head: RequestHead, reply: Reply) -> None:
        name = TopicPartition(asked.topic, asked.partition)
        try:
            partition = self._partition(name, asked.topic_id, asked.leader_epoch)
            first, ranges = await self._runtime.executors.run_at(
                partition.log.log_dir.path,
                Purpose.FOLLOWERS,
                _read_range,
                partition.log,
                asked.address,
                asked.max_bytes,
            )
            parts: list[Part] = [self._range_head(partition, first, sum(one.size for one in ranges), head), *ranges]
        except KlogError as error:
            entry = replica_fetch.failed(replica_fetch.NO_SLOT, error.wire, error.message)
            parts = [replica_fetch.answer_head(len(entry), head.correlation_id) + entry]
        if reply.wanted:
            reply.send(*parts)

    def _range_head(self, partition: LedPartition, first: int, size: int, head: RequestHead) -> bytes:
        high, start = partition.high_watermark, partition.log.start_offset
        entry = replica_fetch.records_head(replica_fetch.NO_SLOT, high.address, high.offset, start, first, size)
        return replica_fetch.answer_head(len(entry) + size, head.correlation_id) + entry

    # --- events of slots ----------------------------------------------------------------------------------------------

    def happened(self, slot: _Slot) -> None:
        """Make the slot news."""
        partition = slot.partition
        if partition is not None and partition.resigned and slot.failure is None:
            slot.failure = NotLeader(f"{slot.name} has another leader, or a new leader epoch")
        if slot.failure is None and slot.refusal is None:
            if not slot.wanting:
                return
            if not self._is_ready(slot) and slot.greeted:
                return
        self._news[slot] = None
        if self._parked is not None and not self._woken and self._parked.timer is not None:
            # At the end of this turn of the loop: all its events go into one answer.
            self._woken = True
            self._loop.call_soon(self._wake)

    def _is_ready(self, slot: _Slot) -> bool:
        """Whether a read will not wait for the disk. Otherwise a thread reads ahead, and then the slot is news."""
        partition = slot.partition
        if slot.prepared is not None or partition is None or partition.log.end.address - slot.end <= FAR_BYTES:
            return True
        if not slot.preparing:
            slot.preparing = True
            self._runtime.spawn(self._prepare(slot, partition, slot.end))
        return False

    async def _prepare(self, slot: _Slot, partition: LedPartition, end: int) -> None:
        chunk: _Chunk | None = None
        try:
            chunk = await self._runtime.executors.run_at(
                partition.log.log_dir.path,
                Purpose.FOLLOWERS,
                self._read_one,
                slot,
                partition,
                end,
                slot.max_bytes,
                warm=True,
            )
        finally:
            slot.preparing = False
        if slot.partition is not partition or not slot.wanting:
            return
        if slot.end == end:
            slot.prepared = chunk
        if chunk is not None:
            self.happened(slot)

    def _wake(self) -> None:
        self._woken = False
        if self._parked is not None and self._enough():
            self._answer()

    def _waited(self) -> None:
        if self._parked is not None:
            self._answer()

    def _enough(self) -> bool:
        """Whether the fetch need not wait."""
        if not self._news:
            return False
        assert self._parked is not None
        min_bytes = self._parked.request.min_bytes
        if min_bytes <= 1:
            return True
        total = 0
        for slot in self._news:
            if slot.partition is None or slot.failure is not None or slot.refusal is not None or not slot.greeted:
                return True
            total += slot.partition.log.end.address - slot.end
        return total >= min_bytes

    def _unpark(self) -> None:
        if self._parked is not None and self._parked.timer is not None:
            self._parked.timer.cancel()
        self._parked = None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        news, self._news = self._news, {}
        assert self._parked is not None
        left = self._parked.request.max_bytes
        chunks: list[_Chunk] = []
        for slot in news:
            partition = slot.partition
            if not slot.wanting or partition is None or slot.failure is not None or not self._is_ready(slot):
                continue
            chunk = slot.prepared
            if chunk is None:
                chunk = self._read_one(slot, partition, slot.end, min(left, slot.max_bytes))
            elif chunks and chunk.size > left:
                continue
            if chunk is not None:
                chunks.append(chunk)
                left -= chunk.size
                if left <= 0:
                    break
        self._send(news, chunks)

    def _read_one(
        self, slot: _Slot, partition: LedPartition, end: int, max_bytes: int, *, warm: bool = False
    ) -> _Chunk | None:
        """Batches from ``end`` on, one at least; None without one, or if the read fails. Any thread."""
        try:
            first, ranges = partition.log.read_from(end, max(max_bytes, 1))
            if warm:
                partition.log.warm(ranges)
        except KlogError as error:
            if isinstance(error, StorageError):
                log.error("%s: cannot be read for broker %d: %s", slot.name, self.broker_id, error.message)
            self._loop.call_soon_threadsafe(slot.fail, error.bare())
            return None
        if not ranges:
            return None
        return _Chunk(slot, end, first, ranges, ranges[0].size if len(ranges) == 1 else sum(one.size for one in ranges))

    def _send(self, news: dict[_Slot, None], chunks: list[_Chunk]) -> None:
        """Answer the waiting fetch. The part of ``news`` that does not fit stays news."""
        parked = self._parked
        assert parked is not None
        self._unpark()
        parts: list[Part] = []
        out = bytearray(8)
        size = 0
        for chunk in chunks:
            slot, partition = chunk.slot, chunk.slot.partition
            if partition is None or slot.end != chunk.end or not slot.wanting or slot.failure is not None:
                continue
            inline = None
            if chunk.size <= INLINE_BYTES:
                try:
                    inline = _read_small(chunk)
                except StorageError as error:
                    slot.failure, slot.wanting = error.bare(), False
                    continue
            news.pop(slot, None)
            slot.prepared = None
            self._runtime.measures.replication_bytes_out += chunk.size
            slot.wanting, slot.greeted = False, True
            slot.expected = chunk.first + chunk.size
            out += self._head_of(slot, partition, chunk.first, chunk.size)
            if inline is not None:
                out += inline
            else:
                parts.append(bytes(out))
                size += len(out) + chunk.size
                parts.extend(chunk.ranges)
                out = bytearray()
        for slot in news:
            if self._slots.get(slot.number) is slot:
                self._tell(slot, out)
        now = self._loop.time()
        if now >= self._look_through_at_s:
            self._look_through_at_s = now + max(parked.request.max_wait_ms, 100) / 1000
            self._look_through(out)
        if out:
            parts.append(bytes(out))
            size += len(out)
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = replica_fetch.answer_head(size - 8, parked.head.correlation_id) + first[8:]
        parked.reply.send(*parts)

    def _tell(self, slot: _Slot, out: bytearray) -> None:
        """Write a slot's entries other than batches."""
        partition = slot.partition
        if slot.failure is not None or partition is None:
            error = slot.failure or NotLeader(f"this broker does not lead {slot.name}")
            out += replica_fetch.failed(slot.number, error.wire, error.message)
            slot.forget()
            del self._slots[slot.number]
        elif slot.refusal is not None:
            out += slot.refusal
            slot.refusal = None
        elif slot.wanting:
            if not slot.greeted:
                slot.greeted = True
                out += self._head_of(slot, partition, slot.end, 0)
            if partition.log.end.address > slot.end:
                self.happened(slot)

    def _head_of(self, slot: _Slot, partition: LedPartition, first: int, size: int) -> bytes:
        high = partition.high_watermark
        start = partition.log.start_offset
        slot.told_high, slot.told_start = high.address, start
        return replica_fetch.records_head(slot.number, high.address, high.offset, start, first, size)

    def _look_through(self, out: bytearray) -> None:
        """Write high watermarks and start offsets that have moved without other news."""
        for slot in self._slots.values():
            partition = slot.partition
            if partition is None or not slot.agreed or not slot.greeted:
                continue
            if partition.high_watermark.address != slot.told_high or partition.log.start_offset != slot.told_start:
                out += self._head_of(slot, partition, slot.end, 0)


def _read_range(one: Log, address: int, max_bytes: int) -> tuple[int, list[FileRange]]:
    """Blocks. Raises OffsetOutOfRange if no batch of the log begins at ``address``."""
    if one.floor(address).address != address and not one.is_in_hole(address):
        raise OffsetOutOfRange(f"{one.topic_partition}: no batch begins at {address}")
    first, ranges = one.read_from(address, max(max_bytes, 1))
    one.warm(ranges)
    return first, ranges


def _read_small(chunk: _Chunk) -> bytes:
    data = b"".join(file.read_at(position, size) for file, position, size in chunk.ranges)
    if len(data) != chunk.size:
        raise StorageError(f"{chunk.slot.name}: expected {chunk.size} bytes at {chunk.first}, read {len(data)}")
    return data
