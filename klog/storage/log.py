"""One partition's log: segment files of record batches, where the offset of a batch is its byte address.

A batch whose first byte lies at address A has base offset A, its records A, A + 1, ..., and the next batch starts at
A + max(length, count). ``LogEnd`` has the end both ways; ``start_offset`` is the start shown (rule L4).

Concurrency: appends, rolls, truncation, deletion and ``reconfigure`` belong to one owner thread. Reads and lookups
are for any thread: they work on a tuple of segments that is replaced, never changed. ``flush`` is for any thread,
one at a time by its own lock.
What may block has steps beside the one call: ``plan_deletion``, ``apply_deletion``, ``unlink`` beside
``delete_old_segments``; ``begin_flush``, ``finish_flush`` beside ``flush``.
Errors: StorageError once the log dir is offline, DiskFull while it is full (rule L5), and what a bad batch deserves.
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
from klog.record.batch import BatchHeader, check_crc, check_produced, stamp, walk
from klog.record.contents import Limits, check_contents, is_plain, unpacked_bytes_max
from klog.storage.accounting import Rebuilt, measure, summarize, take_in
from klog.storage.checkpoint import LogSummary
from klog.storage.durable_log import DurableLog
from klog.storage.filesystem import FileSystem
from klog.storage.home import Alone, Home
from klog.storage.log_end import LogEnd
from klog.storage.log_results import AppendResult
from klog.storage.lookup import Location
from klog.storage.producers import NO_PRODUCER, WrittenBatch
from klog.storage.recovery import Recovered, Recovery
from klog.storage.retention import Deletion, decide_deletion, is_expired
from klog.storage.segment import FileRange, Segment

__all__ = ["AppendResult", "FileRange", "Location", "Log", "LogEnd"]

_log = logging.getLogger(__name__)

NEVER: Final = 1 << 62
"""Kafka's Long.MAX_VALUE and whatever comes near it: a flush rule that never asks."""
EPOCH_MAX: Final = 0x7FFFFFFF


class Log(DurableLog):
    """See the module. Made by ``Log.open``."""

    def __init__(
        self,
        name: TopicPartition,
        folder: str,
        config: LogConfig,
        home: Home,
        file_system: FileSystem,
        found: Recovered,
    ) -> None:
        super().__init__(name, folder, home, file_system, found)
        self.committed_at_open = 0
        """The high watermark that the checkpoint named when the log was opened; 0 of one made since."""
        self.nothing_lost = False
        """Whether it is known that no crash has taken anything from it that was not flushed yet (rule R1)."""
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
        written: bool = False,
    ) -> Log:
        """The log in the folder ``directory``, recovered; an empty one where the folder has no segment.

        ``saved``, ``recovery_point`` and ``start_offset`` are the checkpoints'; without them the whole log is checked.
        ``written``: everything was synced (``FileSystem.sync_everything``) since the last process ended.
        """
        home = home or Alone(file_system, directory)
        clock = home.clock_ms()
        try:
            recovery = Recovery(file_system, directory, home.pool, clock, written=written)
            found = recovery.run(saved, recovery_point, start_offset)
        except CorruptLog as error:
            _log.warning("%s: checking the whole log, for below the recovery point %s", topic_partition, error)
            recovery = Recovery(file_system, directory, home.pool, clock, written=written)
            found = recovery.run(None, 0, start_offset)
        return cls(topic_partition, directory, config, home, file_system, found)

    # --- What it is ---

    @property
    def config(self) -> LogConfig:
        return self._config

    def reconfigure(self, config: LogConfig) -> None:
        """Go by other settings from now on."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._max_message_bytes = config.max_message_bytes
        self._unpacked_bytes_max = unpacked_bytes_max(config.max_message_bytes)
        self._after_max_ms = config.timestamp_after_max_ms
        self._takes_any_age = config.timestamp_before_max_ms >= NEVER
        self.never_flushes = config.flush_messages >= NEVER and config.flush_ms >= NEVER

    @property
    def wants_flush(self) -> bool:
        """Whether the rule by count asks for a flush now."""
        return self.unflushed_messages >= self._config.flush_messages

    # --- Appending (owner thread) ---

    def is_plain(self, records: memoryview) -> bool:
        """Whether the records need no `check` before they are appended: their headers say enough."""
        # On the path of every batch: no limits are made for it.
        return self._takes_any_age and is_plain(records, self._home.clock_ms() + self._after_max_ms)

    def check(self, records: memoryview, *, unpacked_bytes_max: int | None = None) -> list[BatchHeader]:
        """Everything a leader asks of a record set, its contents included: the headers that `append` takes.

        Any thread. Takes as long as unpacking takes; ``unpacked_bytes_max`` may bound it further. Raises what
        `contents.check_contents` raises.
        """
        most = self._unpacked_bytes_max
        return check_contents(records, self._limits(most if unpacked_bytes_max is None else unpacked_bytes_max))

    def _limits(self, unpacked_bytes_max: int) -> Limits:
        now_ms = self._home.clock_ms()
        earliest_ms = None if self._takes_any_age else now_ms - self._config.timestamp_before_max_ms
        return Limits(self._max_message_bytes, unpacked_bytes_max, earliest_ms, now_ms + self._after_max_ms)

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        repeats_expected: bool = False,
        checked: list[BatchHeader] | None = None,
    ) -> AppendResult:
        """Append a record set the leader's way: check, stamp addresses and epoch in place, write once.

        ``checked`` is what `check` has found; without it the headers are checked and the contents believed.
        ``repeats_expected``: what producers sent before may have been refused a moment ago; one that is not known must
        not begin in the middle then, though it may at other times (rule L6).

        ``records`` is writable and changed. Raises what ``check_produced`` raises, InvalidProducerEpoch,
        OutOfOrderSequence, FencedLeaderEpoch, DiskFull, StorageError; then nothing was appended.
        """
        home = self._home
        if home.failure is not None or home.is_full or self._closed:
            self._check_writable(len(records))
        headers = check_produced(records, self._max_message_bytes) if checked is None else checked
        header = headers[0]
        if leader_epoch != self._epochs.last:
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

    def append_at(self, records: memoryview, leader_epoch: int = EPOCH_MAX) -> AppendResult:
        """Append a follower's way: whole batches, byte for byte, at the addresses that the leader gave them.

        Raises CorruptBatch for one that does not check, CorruptLog where it does not follow on the log's end, goes
        back to an older epoch or is of one after ``leader_epoch``; then nothing was appended.
        """
        self._check_writable(len(records))
        base = address = self._end.address
        epoch = self._epochs.last
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

    def _check_sequences(self, headers: list[BatchHeader], repeats_expected: bool) -> WrittenBatch | None:
        """The batch that a single one repeats, None where all are new."""
        if len(headers) == 1:
            return self._producers.check(headers[0], may_begin_anywhere=not repeats_expected)
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
            failure = self._cut_back(segment, error)
            if failure is not None:
                raise failure.bare() from error
            raise

    def _cut_back(self, segment: Segment, error: StorageError) -> StorageError | None:
        """After a failed write: remove what part of it is there (rule L5). The dir's failure; None where it is full.

        The error is not raised here: a frame that has what it raises among its variables is a cycle, and this one would
        keep the file open, and its bytes on the full disk, until the collector comes by.
        """
        try:
            segment.file.truncate(segment.size)
        except StorageError as worse:
            return self._home.fail(worse)
        if isinstance(error, DiskFull):
            self._home.filled(error)
            return None
        return self._home.fail(error)

    def _roll(self) -> Segment:
        """Close the active segment and begin the next at the log's end."""
        segment = self._begin_segment(self._end.address)
        self._home.rolled(self)
        return segment

    def _check_writable(self, size: int) -> None:
        self._check_open()
        if self._home.is_full:
            self._home.check_room(size)

    # --- Rolling and deleting (owner thread) ---

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment where it has messages and is older than ``segment.ms`` (less the jitter)."""
        active, config = self._active, self._config
        jitter_ms = crc32c(active.path.encode()) % config.segment_jitter_ms if config.segment_jitter_ms > 0 else 0
        if not active.size or now_ms - active.created_ms < config.segment_ms - jitter_ms:
            return False
        self._check_writable(0)
        self._roll()
        return True

    def plan_deletion(self, now_ms: int, *, limit_address: int | None = None, by_time: bool = True) -> Deletion | None:
        """What retention removes now; ``limit_address`` is the high watermark, ``by_time`` False while L7 doubts.

        An active segment that is expired is rolled first, so that a log without new messages empties too.
        """
        self._check_open()
        config, active = self._config, self._active
        limit = self._end.address if limit_address is None else limit_address
        retention_ms = config.retention_ms if by_time else -1
        expired = retention_ms >= 0 and is_expired(active, now_ms, retention_ms) and active.max_timestamp_ms >= 0
        if expired and active.end_address <= limit and not self._home.is_full:
            self._roll()
        return decide_deletion(
            self._segments,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=config.retention_bytes,
            limit_address=limit,
        )

    def apply_deletion(self, deletion: Deletion) -> None:
        """Serve the removed segments no more. The new start is durable already (``Home.keep_starts``, rule L4)."""
        self._start_offset = max(self._start_offset, deletion.start_offset)
        for segment in deletion.segments:
            segment.is_removed = True
        self._segments = tuple(segment for segment in self._segments if not segment.is_removed)
        self._epochs.forget_below(self._segments[0].base_address)

    def unlink(self, deletion: Deletion) -> None:
        """Remove the files of an applied deletion, oldest first: towards what stays (rule L3). Any thread."""
        try:
            for segment in deletion.segments:
                self._file_system.remove(segment.path)
                segment.close()
            self._file_system.sync_folder(self.folder)
        except StorageError as error:
            if self._closed:
                return  # the topic was deleted meanwhile: its folder has another name and goes as a whole
            raise self._home.fail(error) from error

    def delete_old_segments(self, now_ms: int, limit_address: int | None = None) -> int:
        """Retention in one go: how many segments went. Blocks for the checkpoint of the start and for the files."""
        deletion = self.plan_deletion(now_ms, limit_address=limit_address)
        if deletion is None:
            return 0
        self._delete(deletion)
        return len(deletion.segments)

    def _delete(self, deletion: Deletion) -> None:
        _log.info(
            "%s: removing %d segments (%s), the log starts at %d",
            self.topic_partition,
            len(deletion.segments),
            deletion.reason,
            deletion.start_offset,
        )
        self._home.keep_starts({self.topic_partition: deletion.start_offset})
        self.apply_deletion(deletion)
        if deletion.segments:
            self.unlink(deletion)

    def plan_delete_records(self, offset: int) -> Deletion | None:
        """What DeleteRecords up to, not with, ``offset`` removes; None where the log starts there already."""
        self._check_open()
        if offset > self._end.offset:
            self.check_offset(self._end.address + 1)
        if offset <= self._start_offset:
            return None
        gone = []
        for segment in self._segments[:-1]:
            if segment.count is None or segment.end_offset > offset:
                break
            gone.append(segment)
        return Deletion(tuple(gone), offset, "DeleteRecords")

    def delete_records(self, offset: int) -> int:
        """Show nothing below ``offset`` any more, and remove the segments that lie below. Returns the start shown.

        Raises OffsetOutOfRange above the end. Blocks; see plan_delete_records for the way in steps.
        """
        deletion = self.plan_delete_records(offset)
        if deletion is not None:
            self._delete(deletion)
        return self._start_offset

    @property
    def needs_rebuild(self) -> bool:
        """Whether there are segments that the checkpoint did not know: their messages are not counted."""
        return any(segment.count is None for segment in self._segments)

    def rebuild(self, pause: Callable[[], object] = lambda: None) -> list[Rebuilt]:
        """Walk the segments that the checkpoint did not know; counts are known as it goes. Blocks; any thread.

        ``adopt`` what it returns, in the owner thread. ``pause`` is called every few milliseconds of work. Raises
        CorruptLog at damage: the counts below it stay unknown until the next start has checked the log.
        """
        found = []
        for segment in reversed(self._segments):
            if segment.count is None and not segment.is_removed:
                try:
                    found.append(self._ask(measure, segment, pause))
                except CorruptLog:
                    # No count is better than a wrong one; the next start checks from here and records the hole.
                    self._home.lower_recovery_point(self.topic_partition, segment.base_address)
                    raise
        return found

    def adopt(self, rebuilt: list[Rebuilt]) -> None:
        """Take over the epochs and producers that ``rebuild`` found, newest segment first."""
        for one in rebuilt:
            self._epochs.prepend(one.epochs)
            self._producers.merge(one.producers)

    def forget_idle_producers(self, now_ms: int) -> None:
        """Forget producer ids that have been silent for ``producer.id.expiration.ms``."""
        self._producers.forget_idle(now_ms - self._config.producer_expiry_ms)

    def summary(self) -> LogSummary | None:
        """The state at the end, for the checkpoint: to be kept when that is durable. None while counts are unknown.

        Owner thread.
        """
        rows = [summarize(segment) for segment in self._segments]
        if any(row is None for row in rows):
            return None
        return LogSummary(
            tuple(row for row in rows if row is not None),
            # An epoch in which nothing was written yet may turn out to be nobody's: what is read again after a crash
            # must not be judged by it.
            tuple(one for one in self._epochs.starts if one.address < self._end.address),
            self._producers.snapshot(),
        )

    # --- Closing ---

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
        """Let go of the files without a flush; waits for one that is under way."""
        with self._flush_lock:
            self._closed = True
        for segment in self._segments:
            segment.close()
