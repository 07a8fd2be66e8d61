"""Keeps a broker's copy of a part of ZooKeeper's tree that has notices of changes: read at the start and by notice.

The notices are watched. After a lost connection, with which the watches were lost, everything is read again. While
ZooKeeper is away the copy stays, and reads are retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from klog.coordination.zookeeper import WatchEvent
from klog.errors import KlogError
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

AGAIN_S: Final = 0.5
PATIENCE_S: Final = 5.0
"""How long a start, or the answer to a change, waits for a look."""

R = TypeVar("R")


class WatchedReads(Generic[R]):
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(
        self, runtime: Runtime, what: str, read: Callable[[bool], R], take: Callable[[R], bool], *, pause_s: float
    ) -> None:
        """``read``, in a thread, sets a watch by `fired` and then reads what has changed; with True, everything.
        ``take`` gets its result, and returns whether there is more to read at once. ``pause_s``: pause between looks,
        unless a look is awaited; one look sees all changes in between. ``what``: for the log."""
        self._runtime = runtime
        self._what = what
        self._read = read
        self._take = take
        self._pause_s = pause_s
        self._is_all_doubted = False
        """Everything must be read."""
        self._wakeup = asyncio.Event()
        self._awaited = asyncio.Event()
        """A look is awaited: the pause before it ends."""
        self._looks_begun = 0
        self._looks_done = 0
        self._looked = asyncio.Event()

    async def start(self) -> None:
        """Start; returns when all has been read, or cannot be read soon."""
        self._is_all_doubted = True
        self.begin()
        await self.look()

    def begin(self) -> None:
        """Start, where all has been read."""
        self._runtime.spawn(self._run())

    async def look(self) -> None:
        """Read what has changed until now; returns after `PATIENCE_S` at the latest."""
        wanted = self._looks_begun + 1
        self._wakeup.set()
        self._awaited.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while self._looks_done < wanted:
                    self._looked.clear()
                    await self._looked.wait()

    def fired(self, event: WatchEvent) -> None:
        """The watch, in ZooKeeper's thread. An event without a path: the connection was lost, and its watches."""
        self._runtime.from_thread(self._doubt, bool(event.path))

    def _doubt(self, is_notice: bool) -> None:
        if not is_notice:
            self._is_all_doubted = True
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._awaited.clear()
            self._looks_begun += 1
            number, is_all = self._looks_begun, self._is_all_doubted
            self._is_all_doubted = False
            try:
                found = await self._runtime.executors.run(Purpose.OTHER, self._read, is_all)
            except KlogError as error:
                log.warning("changes of %s are not applied yet: %s", self._what, error.message)
                self._is_all_doubted = True
                self._wakeup.set()
                await self._runtime.pause(AGAIN_S)
                continue
            if self._take(found):
                self._wakeup.set()
            self._looks_done = number
            self._looked.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._awaited.wait()
