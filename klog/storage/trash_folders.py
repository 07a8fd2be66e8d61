"""The trash of one log dir: logs are moved there, wait, come back, or are deleted for good. See `klog.storage.trash`.

A folder is known by its topic's id (rule L10): the name may have been used again.
"""

from __future__ import annotations

import logging
from typing import Protocol
from uuid import UUID

from klog.config.topic import LogConfig
from klog.errors import DiskFull, StorageError
from klog.names import TopicPartition
from klog.storage import partition_folder, trash
from klog.storage.checkpoint import LogSummary
from klog.storage.checkpoints import Checkpoints
from klog.storage.log import Log
from klog.storage.log_dir_context import Health
from klog.storage.partition_folder import DELETED_SUFFIX, FILE_NAME_CHARS_MAX, TRASHED_SUFFIX
from klog.storage.trash import Trashed

_log = logging.getLogger(__name__)


class Home(Protocol):
    """What the trash needs of its log dir (`klog.storage.log_dir.LogDir`)."""

    logs: dict[TopicPartition, Log]
    topic_ids: dict[TopicPartition, UUID]
    checkpoints: Checkpoints
    busy_since_s: float | None

    @property
    def health(self) -> Health: ...

    def open_log(
        self, name: TopicPartition, topic_id: UUID, config: LogConfig, saved: LogSummary | None, *, written: bool
    ) -> Log: ...

    def failed(self, error: StorageError) -> StorageError: ...


class TrashFolders:
    """Any thread; what touches the disk blocks."""

    def __init__(self, log_dir: Home) -> None:
        self._dir = log_dir
        self._health = log_dir.health
        self.waiting: dict[str, Trashed] = {}
        """Folder's name -> what waits there, without its summary. Replaced folder by folder: copy it to walk it."""
        self.taken: set[UUID] = set()
        """Topics whose logs this process has moved here: it has seen that they are in the trash."""
        self.being_taken: set[TopicPartition] = set()
        """Logs that some thread is moving here just now."""

    def found(self, folder_name: str) -> None:
        """The log dir has this folder. One that cannot be read stays, and is never served."""
        waiting = trash.read(self._health.file_system, f"{self._health.path}/{folder_name}")
        if waiting is not None:
            self.waiting[folder_name] = waiting._replace(summary=None)

    def take(self, name: TopicPartition, high_watermark: int) -> None:
        """Move a log here, durably: flushed, with what the checkpoints know of it.

        DiskFull if the disk is full; then nothing has changed.
        """
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        log, topic_id = log_dir.logs.pop(name), log_dir.topic_ids.pop(name)
        self.being_taken.add(name)
        try:
            if health.failure is not None:
                log.abandon()
                raise health.failure.bare()
            log.flush()  # may take long: only what follows counts as a disk that hangs
            log_dir.busy_since_s = health.clock.monotonic_s()
            log.abandon()  # retention that has been planned goes no further: what is described stays true
            what = trash.describe(log, topic_id, high_watermark, health.clock_ms())
            target = partition_folder.renamed(name, topic_id, TRASHED_SUFFIX)
            try:
                self._keep(f"{log.folder}/{trash.METADATA}", what.render())
                fs.rename(log.folder, f"{health.path}/{target}")
            except DiskFull:
                again = log_dir.open_log(name, topic_id, log.config, what.summary, written=True)
                again.committed_at_open, again.nothing_lost = what.high_watermark, what.nothing_lost
                raise
            self.waiting[target] = what._replace(summary=None)
            self.taken.add(topic_id)
            log_dir.checkpoints.forget(log)
        except StorageError as error:
            raise log_dir.failed(error) from error
        finally:
            self.being_taken.discard(name)
            log_dir.busy_since_s = None

    def _keep(self, path: str, data: bytes) -> None:
        """Write a small file; on a full disk in the room that is set aside."""
        health = self._health
        try:
            health.file_system.replace(path, data)
        except DiskFull as error:
            health.filled(error)
            if not health.give_reserve():
                raise
            health.file_system.replace(path, data)

    def find(self, topic_id: UUID, partition: int) -> str | None:
        """The folder of a partition's log; the newest where there are several."""
        found = {
            folder: one.trashed_ms
            for folder, one in self.waiting.copy().items()
            if (one.topic_id, one.name.partition) == (topic_id, partition)
        }
        return max(found, key=lambda folder: found[folder]) if found else None

    def restore(self, folder_name: str, name: TopicPartition, config: LogConfig) -> Log | None:
        """Bring a log back, under this name, as it was: None where it is not here. The next start continues after a
        kill (`take_over`)."""
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        waiting = self.waiting.pop(folder_name, None)
        if waiting is None:
            return None
        log_dir.busy_since_s = health.clock.monotonic_s()
        try:
            fs.rename(f"{health.path}/{folder_name}", f"{health.path}/{name}")
            log_dir.busy_since_s = None  # checking a log may take long
            return self.take_over(name, config)
        except StorageError as error:
            if isinstance(error, DiskFull):
                self._put_back(folder_name, name, waiting)
            raise log_dir.failed(error) from error
        finally:
            log_dir.busy_since_s = None

    def _put_back(self, folder_name: str, name: TopicPartition, waiting: Trashed) -> None:
        """After a restore that failed on a full disk: it can be tried again."""
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        log = log_dir.logs.pop(name, None)
        if log is not None:
            log_dir.topic_ids.pop(name)
            log.abandon()
        try:
            log_dir.checkpoints.forget_name(name)
        except StorageError:
            pass  # of no log: the next one that is forgotten writes the file
        try:
            if not fs.exists(f"{health.path}/{folder_name}"):
                fs.rename(f"{health.path}/{name}", f"{health.path}/{folder_name}")
        except StorageError as error:
            raise health.fail(error) from error  # the next start takes it over
        self.waiting[folder_name] = waiting

    def take_over(self, name: TopicPartition, config: LogConfig) -> Log | None:
        """Open the log of a folder that was in the trash, or on its way there, with what `trash.METADATA` says of it.

        None where the folder has no such file. The file goes last, durably, before anything can be written to the log:
        it would be wrong from then on.
        """
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        folder = f"{health.path}/{name}"
        known = trash.read(fs, folder)
        if known is None:
            return None
        log_dir.checkpoints.take_over(
            name, known.start_offset, known.high_watermark, known.summary, known.recovery_point
        )
        log = log_dir.open_log(name, known.topic_id, config, known.summary, written=True)
        log.committed_at_open, log.nothing_lost = known.high_watermark, known.nothing_lost
        fs.remove(f"{folder}/{trash.METADATA}")
        fs.sync_folder(folder)
        _log.info("%s: its log is back from the trash, up to %d", name, log.end.address)
        return log

    def discard(self, folder_name: str) -> None:
        """Delete a folder of the trash for good."""
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        if self.waiting.pop(folder_name, None) is None:
            return
        doomed = (folder_name.removesuffix(TRASHED_SUFFIX) + DELETED_SUFFIX)[-FILE_NAME_CHARS_MAX:]
        try:
            # First by its name, so that a crash cannot leave half of it here.
            fs.rename(f"{health.path}/{folder_name}", f"{health.path}/{doomed}")
            fs.remove_folder(f"{health.path}/{doomed}")
        except StorageError as error:
            raise log_dir.failed(error) from error
