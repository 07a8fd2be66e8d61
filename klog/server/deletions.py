"""Deleting from the start of logs, beside the requests: retention and DeleteRecords (rule L4).

A deletion is planned, its new start is kept durably, the removed segments are served no more, and their files go. The
first and third step belong to the event loop, which owns the logs; the others wait for the disk, in a thread. One
deletion of the broker runs at a time, whoever asks for it: between two steps of one, no other may move the same start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from klog.server.executors import Executors, Purpose
from klog.storage.log_dir import RetentionRun


class Deletions:
    """One for a broker. Event loop only."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors
        self._running = asyncio.Lock()
        self._cuts = 0
        self._no_cuts = asyncio.Event()
        self._no_cuts.set()

    async def run(self, plan: Callable[[], RetentionRun]) -> None:
        """Delete what ``plan`` says once it is our turn; done and durable when it returns."""
        async with self._running:
            await self._no_cuts.wait()
            deletion = plan()
            if not deletion.plans:
                return
            await self._executors.run(Purpose.UPKEEP, deletion.persist)
            deletion.apply()
            await self._executors.run(Purpose.UPKEEP, deletion.unlink)

    @contextlib.asynccontextmanager
    async def none_running(self) -> AsyncIterator[None]:
        """No deletion runs meanwhile: for a thread that cuts a log at its other end. Many may cut theirs at a time."""
        async with self._running:
            self._cuts += 1
            self._no_cuts.clear()
        try:
            yield
        finally:
            self._cuts -= 1
            if not self._cuts:
                self._no_cuts.set()
