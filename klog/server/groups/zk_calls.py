"""ZooKeeper calls for groups: in a few threads, and with a time-out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from klog.coordination.zookeeper import ZooKeeper
from klog.errors import CoordinatorNotAvailable, SessionLost
from klog.server.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
"""More would only wait for the one connection to ZooKeeper."""


class ZkCalls:
    """Event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._zookeeper = runtime.zookeeper
        self._loop = runtime.loop
        self._connected = runtime.connected
        self._threads = ThreadPoolExecutor(THREADS, "groups-read")
        self.wait_s = runtime.config.integer("offsets.commit.timeout.ms") / 1000

    async def call(self, function: Callable[Concatenate[ZooKeeper, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """``function(zookeeper, ...)`` in a thread. Raises CoordinatorNotAvailable without an answer within `wait_s`.

        It waits for a connection without a thread, since there are few.
        """
        try:
            async with asyncio.timeout(self.wait_s):
                await self._connected.wait()
                return await self.compute(lambda: function(self._zookeeper, *arguments, **named))
        except TimeoutError:
            raise CoordinatorNotAvailable("ZooKeeper does not answer in time") from None
        except SessionLost as error:
            raise CoordinatorNotAvailable(error.message) from error

    async def compute(self, function: Callable[[], T]) -> T:
        """``function()`` in one of these threads, for as long as it takes."""
        return await self._loop.run_in_executor(self._threads, function)

    def close(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
