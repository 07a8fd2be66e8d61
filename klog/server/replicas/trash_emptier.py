"""Deletes the folders in the trash of this broker's disks whose topic is gone for good.

A folder goes when, by a ZooKeeper server that is up to date, neither an entry of the trash nor a topic has the topic's
id (rule R10). On a full disk the oldest topic that has a log in the trash there leaves it before its time, as a whole:
on every broker. Where this broker has never seen the entry, the retention time of the folder itself must have passed,
too: a ZooKeeper that has lost its data must not empty the trash. While the clock is in doubt (rule L7), such folders
stay.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from klog.coordination import cluster, trash
from klog.coordination.trash import Entry
from klog.errors import BadVersion, KlogError, NoNode
from klog.server.executors import Purpose
from klog.server.runtime import Runtime
from klog.storage.log_dir import LogDir, LogDirs
from klog.storage.log_dir_context import ROOM_BYTES_MIN
from klog.storage.retention import RetentionClock

log = logging.getLogger(__name__)

LOOK_EVERY_MIN_S = 0.25
LOOK_EVERY_MAX_S = 10.0
LOOKS_A_RETENTION = 4
FULL_EVERY_S = 0.5
"""Between looks at a disk that is full: the partitions there refuse appends meanwhile."""


def look_every_s(retention_ms: int) -> float:
    """How often the trash is looked at, for a retention time."""
    if retention_ms <= 0:
        return LOOK_EVERY_MAX_S
    return min(max(retention_ms / LOOKS_A_RETENTION / 1000, LOOK_EVERY_MIN_S), LOOK_EVERY_MAX_S)


class TrashEmptier:
    """Event loop only."""

    def __init__(self, runtime: Runtime, log_dirs: LogDirs) -> None:
        self._runtime = runtime
        self._log_dirs = log_dirs
        self._retention_ms = runtime.config.integer("klog.trash.retention.ms")
        self._clock = runtime.zookeeper.clock
        self._trusted = RetentionClock(*self._now())
        self._seen: set[UUID] = set()
        """Topics whose entry this broker has seen."""

    async def run(self) -> None:
        """For as long as the broker serves."""
        pause_s, since_s = look_every_s(self._retention_ms), 0.0
        while True:
            await asyncio.sleep(min(FULL_EVERY_S, pause_s))
            since_s += min(FULL_EVERY_S, pause_s)
            try:
                full = [one for one in self._dirs() if one.is_full and one.trash.waiting]
                has_purged = [one for one in full if await self._make_room(one)]
                if has_purged or since_s >= pause_s:
                    since_s = 0.0
                    await self._look()
            except KlogError as error:
                log.warning("the trash is not emptied yet: %s", error.message)

    def _now(self) -> tuple[int, int]:
        """By the wall clock and by the monotonic clock, in milliseconds."""
        return self._clock.now_ms(), int(self._clock.monotonic_s() * 1000)

    def _dirs(self) -> list[LogDir]:
        return [one for one in self._log_dirs.dirs if one.failure is None and not one.is_stalled]

    async def _make_room(self, log_dir: LogDir) -> bool:
        """Whether a topic had to leave the trash for it."""
        executors = self._runtime.executors
        entry = await executors.run(Purpose.OTHER, self._oldest, log_dir)
        if entry is None:
            return False
        try:
            await executors.run(Purpose.OTHER, trash.purge, self._runtime.zookeeper, entry, ())
        except (BadVersion, NoNode):
            return False  # it is restored, or purged by another
        self._seen.add(entry.topic_id)
        why = f"log dir {log_dir.path} of broker {self._runtime.broker_id} is full"
        log.warning("topic %s, deleted before, leaves the trash for good: %s", entry.name, why)
        self._runtime.tell("topic-purged", topic=entry.name, topic_id=str(entry.topic_id), reason=why)
        return True

    def _oldest(self, log_dir: LogDir) -> Entry | None:
        """In a thread: the topic that has been in the trash longest, of those that have a log on this disk; None where
        the disk has room again."""
        wanted = ROOM_BYTES_MIN + self._runtime.config.integer("message.max.bytes")
        if log_dir.file_system.free_bytes(log_dir.path) >= wanted:
            return None
        here = {one.topic_id for one in log_dir.trash.waiting.copy().values()}
        found = [one for one in trash.read_all(self._runtime.zookeeper, {}) if one.topic_id in here]
        return min((one for one in found if one.state == trash.WHOLE), key=lambda one: one.modified_ms, default=None)

    async def _look(self) -> None:
        now_ms, monotonic_ms = self._now()
        is_odd = bool(self._runtime.identity.clock_ahead_ms)
        is_doubted = self._trusted.doubt(now_ms, monotonic_ms) is not None or is_odd
        dirs = self._dirs()
        topic_ids = {waiting.topic_id for one in dirs for waiting in list(one.trash.waiting.values())}
        if not topic_ids:
            self._seen.clear()
            return
        gone = await self._runtime.executors.run(Purpose.OTHER, self._gone, topic_ids)
        for one in dirs:
            self._seen |= one.trash.taken
            one.trash.taken.clear()
        self._seen = (self._seen & topic_ids) | (topic_ids - gone)
        for one in dirs:
            for folder, waiting in one.trash.waiting.copy().items():
                if waiting.topic_id not in gone:
                    continue
                is_old = not is_doubted and now_ms - waiting.trashed_ms > self._retention_ms
                if waiting.topic_id in self._seen or is_old:
                    await self._discard(one, folder)

    def _gone(self, topic_ids: set[UUID]) -> set[UUID]:
        """In a thread. Nothing is gone in a ZooKeeper that is not this cluster's, or has lost what it had."""
        zookeeper = self._runtime.zookeeper
        here = {one.meta.cluster_id for one in self._log_dirs.dirs}
        if here != {cluster.cluster_id(zookeeper)}:
            return set()
        return trash.gone_ids(zookeeper, topic_ids)

    async def _discard(self, log_dir: LogDir, folder: str) -> None:
        waiting = log_dir.trash.waiting[folder]
        log.info("%s: its log in the trash is deleted for good (topic id %s)", waiting.name, waiting.topic_id)
        await self._runtime.executors.run_at(log_dir.path, Purpose.UPKEEP, log_dir.trash.discard, folder)
