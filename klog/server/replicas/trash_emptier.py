"""Deletes the folders in the trash of this broker's disks whose topic is gone for good.

A folder goes when, by a ZooKeeper server that is up to date, neither an entry of the trash nor a topic has the topic's
id (rule R10). Where this broker has never seen the entry, the retention time of the folder itself must have passed,
too: a ZooKeeper that has lost its data must not empty the trash. While the clock is in doubt (rule L7), such folders
stay.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from klog.coordination import trash
from klog.errors import KlogError
from klog.server.executors import Purpose
from klog.server.runtime import Runtime
from klog.storage.log_dir import LogDir, LogDirs
from klog.storage.retention import RetentionClock

log = logging.getLogger(__name__)

LOOK_EVERY_MIN_S = 0.25
LOOK_EVERY_MAX_S = 10.0
LOOKS_A_RETENTION = 4


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
        while True:
            await asyncio.sleep(look_every_s(self._retention_ms))
            try:
                await self._look()
            except KlogError as error:
                log.warning("the trash is not emptied yet: %s", error.message)

    def _now(self) -> tuple[int, int]:
        """By the wall clock and by the monotonic clock, in milliseconds."""
        return self._clock.now_ms(), int(self._clock.monotonic_s() * 1000)

    async def _look(self) -> None:
        now_ms, monotonic_ms = self._now()
        is_doubted = self._trusted.doubt(now_ms, monotonic_ms) is not None
        dirs = [one for one in self._log_dirs.dirs if one.failure is None and not one.is_stalled]
        topic_ids = {waiting.topic_id for one in dirs for waiting in list(one.trash.waiting.values())}
        if not topic_ids:
            self._seen.clear()
            return
        executors, zookeeper = self._runtime.executors, self._runtime.zookeeper
        gone = await executors.run(Purpose.OTHER, trash.gone_ids, zookeeper, topic_ids)
        self._seen = (self._seen & topic_ids) | (topic_ids - gone)
        for one in dirs:
            for folder, waiting in one.trash.waiting.copy().items():
                if waiting.topic_id not in gone:
                    continue
                is_old = not is_doubted and now_ms - waiting.trashed_ms > self._retention_ms
                if waiting.topic_id in self._seen or is_old:
                    await self._discard(one, folder)

    async def _discard(self, log_dir: LogDir, folder: str) -> None:
        waiting = log_dir.trash.waiting[folder]
        log.info("%s: its log in the trash is deleted for good (topic id %s)", waiting.name, waiting.topic_id)
        await self._runtime.executors.run_at(log_dir.path, Purpose.UPKEEP, log_dir.trash.discard, folder)
