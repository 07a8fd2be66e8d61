"""ZooKeeper calls for groups, with a time-out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from klog.coordination.zookeeper import ZooKeeper
from klog.errors import CoordinatorNotAvailable, SessionLost
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")


class ZkCalls:
    """Event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._zookeeper = runtime.zookeeper
        self._executors = runtime.executors
        self._connected = runtime.connected
        self.wait_s = runtime.config.integer("offsets.commit.timeout.ms") / 1000

    async def call(self, function: Callable[Concatenate[ZooKeeper, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """``function(zookeeper, ...)`` in a thread. Raises CoordinatorNotAvailable without an answer within `wait_s`.

        It waits for a connection without a thread, since there are few.
        """
        try:
            async with asyncio.timeout(self.wait_s):
                await self._connected.wait()
                return await self._executors.run(Purpose.GROUPS, function, self._zookeeper, *arguments, **named)
        except TimeoutError:
            raise CoordinatorNotAvailable("ZooKeeper does not answer in time") from None
        except SessionLost as error:
            raise CoordinatorNotAvailable(error.message) from error
