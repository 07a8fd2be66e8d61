"""A partition's log: segment files of record batches, where the offset of a batch is its byte address.

A batch whose first byte lies at address A has base offset A, its records A, A + 1, ..., and the next batch starts at A
+ max(length, count). ``LogEnd`` has the end both ways; ``start_offset`` is the log start offset (rule L4).

Its parts share its `LogState`: ``reader`` for reads and look-ups, ``flushing`` for flushes, ``deletion`` for retention.

Concurrency: appends, rolls, truncation, deletion and ``reconfigure`` belong to one owner thread. Reads, look-ups and
flushes are for any thread; reads use a tuple of segments that is replaced, never changed. Blocking operations can be
done in steps: ``plan_deletion`` and `LogDeletion` instead of ``delete_old_segments``; ``flushing.begin_flush`` and
``finish_flush`` instead of ``flush``.
Errors: StorageError once the log dir is offline, DiskFull while it is full (rule L5), and those of invalid batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from klog.config.topic import LogConfig
from klog.errors import (
    CorruptLog,
    DiskFull,
    FencedLeaderEpoch,
    InvalidRecord,
    StorageError,
)
from klog.names import TopicPartition
from klog.record.admission import Limits, Unread, admit, check_headers, unpacked_bytes_max
from klog.record.batch import BatchHeader, check_crc, stamp, walk
from klog.storage import checksums, repair, truncation
from klog.storage.accounting import Rebuilt, apply_batch, measure, summarize
from klog.storage.checkpoint import LogSummary
from klog.storage.damage_record import DamageRecord
from klog.storage.epochs import EpochStart
from klog.storage.filesystem import FileSystem
from klog.storage.log_deletion import LogDeletion
from klog.storage.log_dir_context import LogDirContext, StandaloneLogDir
from klog.storage.log_end import LogEnd
from klog.storage.log_flush import LogFlush
from klog.storage.log_reader import LogReader
from klog.storage.log_state import AppendResult, LogState
from klog.storage.lookup import Location
from klog.storage.producers import NO_PRODUCER, WrittenBatch
from klog.storage.recovery import Recovered, Recovery
from klog.storage.repair import RangeRepair
from klog.storage.retention import Deletion, decide_deletion, is_expired
from klog.storage.segment import FileRange, Segment

__all__ = ["AppendResult", "FileRange", "Location", "Log", "LogEnd"]

_log = logging.getLogger(__name__)

NEVER: Final = 1 << 62
"""A flush rule that never flushes: Kafka's Long.MAX_VALUE, and anything near it."""
EPOCH_MAX: Final = 0x7FFFFFFF


class Log:
    """See the module. Made by ``Log.open``."""

    def __init__(self, state: LogState, config: LogConfig, found: Recovered) -> None:
        self._state = state
        self.reader = LogReader(state)
        self.flushing = LogFlush(state)
        self.deletion = LogDeletion(state)
        self.topic_partition = state.topic_partition
        self.folder = state.folder
        self.log_dir = state.log_dir
        self.damages_at_open = found.fresh_damages
        """Damage that recovery found when the log was opened."""
        self.recovered_bytes = found.checked_bytes
        self.committed_at_open = 0
        """The high watermark in the checkpoint when the log was opened; 0 for a new one."""
        self.nothing_lost = False
        """Whether it is known that no crash has lost unflushed bytes of the log (rule R1)."""
        self.flush_is_queued = False
        self.flush_is_scheduled = False
        self._is_counted_only = False
        """Whether `rebuild` has counted messages whose epochs and producers `adopt` has not added yet."""
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        log_dir: LogDirContext | None = None,
        saved: LogSummary | None = None,
        recovery_point: int = 0,
        start_offset: int | None = None,
        written: bool = False,
    ) -> Log:
        """Open and recover the log in the folder ``directory``; an empty one if the folder has no segment.

        ``saved``, ``recovery_point`` and ``start_offset``: from the checkpoints; without them the whole log is checked.
        ``written``: everything was synced (``FileSystem.sync_everything``) since the last process ended.
        """
        log_dir = log_dir or StandaloneLogDir(file_system, directory)
        clock = log_dir.clock_ms()
        try:
            recovery = Recovery(file_system, directory, log_dir.pool, clock, written=written)
            found = recovery.run(saved, recovery_point, start_offset)
        except CorruptLog as error:
            _log.warning("%s: checking the whole log, for below the recovery point %s", topic_partition, error)
            recovery = Recovery(file_system, directory, log_dir.pool, clock, written=written)
            found = recovery.run(None, 0, start_offset)
        return cls(LogState(topic_partition, directory, log_dir, file_system, found), config, found)

    # --- What it is ---

    @property
    def start_offset(self) -> int:
        """The log start offset: the first offset visible to consumers (rule L4)."""
        return self._state.start_offset

    @property
    def start_address(self) -> int:
        """The first segment's base address."""
        return self._state.start_address

    @property
    def end(self) -> LogEnd:
        return self._state.end

    @property
    def flushed_end(self) -> LogEnd:
        """The end of what is safe under the flush rule; the log end where the rule is never to flush."""
        return self._state.end if self.never_flushes else self._state.durable_end

    @property
    def durable_end(self) -> LogEnd:
        """The end of what is on the disk, whatever the rule."""
        return self._state.durable_end

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or the one begun since; -1 for none."""
        return self._state.epochs.last

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch, even if retention removed it; -1 if there never was one.

        Unlike ``last_epoch`` it ignores an epoch that has begun and has no batch yet.
        """
        end = self.end.address
        return next((one.epoch for one in reversed(self.epoch_starts) if one.address < end), -1)

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        return self._state.epochs.starts

    def epoch_end(self, leader_epoch: int) -> tuple[int, LogEnd]:
        """The largest epoch at or below ``leader_epoch``, and its end; see Epochs.end for the edges."""
        return self._state.epochs.end(leader_epoch, self.start_offset, self.end)

    def knows_epoch(self, leader_epoch: int) -> bool:
        """Whether `epoch_end` is final: segments without a checkpoint may have older epochs (`rebuild`)."""
        starts = self.epoch_starts
        return bool(starts and starts[0].epoch <= leader_epoch) or not self.needs_rebuild

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._state.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    @property
    def damages(self) -> tuple[DamageRecord, ...]:
        return self._state.damages

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Addresses [first, end) between segments without a batch: recorded damage (rule L2)."""
        return checksums.holes(self._state.segments)

    def floor(self, address: int) -> LogEnd:
        """See `LogReader.floor`."""
        return self.reader.floor(address)

    def is_in_hole(self, address: int) -> bool:
        """See `LogReader.is_in_hole`."""
        return self.reader.is_in_hole(address)

    @property
    def generation(self) -> int:
        """How often the log was truncated since it was opened."""
        return self._state.generation

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed

    @property
    def config(self) -> LogConfig:
        return self._config

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._limits = Limits(
            config.max_message_bytes,
            unpacked_bytes_max(config.max_message_bytes),
            None if config.timestamp_before_max_ms >= NEVER else config.timestamp_before_max_ms,
            config.timestamp_after_max_ms,
        )
        self._state.unpacked_bytes_max = self._limits.unpacked_bytes_max
        self.never_flushes = config.flush_messages >= NEVER and config.flush_ms >= NEVER

    @property
    def wants_flush(self) -> bool:
        """Whether the flush rule by messages asks for a flush now."""
        return self.flushing.unflushed_messages >= self._config.flush_messages

    @property
    def is_dirty(self) -> bool:
        """See `LogFlush.is_dirty`."""
        return self.flushing.is_dirty

    def flush(self) -> LogEnd:
        """See `LogFlush.flush`."""
        return self.flushing.flush()

    # --- Appending (owner thread) ---

    def admit(self, records: memoryview) -> list[BatchHeader] | Unread:
        """Whether the topic takes a record set; see `admission.admit`."""
        return admit(records, self._limits, self._state.log_dir.clock_ms())

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
        ``repeats_expected``: batches may just have been refused, so an unknown producer's repeated
        batch must not begin in the middle; at other times it may (rule L6).

        ``records`` is writable and changed. Raises what `admission.check_headers` raises, InvalidProducerEpoch,
        OutOfOrderSequence, FencedLeaderEpoch, DiskFull, StorageError; then nothing was appended.
        """
        state = self._state
        log_dir = state.log_dir
        if log_dir.failure is not None or log_dir.is_full or state.is_closed:
            self._check_writable(len(records))
        if headers is None:
            headers = check_headers(records, self._limits.batch_bytes_max)
        header = headers[0]
        if leader_epoch != state.epochs.last:
            self._begin_epoch_checked(leader_epoch)
        if header.producer_id != NO_PRODUCER or len(headers) > 1:
            repeated = self._check_sequences(headers, repeats_expected)
            if repeated is not None:
                return AppendResult(
                    repeated.base_offset,
                    repeated.last_offset,
                    LogEnd(repeated.next_address, repeated.last_offset + 1),
                    header.count,
                    True,
                    -1,
                )
        segment = state.active
        address = base = state.end.address
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        if len(headers) == 1:
            stamp(records, 0, base, leader_epoch)
            self._write(segment, base, records)
            segment.appended(base, header)
            count = header.count
            if header.producer_id != NO_PRODUCER:
                state.producers.written(base, header)
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
                apply_batch(segment, address, header, state.epochs, state.producers)
        end = state.end = LogEnd(segment.end_address, segment.end_offset)
        state.appended_messages += count
        log_dir.appended(self, len(headers), len(records))
        return AppendResult(base, end.offset - 1, end, count, False, -1)

    def append_at(self, records: memoryview, leader_epoch: int = EPOCH_MAX) -> AppendResult:
        """Append as a follower: whole batches, byte for byte, at the leader's addresses.

        Raises CorruptBatch for an invalid one, CorruptLog where it does not follow on the log's end, goes back to an
        older epoch or has one above ``leader_epoch``; then nothing was appended.
        """
        state = self._state
        self._check_writable(len(records))
        base = address = state.end.address
        epoch = state.epochs.last
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
            return AppendResult(base, state.end.offset - 1, state.end, 0, False, -1)
        segment = state.active
        if segment.size and base - segment.base_address + len(records) > self._segment_bytes:
            segment = self._roll()
        self._write_batches(segment, records, headers, places)
        for header, (address, _) in zip(headers, places, strict=True):
            apply_batch(segment, address, header, state.epochs, state.producers)
        end = state.end = LogEnd(segment.end_address, segment.end_offset)
        state.appended_messages += count
        state.log_dir.appended(self, len(headers), len(records))
        return AppendResult(base, end.offset - 1, end, count, False, -1)

    def begin_epoch(self, leader_epoch: int) -> None:
        """``leader_epoch`` leads from the log end on; recorded before its first batch (rule R8)."""
        if leader_epoch != self._state.epochs.last:
            self._begin_epoch_checked(leader_epoch)

    def _begin_epoch_checked(self, leader_epoch: int) -> None:
        state = self._state
        if leader_epoch < state.epochs.last:
            raise FencedLeaderEpoch(
                f"{self.topic_partition}: epoch {leader_epoch} is below {state.epochs.last}, which is in the log"
            )
        state.epochs.begin(leader_epoch, state.end)

    def _check_sequences(self, headers: list[BatchHeader], repeats_expected: bool) -> WrittenBatch | None:
        """The batch that ``headers``, if a single one, repeats; None where all are new."""
        if len(headers) == 1:
            return self._state.producers.check(headers[0], may_begin_anywhere=not repeats_expected)
        if any(header.producer_id != NO_PRODUCER for header in headers):
            raise InvalidRecord(
                f"{self.topic_partition}: {len(headers)} batches in a record set of an idempotent producer, expected 1"
            )
        return None

    def _write(self, segment: Segment, address: int, data: memoryview) -> None:
        try:
            segment.file.write_at(address - segment.base_address, data)
        except StorageError as error:
            failure = self._cut_back(segment, error)
            if failure is not None:
                raise failure.bare() from error
            raise

    def _write_batches(
        self, segment: Segment, records: memoryview, headers: list[BatchHeader], places: list[tuple[int, int]]
    ) -> None:
        """Write each run of batches without a hole at once: nearly always one write."""
        run_address, run_at = places[0]
        try:
            for (address, at), header in zip(places, headers, strict=True):
                if address - run_address != at - run_at:
                    segment.file.write_at(run_address - segment.base_address, records[run_at:at])
                    run_address, run_at = address, at
                end = at + header.size_bytes
            segment.file.write_at(run_address - segment.base_address, records[run_at:end])
        except StorageError as error:
            failure = self._cut_back(segment, error)
            if failure is not None:
                raise failure.bare() from error
            raise

    def _cut_back(self, segment: Segment, error: StorageError) -> StorageError | None:
        """After a failed write: truncate the file to its former end (rule L5). Returns the dir's failure; None if it is
        full.

        The error is not raised here: a frame that holds what it raises is a cycle, which would keep the file open, and
        its bytes on the full disk, until the next garbage collection.
        """
        state = self._state
        try:
            segment.file.truncate(segment.size)
        except StorageError as worse:
            return state.log_dir.fail(worse)
        if isinstance(error, DiskFull):
            state.log_dir.filled(error)
            return None
        return state.log_dir.fail(error)

    def _roll(self) -> Segment:
        """Close the active segment and start the next at the log end."""
        state = self._state
        segment = state.begin_segment(state.end.address)
        state.log_dir.rolled(self)
        return segment

    def _check_writable(self, size: int) -> None:
        state = self._state
        state.check_open()
        if state.log_dir.is_full:
            state.log_dir.check_room(size)

    # --- Rolling and deleting (owner thread) ---

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if it has messages and is older than ``segment.ms`` (less the jitter)."""
        active, config = self._state.active, self._config
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
        state = self._state
        state.check_open()
        config, active = self._config, state.active
        limit = state.end.address if limit_address is None else limit_address
        retention_ms = config.retention_ms if by_time and config.deletes else -1
        expired = retention_ms >= 0 and is_expired(active, now_ms, retention_ms) and active.max_timestamp_ms >= 0
        if expired and active.end_address <= limit and not state.log_dir.is_full:
            self._roll()
        return decide_deletion(
            state.segments,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=config.retention_bytes if config.deletes else -1,
            limit_address=limit,
        )

    def delete_old_segments(self, now_ms: int, limit_address: int | None = None) -> int:
        """Apply retention; returns the number of removed segments. Blocks for the checkpoint and the files."""
        deletion = self.plan_deletion(now_ms, limit_address=limit_address)
        if deletion is None:
            return 0
        self.deletion.run(deletion)
        return len(deletion.segments)

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to ``offset`` and remove segments below it. Returns the log start offset.

        Raises OffsetOutOfRange above the end. Blocks; `LogDeletion` does it in steps.
        """
        deletion = self.deletion.plan_records(offset)
        if deletion is not None:
            self.deletion.run(deletion)
        return self._state.start_offset

    # --- Cutting and repairing (owner thread); each blocks ---

    def truncate(self, address: int, *, keep_truncated: bool = False) -> list[str]:
        """See `truncation.truncate`."""
        return truncation.truncate(self._state, address, keep_truncated=keep_truncated)

    def restart(self, address: int, start_offset: int, *, keep_truncated: bool = False) -> list[str]:
        """See `truncation.restart`."""
        return truncation.restart(self._state, address, start_offset, keep_truncated=keep_truncated)

    def skip_to(self, address: int, reason: str) -> None:
        """See `truncation.skip_to`."""
        truncation.skip_to(self._state, address, reason)

    def forget_empty_epochs(self) -> None:
        """Remove epochs without a batch: their leader no longer leads and never wrote in them."""
        self._state.epochs.truncate(self.end.address)

    def begin_repair(self, first: int, end: int) -> RangeRepair:
        """See `repair.RangeRepair`."""
        return RangeRepair(self._state, first, end)

    def forget_repaired_damages(self) -> None:
        """See `repair.forget_repaired_damages`."""
        repair.forget_repaired_damages(self._state)

    # --- Counting what the checkpoint did not know ---

    @property
    def needs_rebuild(self) -> bool:
        """Whether segments without a checkpoint are still to be counted and adopted; until then an unknown producer may
        be in them."""
        return self._is_counted_only or any(segment.count is None for segment in self._state.segments)

    def rebuild(self, pause: Callable[[], object] = lambda: None) -> list[Rebuilt]:
        """Walk the segments without a checkpoint and fill in their counts. Blocks; any thread.

        ``adopt`` the result in the owner thread. ``pause`` is called every few milliseconds of work. Raises CorruptLog
        at damage: the counts below it stay unknown until the next start has checked the log.
        """
        state = self._state
        self._is_counted_only = True  # first: the owner thread may see the last count before `adopt` is called
        found = []
        for segment in reversed(state.segments):
            if segment.count is None and not segment.is_removed:
                state.check_open()
                try:
                    found.append(measure(segment, pause))
                except CorruptLog:
                    # No count is better than a wrong one; the next start checks from here and records the hole.
                    state.log_dir.lower_recovery_point(self.topic_partition, segment.base_address)
                    raise
                except StorageError as error:
                    raise state.read_failed(error) from error
        return found

    def adopt(self, rebuilt: list[Rebuilt]) -> None:
        """Add the epochs and producers that ``rebuild`` found, newest segment first."""
        for one in rebuilt:
            self._state.epochs.prepend(one.epochs)
            self._state.producers.merge(one.producers)
        self._is_counted_only = False

    def forget_idle_producers(self, now_ms: int) -> None:
        """Remove producer ids that have been idle for ``producer.id.expiration.ms``."""
        self._state.producers.forget_idle(now_ms - self._config.producer_expiry_ms)

    def summary(self) -> LogSummary | None:
        """The state at the log end, for a checkpoint to be written once that is durable. Owner thread.

        None while `needs_rebuild`: a checkpoint would make unknown counts final.
        """
        if self.needs_rebuild:
            return None
        state = self._state
        rows = [summarize(segment) for segment in state.segments]
        if any(row is None for row in rows):
            return None
        return LogSummary(
            tuple(row for row in rows if row is not None),
            # An epoch without a batch may never get one: after a crash, recovery must not judge batches by it.
            tuple(one for one in state.epochs.starts if one.address < state.end.address),
            state.producers.snapshot(),
        )

    # --- Closing ---

    def close(self) -> None:
        """Flush and close the files. Reads raise StorageError afterwards."""
        if self._state.is_closed:
            return
        try:
            if self._state.log_dir.failure is None:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without a flush; waits for one under way."""
        self.flushing.close()
        for segment in self._state.segments:
            segment.close()
