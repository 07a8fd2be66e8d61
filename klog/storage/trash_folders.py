"""The trash of one log dir: logs are moved there, wait, and are deleted for good. See `klog.storage.trash`."""

from __future__ import annotations

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
        self.being_taken: set[TopicPartition] = set()
        """Logs that some thread is moving here just now."""

    def found(self, folder_name: str) -> None:
        """The log dir has this folder. One that cannot be read stays, and is never served."""
        waiting = trash.read(self._health.file_system, f"{self._health.path}/{folder_name}")
        if waiting is not None:
            self.waiting[folder_name] = waiting._replace(summary=None)

    def take(self, name: TopicPartition, high_watermark: int) -> None:
        """Move a log here, durably: flushed, with what the checkpoints know of it.

        DiskFull where there is no room for that; then nothing has changed.
        """
        log_dir, health, fs = self._dir, self._health, self._health.file_system
        log, topic_id = log_dir.logs.pop(name), log_dir.topic_ids.pop(name)
        self.being_taken.add(name)
        log_dir.busy_since_s = health.clock.monotonic_s()
        try:
            if health.failure is not None:
                log.abandon()
                raise health.failure.bare()
            log.flush()
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
