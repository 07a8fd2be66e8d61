"""Truncates a log, restarts it at another address, or continues it behind a hole.

Functions over the state of one log, called by its owner in any thread; nothing else may change the log meanwhile. Each
is durable when it returns, and blocks.
"""

from __future__ import annotations

from klog.errors import OffsetOutOfRange, StorageError
from klog.storage.damage_record import DamageRecord
from klog.storage.log_end import LogEnd
from klog.storage.log_state import LogState
from klog.storage.producers import Producers
from klog.storage.quarantine import keep_lost
from klog.storage.segment import Segment


def truncate(log: LogState, address: int, *, keep_truncated: bool = False) -> list[str]:
    """Remove everything from the batch start ``address`` on (rule L3).

    ``keep_truncated``: keep the removed batches in ``.lost`` files (see `klog.storage.quarantine`); returns their
    names. Raises OffsetOutOfRange below the first segment, CorruptLog where no batch starts at ``address``.
    """
    log.check_open()
    if address >= log.end.address:
        return []
    if address < log.start_address:
        raise OffsetOutOfRange(f"{log.topic_partition}: cannot cut at {address}, below {log.start_address}")
    kept = [segment for segment in log.segments if segment.base_address < address]
    removed = [segment for segment in log.segments if segment.base_address >= address]
    if removed and removed[0].base_address == address:
        cut, removed = removed[0].cut(address), removed[1:]  # an empty file of the right name stays
    else:
        cut = kept.pop().cut(address)
    # No checkpoint may name what is about to go: after a crash between the two, recovery would trust it. A checkpoint
    # that is being written compares the generation.
    with log.lock:
        log.generation += 1
    log.log_dir.checkpoints.lower_recovery_point(log.topic_partition, address)
    for segment in removed:
        segment.is_removed = True
    offset = next((one.end_offset for one in reversed((*kept, cut)) if one.size), 0)
    if log.start_offset <= address:
        offset = max(offset, log.start_offset)
    else:  # truncated below the log start offset: it must not hide what is written from here on
        offset = offset or address
        log.log_dir.checkpoints.keep_starts({log.topic_partition: offset})
    with log.lock:
        log.generation += 1  # once more: a flush may have begun since
        log.segments = (*kept, cut)
        log.active = cut
        log.end = LogEnd(cut.end_address, offset)
        if log.durable_end.address > address:
            log.durable_end = log.end
    log.start_offset = min(log.start_offset, offset)
    # A log truncated to its start knows nothing, not even the epochs before it.
    log.epochs.truncate(address if address > log.start_address else -1)
    log.producers.truncate(address)
    with log.lock:
        log.generation += 1  # a summary noted since then has epochs and producers of what is removed
    kept_files: list[str] = []
    try:
        if keep_truncated:
            kept_files = keep_lost(log.file_system, log.folder, [(cut, address), *((one, None) for one in removed)])
        for segment in reversed(removed):
            log.file_system.remove(segment.path)
            segment.close()
        cut.file.truncate(cut.size)
        cut.sync(cut.size)
        _forget_damages(log, address)
        log.file_system.sync_folder(log.folder)
    except StorageError as error:
        # Whatever it was, lack of descriptors included: memory and disk disagree from here on.
        raise log.log_dir.fail(StorageError(error.message)) from error
    return kept_files


def restart(log: LogState, address: int, start_offset: int, *, keep_truncated: bool = False) -> list[str]:
    """Remove everything and continue, empty, at ``address``. The log start offset is the lower of ``start_offset`` and
    ``address``.

    ``keep_truncated`` and the result: see `truncate`. After a crash in the middle the log is a part of what it was, or
    empty.
    """
    log.check_open()
    start_offset = min(start_offset, address)
    with log.lock:
        log.generation += 1
    log.log_dir.checkpoints.lower_recovery_point(log.topic_partition, 0)
    log.log_dir.checkpoints.keep_starts({log.topic_partition: start_offset})
    removed = log.segments
    for segment in removed:
        segment.is_removed = True
    new = Segment(log.file_system, log.folder, address, log.log_dir.pool)
    new.created_ms = new.modified_ms = log.log_dir.clock_ms()
    log.epochs.truncate(-1)
    log.producers = Producers()
    with log.lock:
        log.generation += 1
        log.segments = (new,)
        log.active = new
        log.end = log.durable_end = LogEnd(address, start_offset)
    log.start_offset = start_offset
    kept_files: list[str] = []
    try:
        if keep_truncated:
            kept_files = keep_lost(log.file_system, log.folder, [(one, None) for one in removed])
        for segment in reversed(removed):
            log.file_system.remove(segment.path)
            segment.close()
        _forget_damages(log, -1)
        log.file_system.sync_folder(log.folder)
        new.create()
        log.file_system.sync_folder(log.folder)
        new.name_is_durable = True
    except StorageError as error:
        raise log.log_dir.fail(StorageError(error.message)) from error
    return kept_files


def skip_to(log: LogState, address: int, reason: str) -> None:
    """Leave a recorded hole from the log end to ``address``, where the leader has one (rule L2).

    The record is written before the segment behind the hole, so that a crash never leaves an unrecorded hole.
    """
    log.check_open()
    damage = DamageRecord(log.end.address, address, reason)
    try:
        log.file_system.replace(f"{log.folder}/{damage.file_name}", damage.render(b""))
    except StorageError as error:
        raise log.log_dir.write_failed(error) from error
    log.begin_segment(address)
    log.damages = (*log.damages, damage)
    with log.lock:
        log.end = LogEnd(address, log.end.offset)


def _forget_damages(log: LogState, address: int) -> None:
    """Remove records of holes at or behind ``address``: what is written there next has no hole."""
    for damage in log.damages:
        if damage.first_address >= address:
            log.file_system.remove(f"{log.folder}/{damage.file_name}")
    log.damages = tuple(damage for damage in log.damages if damage.first_address < address)
