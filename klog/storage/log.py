"""One partition's log: segment files of record batches, where the offset of a batch is its byte address.

A batch whose first byte lies at address A has base offset A, its records A, A + 1, ..., and the next batch starts at
A + max(length, count). ``LogEnd`` has the end both ways; ``start_offset`` is the start shown (rule L4).

Concurrency: appends, rolls, truncation, deletion and ``reconfigure`` belong to one owner thread. Reads and lookups
are for any thread: they work on a tuple of segments that is replaced, never changed. ``flush`` is for any thread,
one at a time by its own lock.
Errors: StorageError once the log dir is offline, DiskFull while it is full (rule L5), and what a bad batch deserves.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, DiskFull, FencedLeaderEpoch, InvalidRecord, OffsetOutOfRange, StorageError
from klog.names import TopicPartition
from klog.record.batch import BatchHeader, check_crc, check_produced, stamp, walk
from klog.storage import lookup
from klog.storage.checkpoint import LogSummary
from klog.storage.epochs import EpochStart
from klog.storage.filesystem import FileSystem
from klog.storage.home import Alone, Home
from klog.storage.log_end import LogEnd
from klog.storage.lookup import Location
from klog.storage.producers import NO_PRODUCER, WrittenBatch
from klog.storage.recovery import Recovered, Recovery, summarize, take_in
from klog.storage.segment import FileRange, Segment

__all__ = ["AppendResult", "FileRange", "Location", "Log", "LogEnd"]

_log = logging.getLogger(__name__)

NEVER: Final = 1 << 62
"""Kafka's Long.MAX_VALUE and whatever comes near it: a flush rule that never asks."""
_base_address = attrgetter("base_address")


class AppendResult(NamedTuple):
    """Where a record set went. For a duplicate, where it went the first time: it is acknowledged when that is."""

    base_offset: int
    last_offset: int
    end: LogEnd
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of it
    duplicate: bool
    log_append_time_ms: int


class Log:
    """See the module. Made by ``Log.open``."""

    def __init__(
        self,
        name: TopicPartition,
        folder: str,
        config: LogConfig,
        home: Home,
        file_system: FileSystem,
        found: Recovered,
        now_ms: int,
    ) -> None:
        self.topic_partition = name
        self.folder = folder
        self._file_system = file_system
        self._home = home
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._generation = 0
        self._closed = False
        self._now_ms = now_ms
        self._segments = found.segments
        self._active = found.segments[-1]
        self._epochs = found.epochs
        self._producers = found.producers
        self._end = self._durable = found.end
        self._start_offset = found.start_offset
        self._appended_messages = self._flushed_messages = 0
        self.damages = found.damages
        self.recovered_bytes = found.checked_bytes
        self.flush_is_queued = False
        self.flush_is_scheduled = False
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        home: Home | None = None,
        saved: LogSummary | None = None,
        recovery_point: int = 0,
        start_offset: int | None = None,
        now_ms: int = 0,
    ) -> Log:
        """The log in the folder ``directory``, recovered; an empty one where the folder has no segment.

        ``saved``, ``recovery_point`` and ``start_offset`` are the checkpoints'; without them the whole log is checked.
        """
        home = home or Alone(file_system, directory)
        found = Recovery(file_system, directory, home.pool, now_ms).run(saved, recovery_point, start_offset)
        return cls(topic_partition, directory, config, home, file_system, found, now_ms)

    # --- What it is ---

    @property
    def config(self) -> LogConfig:
        return self._config

    def reconfigure(self, config: LogConfig) -> None:
        """Go by other settings from now on."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._max_message_bytes = config.max_message_bytes
        self.never_flushes = config.flush_messages >= NEVER and config.flush_ms >= NEVER

    @property
    def start_offset(self) -> int:
        """The start shown to consumers: positions from here on are in range (rule L4)."""
        return self._start_offset

    @property
    def start_address(self) -> int:
        """Where the first segment begins."""
        return self._segments[0].base_address

    @property
    def end(self) -> LogEnd:
        return self._end

    @property
    def flushed_end(self) -> LogEnd:
        """What is safe under the flush rule; all of it where the rule is never to flush."""
        return self._end if self.never_flushes else self._durable

    @property
    def durable_end(self) -> LogEnd:
        """What is on the disk, whatever the rule."""
        return self._durable

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or the one begun since; -1 where there is none."""
        return self._epochs.last

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def home(self) -> Home:
        return self._home

    # --- Appending (owner thread) ---

    def append(self, records: memoryview, leader_epoch: int) -> AppendResult:
        """Append a record set the leader's way: check, stamp addresses and epoch in place, write once.

        ``records`` is writable and changed. Raises what ``check_produced`` raises, InvalidProducerEpoch,
        OutOfOrderSequence, FencedLeaderEpoch, DiskFull, StorageError; then nothing was appended.
        """
        home = self._home
        if home.failure is not None or home.is_full or self._closed:
            self._check_writable(len(records))
        headers = check_produced(records, self._max_message_bytes)
        header = headers[0]
        if leader_epoch != self._epochs.last:
            self._begin_epoch_checked(leader_epoch)
        if header.producer_id != NO_PRODUCER or len(headers) > 1:
            repeated = self._check_sequences(headers)
            if repeated is not None:
                return AppendResult(
                    repeated.base_offset,
                    repeated.last_offset,
                    LogEnd(repeated.next_address, repeated.last_offset + 1),
                    header.count,
                    True,
                    -1,
                )
        segment = self._active
        address = base = self._end.address
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        if len(headers) == 1:
            stamp(records, 0, base, leader_epoch)
            self._write(segment, base, records)
            segment.appended(base, header)
            count = header.count
            if header.producer_id != NO_PRODUCER:
                self._producers.written(base, header)
        else:
            count, at = 0, 0
            places = []
            for header in headers:
                stamp(records, at, address, leader_epoch)
                places.append((address, at))
                at += header.size_bytes
                count += header.count
                address += header.span
            self._write_batches(segment, records, headers, places)
            for header, (address, _) in zip(headers, places, strict=True):
                take_in(segment, address, header, self._epochs, self._producers)
        end = self._end = LogEnd(segment.end_address, segment.end_offset)
        self._appended_messages += count
        home.appended(self, len(headers), len(records))
        return AppendResult(base, end.offset - 1, end, count, False, -1)

    def append_at(self, records: memoryview) -> AppendResult:
        """Append a follower's way: whole batches, byte for byte, at the addresses that the leader gave them.

        Raises CorruptBatch for one that does not check, CorruptLog where it does not follow on the log's end or goes
        back to an older epoch; then nothing was appended.
        """
        self._check_writable(len(records))
        base = address = self._end.address
        epoch = self._epochs.last
        headers: list[BatchHeader] = []
        places: list[tuple[int, int]] = []
        count = 0
        for at, header in walk(records):
            check_crc(records, at, header)
            if header.base_offset != address or header.leader_epoch < epoch:
                raise CorruptLog(
                    f"{self.topic_partition}: the leader sent base offset {header.base_offset} in epoch"
                    f" {header.leader_epoch}, expected {address} in epoch {epoch} or later"
                )
            headers.append(header)
            places.append((address, at))
            count += header.count
            address, epoch = address + header.span, header.leader_epoch
        if not headers:
            return AppendResult(base, self._end.offset - 1, self._end, 0, False, -1)
        segment = self._active
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        self._write_batches(segment, records, headers, places)
        for header, (address, _) in zip(headers, places, strict=True):
            take_in(segment, address, header, self._epochs, self._producers)
        end = self._end = LogEnd(segment.end_address, segment.end_offset)
        self._appended_messages += count
        self._home.appended(self, len(headers), len(records))
        return AppendResult(base, end.offset - 1, end, count, False, -1)

    def begin_epoch(self, leader_epoch: int) -> None:
        """``leader_epoch`` leads from the end on, known before its first batch (rule R8)."""
        if leader_epoch != self._epochs.last:
            self._begin_epoch_checked(leader_epoch)

    def _begin_epoch_checked(self, leader_epoch: int) -> None:
        if leader_epoch < self._epochs.last:
            raise FencedLeaderEpoch(
                f"{self.topic_partition}: epoch {leader_epoch} is below {self._epochs.last}, which is in the log"
            )
        self._epochs.begin(leader_epoch, self._end)

    def _check_sequences(self, headers: list[BatchHeader]) -> WrittenBatch | None:
        """The batch that a single one repeats, None where all are new."""
        if len(headers) == 1:
            return self._producers.check(headers[0])
        if any(header.producer_id != NO_PRODUCER for header in headers):
            raise InvalidRecord(
                f"{self.topic_partition}: {len(headers)} batches in a record set of an idempotent producer, expected 1"
            )
        return None

    def _write(self, segment: Segment, address: int, data: memoryview) -> None:
        try:
            segment.file.write_at(address - segment.base_address, data)
        except StorageError as error:
            self._cut_back(segment, error)

    def _write_batches(
        self, segment: Segment, records: memoryview, headers: list[BatchHeader], places: list[tuple[int, int]]
    ) -> None:
        """One write for every run of batches without a hole between them: nearly always one."""
        run_address, run_at = places[0]
        try:
            for (address, at), header in zip(places, headers, strict=True):
                if address - run_address != at - run_at:
                    segment.file.write_at(run_address - segment.base_address, records[run_at:at])
                    run_address, run_at = address, at
                end = at + header.size_bytes
            segment.file.write_at(run_address - segment.base_address, records[run_at:end])
        except StorageError as error:
            self._cut_back(segment, error)

    def _cut_back(self, segment: Segment, error: StorageError) -> None:
        """After a failed write: remove what part of it is there, then say so (rule L5)."""
        try:
            segment.file.truncate(segment.size)
        except StorageError as worse:
            raise self._home.fail(worse) from error
        if isinstance(error, DiskFull):
            self._home.filled(error)
            raise error
        raise self._home.fail(error) from error

    def _roll(self) -> Segment:
        """Close the active segment and begin the next at the log's end."""
        old = self._active
        segment = Segment(self._file_system, self.folder, self._end.address, self._home.pool)
        try:
            segment.create()
        except DiskFull as error:
            self._home.filled(error)
            raise
        except StorageError as error:
            raise self._home.fail(error) from error
        segment.created_ms = segment.modified_ms = self._now_ms
        old.modified_ms = self._now_ms
        old.index.close()
        segment.end_offset = segment.base_address
        self._segments = (*self._segments, segment)
        self._active = segment
        self._home.rolled(self)
        return segment

    def _check_writable(self, size: int) -> None:
        self._check_open()
        if self._home.is_full:
            self._home.check_room(size)

    def _check_open(self) -> None:
        if self._home.failure is not None:
            raise self._home.failure
        if self._closed:
            raise StorageError(f"the log of {self.topic_partition} is closed")

    # --- Reading (any thread) ---

    def check_offset(self, offset: int) -> None:
        """OffsetOutOfRange unless ``offset`` can be read from: at or after the start, at or before the end address."""
        if offset < self._start_offset or offset > self._end.address:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside {self._start_offset} to {self._end.offset}"
            )

    def read(self, offset: int, max_bytes: int, limit_address: int, at_least_one: bool = True) -> list[FileRange]:
        """Whole batches from the first that has a record at or after ``offset``, none beyond ``limit_address``.

        Of one segment, ``max_bytes`` at most, but the first batch whole where ``at_least_one`` is set. Empty where
        nothing follows below the limit. Raises OffsetOutOfRange, StorageError.
        """
        if self._home.failure is not None or self._closed:
            self._check_open()
        end = self._end
        if offset < self._start_offset or offset > end.address:
            self.check_offset(offset)
        if offset >= end.offset:
            return []
        segments = self._segments
        at = len(segments) - 1
        if offset < segments[at].base_address:
            at = max(bisect_right(segments, offset, key=_base_address) - 1, 0)
        try:
            while at < len(segments):
                segment = segments[at]
                if segment.base_address >= limit_address:
                    return []
                start = segment.find(offset)
                if start is not None:
                    if start >= limit_address:
                        return []
                    return segment.ranges(start, max_bytes, limit_address, at_least_one=at_least_one)
                at += 1
        except StorageError as error:
            raise self._read_failed(error) from error
        return []

    def is_known(self, offset: int, walk_bytes: int = 1 << 20) -> bool:
        """Whether ``read`` finds its batch without a long walk through a file; where not, read in a thread."""
        if offset >= self._end.offset:
            return True
        segments = self._segments
        segment = segments[max(bisect_right(segments, offset, key=_base_address) - 1, 0)]
        return offset <= segment.base_address or segment.index.distance(offset) <= walk_bytes

    def is_resident(self, ranges: list[FileRange]) -> bool:
        """Whether the page cache has these bytes, so that sendfile will not wait for the disk (rule L8)."""
        return all(file.is_resident(position, size) for file, position, size in ranges)

    def warm(self, ranges: list[FileRange]) -> None:
        """Read these bytes into the page cache. Blocks: for a thread."""
        try:
            for file, position, size in ranges:
                file.warm(position, size)
        except StorageError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: StorageError) -> StorageError:
        """A disk that cannot read takes the dir offline; bytes that are no log are one log's trouble."""
        if isinstance(error, CorruptLog):
            return error
        return self._home.fail(error)

    # --- Looking up (any thread) ---

    def count(self, from_offset: int, to_offset: int) -> int | None:
        """Messages with from_offset <= offset < to_offset, exactly; None while a segment between is not counted yet."""
        return lookup.count(self._segments, max(from_offset, self._start_offset), to_offset)

    def nth(self, n: int, from_offset: int) -> int | None:
        """The offset of message ``n`` (from 0) at or after ``from_offset``; the end where there are fewer, None while
        a segment between is not counted yet."""
        return lookup.nth(self._segments, self._end, n, max(from_offset, self._start_offset))

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at or after ``timestamp_ms``; None without one."""
        return lookup.offset_for_time(self._segments, self._start_offset, timestamp_ms)

    def max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None without one."""
        return lookup.max_timestamp(self._segments, self._start_offset)

    def locate(self, offset: int) -> Location:
        """Where the batch lies that a fetch at ``offset`` begins with. Raises OffsetOutOfRange where there is none."""
        self.check_offset(offset)
        return lookup.locate(self._segments, offset)

    def epoch_end(self, leader_epoch: int) -> tuple[int, LogEnd]:
        """The largest epoch at or below the asked one, and where it ended; see Epochs.end for the edges."""
        return self._epochs.end(leader_epoch, self._start_offset, self._end)

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        return self._epochs.starts

    # --- Flushing (any thread, one at a time) ---

    @property
    def unflushed_messages(self) -> int:
        return self._appended_messages - self._flushed_messages

    @property
    def wants_flush(self) -> bool:
        """Whether the rule by count asks for a flush now."""
        return self.unflushed_messages >= self._config.flush_messages

    def dirty_files(self) -> int:
        """How many files a flush would flush."""
        dirty = 0
        for segment in reversed(self._segments):
            if segment.flushed_size >= segment.size and segment.name_is_durable:
                break
            dirty += 1
        return dirty

    def flush(self) -> LogEnd:
        """Make everything that is appended now last, and return the durable end. Blocks.

        A failed flush takes the dir offline and the log back to its durable end: the kernel may have marked the lost
        pages clean, so trying again would succeed without them (rule L1).
        """
        with self._flush_lock:
            self._check_open()
            with self._lock:
                generation, end, messages = self._generation, self._end, self._appended_messages
                dirty: list[Segment] = []
                for segment in reversed(self._segments):
                    if segment.flushed_size >= segment.size and segment.name_is_durable:
                        break
                    dirty.append(segment)
            try:
                # Oldest first, and the name before the bytes behind it: the durable end never passes what is not there.
                for segment in reversed(dirty):
                    if not segment.name_is_durable:
                        self._file_system.sync_folder(self.folder)
                        segment.name_is_durable = True
                    if segment.flushed_size < segment.size:
                        segment.sync()
            except StorageError as error:
                failure = self._home.fail(error)
                self._fall_back()
                raise failure from error
            with self._lock:
                if generation == self._generation:
                    self._durable = end
                    self._flushed_messages = messages
                return self._durable

    def _fall_back(self) -> None:
        """Back to the durable end, so that no page that never reached the disk is taken for one that did."""
        with self._lock:
            self._generation += 1
            self._end = durable = self._durable
        for segment in reversed(self._segments):
            try:
                segment.file.truncate(max(min(segment.size, durable.address - segment.base_address), 0))
            except StorageError as error:
                _log.warning("%s: %s", self.topic_partition, error)
            if segment.base_address <= durable.address:
                break

    def summary(self) -> LogSummary | None:
        """The state at the end, for the checkpoint: to be kept when that is durable. None while counts are unknown.

        Owner thread.
        """
        rows = [summarize(segment) for segment in self._segments]
        if any(row is None for row in rows):
            return None
        return LogSummary(
            tuple(row for row in rows if row is not None), self._epochs.starts, self._producers.snapshot()
        )

    # --- Closing ---

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Flush and let go of the files. The log answers nothing afterwards."""
        if self._closed:
            return
        try:
            if self._home.failure is None:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files without a flush."""
        self._closed = True
        for segment in self._segments:
            segment.close()
