"""A log dir: partitions' folders, and the small files that let them open quickly.

::

    .lock                              held by flock as long as the broker runs
    .reserve                           space that retention needs on a full disk
    meta.properties                    owner of the dir                            see meta_properties.py
    recovery-point-offset-checkpoint   what is flushed and needs no check          see checkpoint.py
    log-start-offset-checkpoint        log start offsets, unless the first file's (rule L4)
    log-summary-checkpoint             counts, times, epochs, producers at the recovery point
    replication-offset-checkpoint      high watermarks
    registry-checkpoint                copy of the cluster's registries            see registry_copy.py
    .kafka_cleanshutdown               everything was durable when the dir was closed; removed when it is opened.
                                       It names the logs that had lost something before (rule R1)
    <topic>-<partition>/               see partition_folder.py

The dir is the unit of failure: an I/O error takes it offline with all its logs, and no other dir (rule L5).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from klog.clock import SYSTEM_CLOCK
from klog.errors import DiskFull, InvalidConfig, StorageError, WrongCluster
from klog.names import TopicPartition
from klog.secret import Secret
from klog.storage import partition_folder
from klog.storage.checkpoint import LogSummary
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.disk import boot_clock_ms
from klog.storage.file_pool import OPEN_FILES_MAX, FilePool
from klog.storage.filesystem import FileSystem
from klog.storage.log import Log
from klog.storage.meta_properties import BROKER_ID, CLUSTER_ID, CLUSTER_SECRET, DIRECTORY_ID, MetaProperties
from klog.storage.retention import Deletion, RetentionClock

if TYPE_CHECKING:
    from klog.config.topic import LogConfig

_log = logging.getLogger(__name__)

LOCK: Final = ".lock"
CLEAN_STOP: Final = ".kafka_cleanshutdown"


class LogDir(CheckpointedDir):
    """A locked log dir and its logs."""

    def __init__(
        self, file_system: FileSystem, path: str, pool: FilePool, clock_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms
    ) -> None:
        super().__init__(file_system, path, pool, clock_ms)
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, UUID] = {}
        self.quarantined: list[str] = []
        self.being_made: set[TopicPartition] = set()
        """Logs that a thread is creating."""
        self.busy_since_s: float | None = None
        """Start of the current creation or removal of logs (monotonic seconds); None while there is none."""
        self._had_no_owner = False
        file_system.make_folder(path)
        self._held = file_system.lock(f"{path}/{LOCK}")
        try:
            self.meta = MetaProperties(file_system, path)
        except BaseException:
            self._held.release()
            raise
        self.keep_reserve()

    # --- Whose it is ---

    def record_owner(self, cluster_id: str, broker_id: int) -> None:
        """Record the cluster and broker that own the dir. Raises WrongCluster if others own it."""
        meta = self.meta
        if meta.cluster_id not in (None, cluster_id):
            raise WrongCluster(
                f"log dir {self.path} belongs to cluster {meta.cluster_id}, ZooKeeper is that of cluster {cluster_id}",
                hint="start with the right ZooKeeper, or with another log dir",
            )
        if meta.broker_id not in (None, broker_id):
            raise WrongCluster(
                f"log dir {self.path} belongs to broker {meta.broker_id}, this is broker {broker_id}",
                hint=f"start with broker.id={meta.broker_id}, or with another log dir",
            )
        if (meta.cluster_id, meta.broker_id) != (cluster_id, broker_id):
            self._had_no_owner = meta.cluster_id is None and meta.broker_id is None
            meta.write({CLUSTER_ID: cluster_id, BROKER_ID: str(broker_id)})

    def keep_secret(self, secret: Secret) -> None:
        """Store the cluster's secret. Raises WrongCluster if the dir has another one."""
        there = self.meta.secret
        if there is None:
            self.meta.write({CLUSTER_SECRET: secret.text})
        elif there != secret:
            raise WrongCluster(
                f"{self.meta.path} has another cluster.secret than ZooKeeper has in /klog/secret, and one of them is "
                "wrong",
                hint="where the other brokers run by ZooKeeper's, remove the line from meta.properties: the broker "
                "takes ZooKeeper's over; where ZooKeeper's is wrong, stop all brokers and delete /klog/secret: the "
                "first one that starts puts its own there",
            )

    def forget_owner(self) -> None:
        """Undo `record_owner`, if the dir had no owner before it and holds no log."""
        if self._had_no_owner and not self.logs:
            self.meta.keep_only(DIRECTORY_ID)

    # --- Its logs ---

    def load(self, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        """Open and recover every partition's log. Raises StorageError."""
        fs = self.file_system
        saved = self.checkpoints.load()
        committed = self.checkpoints.high_watermarks()
        kept = self._take_clean_stop()
        # One sync for what a killed process left in the page cache, instead of one per log.
        try:
            fs.sync_everything(self.path)
            written = True
        except StorageError as error:
            _log.warning("%s: asking each file", error)
            written = False
        for entry in sorted(fs.scan(self.path), key=lambda entry: entry.name):
            folder = f"{self.path}/{entry.name}"
            if not entry.is_folder:
                continue
            if entry.name.endswith(partition_folder.DELETED_SUFFIX):
                fs.remove_folder(folder)
                continue
            if entry.name.endswith(partition_folder.TRASHED_SUFFIX):
                _log.warning(
                    "%s is of a topic that klog 0.2 has deleted: 0.2 can restore it, rm -r frees its room", folder
                )
                continue
            name = partition_folder.parse_folder_name(entry.name)
            if name is None:
                continue
            topic_id = partition_folder.read_topic_id(fs, folder)
            if topic_id is None:
                _log.error("%s has no topic id: set aside", folder)
                self._rename_aside(name, None)
                continue
            opened = self.open_log(name, topic_id, config_of(name), saved.get(name), written=written)
            opened.committed_at_open = committed.get(name, 0)
            opened.nothing_lost = kept is not None and name not in kept
        try:
            self.checkpoint()
        except DiskFull as error:
            _log.warning("the checkpoint was not written: %s", error)

    def _take_clean_stop(self) -> set[TopicPartition] | None:
        """Read the clean-shutdown mark and remove it, durably, before any write that a crash could lose.

        Returns the logs that had lost something before; None without the mark: any may have.
        """
        path = f"{self.path}/{CLEAN_STOP}"
        data = self.file_system.read(path)
        if data is None:
            return None
        self.file_system.remove(path)
        self.file_system.sync_folder(self.path)
        names = map(partition_folder.parse_folder_name, data.decode("utf-8", "replace").split())
        return {name for name in names if name is not None}

    def _leave_clean_stop(self) -> None:
        unsafe = [str(name) for name, log in sorted(self.logs.items()) if not log.nothing_lost]
        try:
            self.file_system.replace(f"{self.path}/{CLEAN_STOP}", "".join(f"{one}\n" for one in unsafe).encode())
        except StorageError as error:
            _log.warning("%s: the next start takes this stop for a crash: %s", self.path, error)

    def create(self, wanted: Mapping[TopicPartition, tuple[UUID, LogConfig]]) -> dict[TopicPartition, Log]:
        """Create logs of partitions that have none here, durably."""
        if self.failure is not None:
            raise self.failure.bare()
        self.being_made |= wanted.keys()
        self.busy_since_s = self.clock.monotonic_s()
        try:
            folders = [partition_folder.new_folder(name, topic_id) for name, (topic_id, _) in wanted.items()]
            self.file_system.publish(self.path, folders)
            return {name: self.open_log(name, *what, None, written=True) for name, what in wanted.items()}
        except StorageError as error:
            raise self.write_failed(error) from error
        finally:
            self.being_made -= wanted.keys()
            self.busy_since_s = None

    def quarantine_log(self, name: TopicPartition) -> None:
        """Stop serving a log and rename its folder so that it is never served (rule L10)."""
        log, topic_id = self.logs.pop(name), self.topic_ids.pop(name)
        log.abandon()
        self.checkpoints.forget(log)
        self._rename_aside(name, topic_id)

    def remove(self, name: TopicPartition) -> str:
        """Delete a log: renames its folder at once, durably. Returns the folder: to remove it may take longer."""
        log, topic_id = self.logs.pop(name), self.topic_ids.pop(name)
        log.abandon()
        target = f"{self.path}/{partition_folder.renamed(name, topic_id, partition_folder.DELETED_SUFFIX)}"
        self.busy_since_s = self.clock.monotonic_s()
        try:
            self.file_system.rename(f"{self.path}/{name}", target)
            self.checkpoints.forget(log)
        except StorageError as error:
            raise self.write_failed(error) from error
        finally:
            self.busy_since_s = None
        return target

    def open_log(
        self,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        saved: LogSummary | None,
        *,
        written: bool,
    ) -> Log:
        """Open the log in the partition's folder and serve it from now on."""
        log = Log.open(
            self,
            f"{self.path}/{name}",
            name,
            config,
            saved=saved,
            recovery_point=self.checkpoints.recovery_point(name),
            start_offset=self.checkpoints.start(name),
            written=written,
        )
        kept_start = self.checkpoints.start(name)
        if kept_start is not None and kept_start != log.start_offset:
            self.checkpoints.keep_starts({name: log.start_offset})
        self.logs[name] = log
        self.topic_ids[name] = topic_id
        if saved is None or log.end.address != saved.recovery_point or log.recovered_bytes:
            self.checkpoints.changed(log)
        return log

    def _rename_aside(self, name: TopicPartition, topic_id: UUID | None) -> None:
        target = partition_folder.renamed(name, topic_id, partition_folder.ASIDE_SUFFIX)
        self.file_system.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        self.quarantined.append(target)
        _log.warning("%s/%s holds another topic's log: set aside as %s", self.path, name, target)

    # --- Its life ---

    def checkpoint(self) -> None:
        """Flush every changed log and write the checkpoints. Blocks; owner thread."""
        self.checkpoints.note()
        self.checkpoints.write()

    def close(self) -> None:
        """Flush, write the checkpoints, close the logs and release the lock."""
        self.checkpoints.stop_thread()
        if self.is_stalled and self.failure is not None:
            return  # the disk may never answer; the process ends, and the lock with it
        try:
            if self.failure is None:
                for log in list(self.logs.values()):
                    self.checkpoints.changed(log)
                self.checkpoints.note(all_logs=True)
                self.checkpoints.write()
        finally:
            all_closed = self.failure is None
            for log in list(self.logs.values()):
                try:
                    log.close()
                except StorageError as error:
                    all_closed = False
                    _log.error("%s: %s", log.topic_partition, error)
            if all_closed and self.failure is None:
                self._leave_clean_stop()
            self._held.release()

    def abandon(self) -> None:
        """Release everything without flushing or writing, as a killed process would."""
        self.checkpoints.stop_thread(write=False)
        for log in list(self.logs.values()):
            log.abandon()
        self._held.release()


class RetentionRun:
    """Retention of many logs in three steps: the blocking ones may run in a thread, the other in the owner's."""

    def __init__(self, plans: list[tuple[Log, Deletion]]) -> None:
        self.plans = plans

    def persist(self) -> None:
        """Make the new starts durable, one write per dir (rule L4); a dir that fails deletes nothing. Any thread."""
        log_dirs = {log.log_dir.path: log.log_dir for log, _ in self.plans}
        for path, log_dir in log_dirs.items():
            starts = {log.topic_partition: one.start_offset for log, one in self.plans if log.log_dir.path == path}
            try:
                log_dir.checkpoints.keep_starts(starts)
            except StorageError as error:
                _log.error("retention in %s waits: %s", path, error)
                self.plans = [(log, one) for log, one in self.plans if log.log_dir.path != path]

    def apply(self) -> None:
        """Stop serving the deleted segments. Owner thread."""
        self.plans = [(log, one) for log, one in self.plans if not log.is_closed]
        for log, deletion in self.plans:
            _log.info("%s: %s, starts at %d now", log.topic_partition, deletion, deletion.start_offset)
            log.apply_deletion(deletion)

    def unlink(self) -> int:
        """Remove the files; returns how many. Any thread."""
        removed = 0
        for log, deletion in self.plans:
            try:
                log.unlink(deletion)
                removed += len(deletion.segments)
            except StorageError as error:
                _log.error("%s: %s", log.topic_partition, error)
        return removed

    def run(self) -> int:
        """All three steps. Blocks; owner thread."""
        self.persist()
        self.apply()
        return self.unlink()


class LogDirs:
    """All log dirs of a broker. An unusable one is offline from the start, with the reason in ``offline``."""

    def __init__(
        self,
        file_system: FileSystem,
        paths: tuple[str, ...],
        *,
        open_files_max: int = OPEN_FILES_MAX,
        clock_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
        monotonic_ms: Callable[[], int] = boot_clock_ms,
    ) -> None:
        """Lock and read the dirs. Raises the first dir's error if none is usable, InvalidConfig for a duplicate."""
        _check_each_once(paths)
        self.pool = FilePool(open_files_max)
        self._clock_ms = clock_ms
        self._monotonic_ms = monotonic_ms
        self._retention_clock = RetentionClock(clock_ms(), monotonic_ms())
        self.dirs: list[LogDir] = []
        self.offline: dict[str, StorageError] = {}
        for path in paths:
            try:
                self.dirs.append(LogDir(file_system, path, self.pool, clock_ms))
            except StorageError as error:
                _log.error("log dir %s is offline: %s", path, error)
                self.offline[path] = error.bare()
        if not self.dirs:
            raise next(iter(self.offline.values()))

    @property
    def uuids(self) -> list[UUID]:
        return [one.meta.directory_id for one in self.dirs]

    def record_owner(self, cluster_id: str, broker_id: int) -> None:
        """Raises WrongCluster if a dir belongs to another cluster or broker."""
        for one in self.dirs:
            one.record_owner(cluster_id, broker_id)

    @property
    def secret(self) -> Secret | None:
        """The cluster's secret, from the first dir that has it."""
        return next((found for one in self.dirs if (found := one.meta.secret) is not None), None)

    def keep_secret(self, secret: Secret) -> None:
        """Store the secret in every dir. Raises WrongCluster if one has another."""
        for one in self.dirs:
            one.keep_secret(secret)

    def forget_owner(self) -> None:
        """After a refused start, before anything was stored: undo `record_owner`. A dir that cannot be written stays
        owned."""
        for one in self.dirs:
            try:
                one.forget_owner()
            except StorageError as error:
                _log.error("%s: %s", one.path, error)

    def load(self, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        """Open every log. A dir that fails goes offline; raises if none is left."""
        for one in self.dirs:
            try:
                one.load(config_of)
            except StorageError as error:
                self.offline[one.path] = one.fail(error)
                _log.error("%s", one.failure)
        if all(one.failure is not None for one in self.dirs):
            raise next(iter(self.offline.values()))

    def log(self, name: TopicPartition) -> Log | None:
        found = self._dir_of(name)
        return found.logs[name] if found else None

    def topic_id(self, name: TopicPartition) -> UUID | None:
        found = self._dir_of(name)
        return found.topic_ids[name] if found else None

    def log_or_create(self, name: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """``logs_or_create`` for one partition."""
        return self.logs_or_create({name: (topic_id, config)})[name]

    def is_being_made(self, name: TopicPartition) -> bool:
        """Whether a thread is creating the log, perhaps held up by a disk."""
        return any(name in one.being_made for one in self.dirs)

    def logs_or_create(self, wanted: Mapping[TopicPartition, tuple[UUID, LogConfig]]) -> dict[TopicPartition, Log]:
        """The partitions' logs with those topic ids; new ones are created together, in the dirs with fewest partitions.

        A log of that name with another topic id is set aside (rule L10).
        """
        found: dict[TopicPartition, Log] = {}
        missing: dict[TopicPartition, tuple[UUID, LogConfig]] = {}
        for name, (topic_id, config) in wanted.items():
            there = self._dir_of(name)
            if there is None or there.topic_ids[name] != topic_id:
                if there is not None:
                    there.quarantine_log(name)
                missing[name] = topic_id, config
            else:
                found[name] = there.logs[name]
                found[name].reconfigure(config)
        online = [one for one in self.dirs if one.failure is None]
        online = [one for one in online if not one.is_stalled] or online
        if missing and not online:
            raise StorageError(f"no log dir is online for {next(iter(missing))}")
        placed: list[dict[TopicPartition, tuple[UUID, LogConfig]]] = [{} for _ in online]
        for name, what in missing.items():
            fewest = min(range(len(online)), key=lambda at: len(online[at].logs) + len(placed[at]))
            placed[fewest][name] = what
        for one, here in zip(online, placed, strict=True):
            if here:
                found |= one.create(here)
        return found

    def remove(self, name: TopicPartition) -> Callable[[], None] | None:
        """Delete a partition's log. The result removes the files and may run in a thread."""
        found = self._dir_of(name)
        if found is None:
            return None
        folder = found.remove(name)
        return lambda: found.file_system.remove_folder(folder)

    def _dir_of(self, name: TopicPartition) -> LogDir | None:
        return next((one for one in self.dirs if name in one.logs), None)

    def logs(self) -> list[Log]:
        return [log for one in self.dirs for log in list(one.logs.values())]

    def start(self) -> None:
        """Start the threads that write checkpoints."""
        for one in self.dirs:
            one.checkpoints.start_thread()

    def plan_retention(
        self, limit_of: Callable[[Log], int], path: str | None = None, *, by_time: bool = True
    ) -> RetentionRun:
        """Plan retention for one log dir or all. ``limit_of``: a log's high watermark, as an address; ``by_time`` False
        while the clock is in doubt (rule L7). Owner thread."""
        now_ms = self._clock_ms()
        doubt = self._retention_clock.doubt(now_ms, self._monotonic_ms())
        if doubt is not None:
            _log.warning("%s", doubt)
        by_time &= doubt is None
        plans = []
        for log in self.logs():
            if log.is_closed or log.log_dir.failure is not None or (path is not None and log.log_dir.path != path):
                continue
            if by_time:
                log.forget_idle_producers(now_ms)
            deletion = log.plan_deletion(now_ms, limit_address=limit_of(log), by_time=by_time)
            if deletion is not None:
                plans.append((log, deletion))
        return RetentionRun(plans)

    def checkpoint_soon(self) -> None:
        """Call every ``log.flush.offset.checkpoint.interval.ms``. Owner thread."""
        for one in self.dirs:
            if one.failure is None and not one.is_stalled:
                one.checkpoints.soon()

    def close(self) -> None:
        for one in self.dirs:
            try:
                one.close()
            except StorageError as error:
                _log.error("%s: %s", one.path, error)


def _check_each_once(paths: tuple[str, ...]) -> None:
    """Compares real paths: a duplicate would find the first's lock, and count as a failed disk."""
    folders = [Path(path).resolve() for path in paths]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            raise InvalidConfig(f"log.dirs={','.join(paths)}: {folder} is there twice; expected each folder once")
