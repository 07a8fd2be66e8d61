"""Deletes from the start of logs, beside the requests: retention and DeleteRecords (rule L4).

A deletion has four steps: plan it, make the new start offset durable, stop serving the removed segments, remove their
files. The first and the third run on the event loop, which owns the logs; the others wait for the disk, in a thread. A
log dir has one deletion at a time: between two steps of one, no other may move the same start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from klog.server.executors import Executors, Purpose
from klog.storage.log_dir import RetentionRun


class Deletions:
    """One per broker. Event loop only."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors
        self._disks: dict[str, _Disk] = {}

    async def run(self, disk: str, plan: Callable[[], RetentionRun]) -> None:
        """Wait for the log dir (its path) to be free, then delete what ``plan`` returns; durable on return."""
        at = self._at(disk)
        async with at.running:
            await at.no_truncations.wait()
            deletion = plan()
            if not deletion.plans:
                return
            await self._executors.run_at(disk, Purpose.UPKEEP, deletion.persist)
            deletion.apply()
            await self._executors.run_at(disk, Purpose.UPKEEP, deletion.unlink)

    @contextlib.asynccontextmanager
    async def none_running(self, disk: str) -> AsyncIterator[None]:
        """Block deletions in a log dir, while threads truncate its logs at their other ends. Many may hold it."""
        at = self._at(disk)
        async with at.running:
            at.truncations += 1
            at.no_truncations.clear()
        try:
            yield
        finally:
            at.truncations -= 1
            if not at.truncations:
                at.no_truncations.set()

    def _at(self, disk: str) -> _Disk:
        return self._disks.setdefault(disk, _Disk())


class _Disk:
    """The deletions and truncations at one log dir."""

    def __init__(self) -> None:
        self.running = asyncio.Lock()
        self.truncations = 0
        self.no_truncations = asyncio.Event()
        self.no_truncations.set()
