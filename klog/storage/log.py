"""A partition's log: segment files of record batches, where the offset of a batch is its byte address.

A batch whose first byte lies at address A has base offset A, its records A, A + 1, ..., and the next batch starts at A
+ max(length, count). ``LogEnd`` has the end both ways; ``start_offset`` is the log start offset (rule L4).

What is read and looked up is in `log_reader`, what it is made of in `log_state`.

Concurrency: appends, rolls, truncation, deletion and ``reconfigure`` belong to one owner thread. Reads, look-ups and
flushes are for any thread, one flush of a log at a time; reads use a tuple of segments that is replaced, never changed.
Deletion blocks in single steps: ``plan_deletion`` or ``plan_records_deletion``, then make the new start durable
(`Checkpoints.keep_starts`, rule L4), ``apply_deletion``, ``unlink``.
Errors: StorageError once the log dir is offline, DiskFull while it is full (rule L5), and those of invalid batches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from klog.config.topic import LogConfig
from klog.errors import (
    CorruptLog,
    FencedLeaderEpoch,
    InvalidRecord,
    NoDescriptors,
    OffsetOutOfRange,
    StorageError,
)
from klog.names import TopicPartition
from klog.record.admission import Limits, RequestBudget, Unread, admit, check_headers, unpacked_bytes_max
from klog.record.batch import BatchHeader, check_crc, stamp, walk
from klog.storage import checksums, truncation
from klog.storage.accounting import Rebuilt, apply_batch, measure, summarize
from klog.storage.checkpoint import LogSummary
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.epochs import EpochStart
from klog.storage.log_end import LogEnd
from klog.storage.log_reader import LogReader
from klog.storage.lookup import Location
from klog.storage.producers import NO_PRODUCER, WrittenBatch
from klog.storage.recovery import Recovered, Recovery
from klog.storage.retention import Deletion, decide_deletion, is_expired
from klog.storage.segment import FileRange, Segment

__all__ = ["AppendResult", "FileRange", "Location", "Log", "LogEnd"]

_log = logging.getLogger(__name__)

NEVER: Final = 1 << 62
"""A flush rule that never flushes: Kafka's Long.MAX_VALUE, and anything near it."""
EPOCH_MAX: Final = 0x7FFFFFFF


class AppendResult(NamedTuple):
    """The place of an appended record set; of a duplicate, the place of the original, with which it is acknowledged."""

    base_offset: int
    end: LogEnd
    count: int  # type: ignore[assignment]  # hides tuple.count, which klog never calls
    duplicate: bool = False


class FlushMark(NamedTuple):
    """What a flush is to make durable."""

    generation: int
    end: LogEnd
    messages: int
    dirty: list[tuple[Segment, int]]


class Log(LogReader):
    """See the module. Made by ``Log.open``."""

    def __init__(
        self,
        name: TopicPartition,
        folder: str,
        log_dir: CheckpointedDir,
        found: Recovered,
        config: LogConfig,
    ) -> None:
        super().__init__(name, folder, log_dir, found, config)
        self.damages_at_open = found.fresh_damages
        """Damage that recovery found when the log was opened."""
        self.recovered_bytes = found.checked_bytes
        self.committed_at_open = 0
        """The high watermark in the checkpoint when the log was opened; 0 for a new one."""
        self.last_high_watermark: LogEnd | None = None
        """When the log was last led or followed; None if it was neither since it was opened."""
        self.nothing_lost = False
        """Whether it is known that no crash has lost unflushed bytes of the log (rule R1)."""
        self.flush_is_queued = False
        self.flush_is_scheduled = False
        self._flush_lock = threading.Lock()
        self._flushed_messages = 0
        self._is_counted_only = False
        """Whether `rebuild` has counted messages whose epochs and producers `adopt` has not added yet."""
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        log_dir: CheckpointedDir,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        saved: LogSummary | None = None,
        recovery_point: int = 0,
        start_offset: int | None = None,
        written: bool = False,
    ) -> Log:
        """Open and recover the log in the folder ``directory``; an empty one if the folder has no segment.

        ``saved``, ``recovery_point`` and ``start_offset``: from the checkpoints; without them the whole log is checked.
        ``written``: everything was synced (``FileSystem.sync_everything``) since the last process ended.
        """
        file_system, clock = log_dir.file_system, log_dir.clock_ms()
        try:
            recovery = Recovery(file_system, directory, log_dir.pool, clock, written=written)
            found = recovery.run(saved, recovery_point, start_offset)
        except CorruptLog as error:
            _log.warning("%s: checking the whole log, for below the recovery point %s", topic_partition, error)
            recovery = Recovery(file_system, directory, log_dir.pool, clock, written=written)
            found = recovery.run(None, 0, start_offset)
        return cls(topic_partition, directory, log_dir, found, config)

    # --- What it is ---

    @property
    def flushed_end(self) -> LogEnd:
        """The end of what is safe under the flush rule; the log end where the rule is never to flush."""
        return self.end if self.never_flushes else self.durable_end

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or the one begun since; -1 for none."""
        return self.epochs.last

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch, even if retention removed it; -1 if there never was one.

        Unlike ``last_epoch`` it ignores an epoch that has begun and has no batch yet.
        """
        end = self.end.address
        return next((one.epoch for one in reversed(self.epoch_starts) if one.address < end), -1)

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        return self.epochs.starts

    def epoch_end(self, leader_epoch: int) -> tuple[int, LogEnd]:
        """The largest epoch at or below ``leader_epoch``, and its end; see Epochs.end for the edges."""
        return self.epochs.end(leader_epoch, self.start_offset, self.end)

    def knows_epoch(self, leader_epoch: int) -> bool:
        """Whether `epoch_end` is final: segments without a checkpoint may have older epochs (`rebuild`)."""
        starts = self.epoch_starts
        return bool(starts and starts[0].epoch <= leader_epoch) or not self.needs_rebuild

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Addresses [first, end) between segments without a batch: recorded damage (rule L2)."""
        return checksums.holes(self.segments)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._limits = Limits(
            config.max_message_bytes,
            unpacked_bytes_max(config.max_message_bytes),
            None if config.timestamp_before_max_ms >= NEVER else config.timestamp_before_max_ms,
            config.timestamp_after_max_ms,
        )
        self.never_flushes = config.flush_messages >= NEVER and config.flush_ms >= NEVER

    # --- Appending (owner thread) ---

    def admit(self, records: memoryview, budget: RequestBudget) -> list[BatchHeader] | Unread:
        """Whether the topic takes a record set; see `admission.admit`."""
        return admit(records, self._limits, self.log_dir.clock_ms(), budget)

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        headers: list[BatchHeader] | None = None,
        *,
        repeats_expected: bool = False,
    ) -> AppendResult:
        """Append a record set as the leader: check, write addresses and epoch into it in place, write it once.

        ``headers``: as admitted (`admit`); without them they are checked here, and the records trusted.
        ``repeats_expected``: batches may just have been refused, so an unknown producer's repeated batch must not begin
        in the middle; at other times it may (rule L6).

        ``records`` is writable and changed. Raises what `admission.check_headers` raises, InvalidProducerEpoch,
        OutOfOrderSequence, FencedLeaderEpoch, DiskFull, StorageError; then nothing was appended.
        """
        log_dir = self.log_dir
        if log_dir.failure is not None or log_dir.is_full or self.is_closed:
            self._check_writable(len(records))
        if headers is None:
            headers = check_headers(records, self._limits.batch_bytes_max)
        header = headers[0]
        if leader_epoch != self.epochs.last:
            self._begin_epoch_checked(leader_epoch)
        if header.producer_id != NO_PRODUCER or len(headers) > 1:
            repeated = self._check_sequences(headers, repeats_expected)
            if repeated is not None:
                end = LogEnd(repeated.next_address, repeated.last_offset + 1)
                return AppendResult(repeated.base_offset, end, header.count, duplicate=True)
        segment = self.active
        address = base = self.end.address
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        if len(headers) == 1:
            stamp(records, 0, base, leader_epoch)
            self._write(segment, base, records)
            segment.appended(base, header)
            count = header.count
            if header.producer_id != NO_PRODUCER:
                self.producers.written(base, header)
        else:
            count, at = 0, 0
            places = []
            for header in headers:
                stamp(records, at, address, leader_epoch)
                places.append((address, at))
                at += header.size_bytes
                count += header.count
                address += header.span
            self._append_batches(segment, records, headers, places)
        end = self.end = LogEnd(segment.end_address, segment.end_offset)
        self.appended_messages += count
        log_dir.checkpoints.appended(self, len(headers), len(records))
        return AppendResult(base, end, count)

    def append_at(self, records: memoryview, leader_epoch: int = EPOCH_MAX) -> AppendResult:
        """Append as a follower: whole batches, byte for byte, at the leader's addresses.

        Raises CorruptBatch for an invalid one, CorruptLog where it does not follow on the log's end, goes back to an
        older epoch or has one above ``leader_epoch``; then nothing was appended.
        """
        self._check_writable(len(records))
        base = address = self.end.address
        epoch = self.epochs.last
        headers: list[BatchHeader] = []
        places: list[tuple[int, int]] = []
        count = 0
        for at, header in walk(records):
            check_crc(records, at, header)
            if header.base_offset != address or not epoch <= header.leader_epoch <= leader_epoch:
                raise CorruptLog(
                    f"{self.topic_partition}: the leader sent base offset {header.base_offset} in epoch"
                    f" {header.leader_epoch}, expected {address} in epoch {epoch} to {leader_epoch}"
                )
            headers.append(header)
            places.append((address, at))
            count += header.count
            address, epoch = address + header.span, header.leader_epoch
        if not headers:
            return AppendResult(base, self.end, 0)
        segment = self.active
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        self._append_batches(segment, records, headers, places)
        end = self.end = LogEnd(segment.end_address, segment.end_offset)
        self.appended_messages += count
        self.log_dir.checkpoints.appended(self, len(headers), len(records))
        return AppendResult(base, end, count)

    def begin_epoch(self, leader_epoch: int) -> None:
        """``leader_epoch`` leads from the log end on; recorded before its first batch (rule R8)."""
        if leader_epoch != self.epochs.last:
            self._begin_epoch_checked(leader_epoch)

    def _begin_epoch_checked(self, leader_epoch: int) -> None:
        if leader_epoch < self.epochs.last:
            raise FencedLeaderEpoch(
                f"{self.topic_partition}: epoch {leader_epoch} is below {self.epochs.last}, which is in the log"
            )
        self.epochs.begin(leader_epoch, self.end)

    def _check_sequences(self, headers: list[BatchHeader], repeats_expected: bool) -> WrittenBatch | None:
        """The batch that ``headers``, if a single one, repeats; None where all are new."""
        if len(headers) == 1:
            return self.producers.check(headers[0], may_begin_anywhere=not repeats_expected)
        if any(header.producer_id != NO_PRODUCER for header in headers):
            raise InvalidRecord(
                f"{self.topic_partition}: {len(headers)} batches in a record set of an idempotent producer, expected 1"
            )
        return None

    def _write(self, segment: Segment, address: int, data: memoryview) -> None:
        try:
            segment.file.write_at(address - segment.base_address, data)
        except StorageError as error:
            raise self._cut_back(segment, error) from error

    def _append_batches(
        self, segment: Segment, records: memoryview, headers: list[BatchHeader], places: list[tuple[int, int]]
    ) -> None:
        """Write each run of batches without a hole at once, nearly always one write, and account for them."""
        run_address, run_at = places[0]
        for address, at in places:
            if address - run_address != at - run_at:
                self._write(segment, run_address, records[run_at:at])
                run_address, run_at = address, at
        self._write(segment, run_address, records[run_at:])
        for header, (address, _) in zip(headers, places, strict=True):
            apply_batch(segment, address, header, self.epochs, self.producers)

    def _cut_back(self, segment: Segment, error: StorageError) -> StorageError:
        """After a failed write: truncate the file to its former end (rule L5). Returns the error to raise.

        It is not raised here: a frame that holds what it raises is a cycle, which would keep the file open, and its
        bytes on the full disk, until the next garbage collection.
        """
        try:
            segment.file.truncate(segment.size)
        except StorageError as worse:
            return self.log_dir.fail(worse)
        return self.log_dir.write_failed(error)

    def _roll(self) -> Segment:
        """Close the active segment and start the next at the log end."""
        segment = self.begin_segment(self.end.address)
        self.log_dir.checkpoints.rolled(self)
        return segment

    def _check_writable(self, size: int) -> None:
        self.check_open()
        if self.log_dir.is_full:
            self.log_dir.check_room(size)

    # --- Flushing (any thread) ---

    @property
    def wants_flush(self) -> bool:
        """Whether the flush rule by messages asks for a flush now."""
        return self.appended_messages - self._flushed_messages >= self.config.flush_messages

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would sync anything."""
        return bool(self._dirty())

    def _dirty(self) -> list[Segment]:
        """Segments with bytes or a name that are not durable yet, oldest first."""
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.flushed_size >= segment.size and segment.name_is_durable:
                break
            dirty.append(segment)
        return dirty[::-1]

    def flush(self) -> LogEnd:
        """Make all appends so far durable; returns the durable end. Blocks.

        A failed flush takes the dir offline and truncates the log to its durable end: the kernel may have marked the
        lost pages clean, so that a second attempt would succeed without them (rule L1).
        """
        return self.finish_flush(self.begin_flush())

    def begin_flush(self) -> FlushMark:
        """Note what to flush, and block other flushes of this log until ``finish_flush``, which must follow.

        For many logs at once: begin all, ``FileSystem.sync_everything``, finish all (rule L9).
        """
        self._flush_lock.acquire()
        try:
            self.check_open()
            with self.lock:
                dirty = [(segment, segment.size) for segment in self._dirty()]
                return FlushMark(self.generation, self.end, self.appended_messages, dirty)
        except BaseException:
            self._flush_lock.release()
            raise

    def finish_flush(self, mark: FlushMark, *, written: bool = False) -> LogEnd:
        """Flush; returns the durable end. ``written``: everything was synced since ``begin_flush``; only ask the kernel
        whether the write-back of these files failed."""
        try:
            try:
                for segment, size in mark.dirty:
                    # Oldest first, and names before bytes: the durable end never passes what is missing.
                    if not written and not segment.name_is_durable:
                        self.file_system.sync_folder(self.folder)
                    segment.name_is_durable = True
                    if segment.flushed_size < size:
                        try:
                            segment.sync(size, written=written)
                        except OffsetOutOfRange:
                            continue  # a truncation has removed it meanwhile, and moved the durable end
            except NoDescriptors:
                raise  # nothing was tried, so nothing is lost: the caller tries again
            except StorageError as error:
                failure = self.log_dir.fail(error)
                self._fall_back()
                raise failure.bare() from error
            with self.lock:
                if mark.generation == self.generation:
                    self.durable_end = mark.end
                    self._flushed_messages = mark.messages
                self.log_dir.pool.trim()  # files that had to stay open for this flush
                return self.durable_end
        finally:
            self._flush_lock.release()

    def _fall_back(self) -> None:
        """Truncate to the durable end, so that no page of the log is missing on the disk."""
        with self.lock:
            self.generation += 1
            self.end = durable = self.durable_end
        for segment in reversed(self.segments):
            try:
                segment.file.truncate(max(min(segment.size, durable.address - segment.base_address), 0))
            except StorageError as error:
                _log.warning("%s: %s", self.topic_partition, error)
            if segment.base_address <= durable.address:
                break

    # --- Rolling and deleting (owner thread) ---

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if it has messages and is older than ``segment.ms`` (less the jitter)."""
        active, config = self.active, self.config
        jitter_ms = crc32c(active.path.encode()) % config.segment_jitter_ms if config.segment_jitter_ms > 0 else 0
        if not active.size or now_ms - active.created_ms < config.segment_ms - jitter_ms:
            return False
        self._check_writable(0)
        self._roll()
        return True

    def plan_deletion(self, now_ms: int, *, limit_address: int | None = None, by_time: bool = True) -> Deletion | None:
        """Plan what retention removes now; ``limit_address``: the high watermark, ``by_time`` False while the clock is
        in doubt (rule L7).

        An expired active segment is rolled first, so that a log without new messages empties too.
        """
        self.check_open()
        config, active = self.config, self.active
        limit = self.end.address if limit_address is None else limit_address
        retention_ms = config.retention_ms if by_time and config.deletes else -1
        expired = retention_ms >= 0 and is_expired(active, now_ms, retention_ms) and active.max_timestamp_ms >= 0
        if expired and active.end_address <= limit and not self.log_dir.is_full:
            self._roll()
        return decide_deletion(
            self.segments,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=config.retention_bytes if config.deletes else -1,
            limit_address=limit,
        )

    def plan_records_deletion(self, offset: int) -> Deletion | None:
        """The deletion of everything below ``offset``; None if the log starts there already.

        Raises OffsetOutOfRange above the end.
        """
        self.check_open()
        if offset > self.end.offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside {self.start_offset} to {self.end.offset}"
            )
        if offset <= self.start_offset:
            return None
        gone = []
        for segment in self.segments[:-1]:
            if segment.count is None or segment.end_offset > offset:
                break
            gone.append(segment)
        return Deletion(tuple(gone), offset, "DeleteRecords")

    def apply_deletion(self, deletion: Deletion) -> None:
        """Stop serving the removed segments. The new start must be durable already."""
        self.start_offset = max(self.start_offset, deletion.start_offset)
        for segment in deletion.segments:
            segment.is_removed = True
        self.segments = tuple(segment for segment in self.segments if not segment.is_removed)
        self.epochs.forget_below(self.segments[0].base_address)

    def unlink(self, deletion: Deletion) -> None:
        """Remove the files of an applied deletion, oldest first (rule L3). Any thread."""
        try:
            for segment in deletion.segments:
                self.file_system.remove(segment.path)
                segment.close()
            self.file_system.sync_folder(self.folder)
        except StorageError as error:
            if self.is_closed:
                return  # the topic was deleted meanwhile: its folder has another name and is removed as a whole
            raise self.log_dir.fail(error) from error

    # --- Cutting (owner thread); each blocks ---

    def truncate(self, address: int, *, keep_truncated: bool = False) -> list[str]:
        """See `truncation.truncate`."""
        return truncation.truncate(self, address, keep_truncated=keep_truncated)

    def restart(self, address: int, start_offset: int, *, keep_truncated: bool = False) -> list[str]:
        """See `truncation.restart`."""
        return truncation.restart(self, address, start_offset, keep_truncated=keep_truncated)

    def skip_to(self, address: int, reason: str) -> None:
        """See `truncation.skip_to`."""
        truncation.skip_to(self, address, reason)

    def forget_empty_epochs(self) -> None:
        """Remove epochs without a batch: their leader no longer leads and never wrote in them."""
        self.epochs.truncate(self.end.address)

    # --- Counting what the checkpoint did not know ---

    @property
    def needs_rebuild(self) -> bool:
        """Whether segments without a checkpoint are still to be counted and adopted; until then an unknown producer may
        be in them."""
        return self._is_counted_only or any(segment.count is None for segment in self.segments)

    def rebuild(self, pause: Callable[[], object] = lambda: None) -> list[Rebuilt]:
        """Walk the segments without a checkpoint and fill in their counts. Blocks; any thread.

        ``adopt`` the result in the owner thread. ``pause`` is called every few milliseconds of work. Raises CorruptLog
        at damage: the counts below it stay unknown until the next start has checked the log.
        """
        self._is_counted_only = True  # first: the owner thread may see the last count before `adopt` is called
        found = []
        for segment in reversed(self.segments):
            if segment.count is None and not segment.is_removed:
                self.check_open()
                try:
                    found.append(measure(segment, pause))
                except CorruptLog:
                    # No count is better than a wrong one; the next start checks from here and records the hole.
                    self.log_dir.checkpoints.lower_recovery_point(self.topic_partition, segment.base_address)
                    raise
                except StorageError as error:
                    raise self.read_failed(error) from error
        return found

    def adopt(self, rebuilt: list[Rebuilt]) -> None:
        """Add the epochs and producers that ``rebuild`` found, newest segment first."""
        for one in rebuilt:
            self.epochs.prepend(one.epochs)
            self.producers.merge(one.producers)
        self._is_counted_only = False

    def forget_idle_producers(self, now_ms: int) -> None:
        """Remove producer ids that have been idle for ``producer.id.expiration.ms``."""
        self.producers.forget_idle(now_ms - self.config.producer_expiry_ms)

    def summary(self) -> LogSummary | None:
        """The state at the log end, for a checkpoint to be written once that is durable. Owner thread.

        None while `needs_rebuild`: a checkpoint would make unknown counts final.
        """
        if self.needs_rebuild:
            return None
        rows = [summarize(segment) for segment in self.segments]
        if any(row is None for row in rows):
            return None
        return LogSummary(
            tuple(row for row in rows if row is not None),
            # An epoch without a batch may never get one: after a crash, recovery must not judge batches by it.
            tuple(one for one in self.epochs.starts if one.address < self.end.address),
            self.producers.snapshot(),
        )

    # --- Closing ---

    def close(self) -> None:
        """Flush and close the files. Reads raise StorageError afterwards."""
        if self.is_closed:
            return
        try:
            if self.log_dir.failure is None:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without a flush; waits for one under way."""
        with self._flush_lock:
            self.is_closed = True
        for segment in self.segments:
            segment.close()
