"""Producer ids, claimed from ZooKeeper in blocks, ahead of need.

An idempotent producer begins with one. With a block in stock, producers can begin while ZooKeeper is unreachable.
"""

from __future__ import annotations

import asyncio
import logging

from klog.coordination.producer_ids import BLOCK, claim_block
from klog.errors import KlogError
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)


class ProducerIds:
    """Event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ids = range(0)
        self._spare = range(0)
        self.below = 0
        """An upper bound of the ids that this broker has claimed."""
        self._claiming = asyncio.Lock()
        self._stocking: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """A unique id; raises ZooKeeperError when the stock is empty and no block can be claimed."""
        if not self._ids:
            if not self._spare:
                await self._claim()
            self._ids, self._spare = self._spare, range(0)
        first, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) < BLOCK // 2:
            self.stock_up()
        return first

    def stock_up(self) -> None:
        """Claim the next block ahead of need; a failure matters only when the stock is used up."""
        if not self._spare and (self._stocking is None or self._stocking.done()):
            self._stocking = self._runtime.spawn(self._stock_up())

    async def _stock_up(self) -> None:
        try:
            await self._claim()
        except KlogError as error:
            log.warning("the next block of producer ids could not be claimed: %s", error.message)

    async def _claim(self) -> None:
        async with self._claiming:
            if not self._spare:
                self._spare = await self._runtime.at_zookeeper(Purpose.OTHER, claim_block, self._runtime.broker_id)
                self.below = self._spare.stop
