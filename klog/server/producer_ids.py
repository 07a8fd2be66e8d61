"""Producer ids to give out: claimed from ZooKeeper in blocks, ahead of need.

Idempotent producers begin with one. With a block in stock they can begin while ZooKeeper is away, as all that is in
sync goes on without it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from klog.coordination.producer_ids import BLOCK, claim_block
from klog.errors import KlogError
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


class ProducerIds:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids = range(0)
        self._spare = range(0)
        self.below = 0
        """All that were claimed here lie below."""
        self._claiming = asyncio.Lock()
        self._stocking: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """An id that nobody else has; raises ZooKeeperError when there is none in stock and none can be claimed."""
        if not self._ids:
            if not self._spare:
                await self._claim()
            self._ids, self._spare = self._spare, range(0)
        first, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) < BLOCK // 2:
            self.stock_up()
        return first

    def stock_up(self) -> None:
        """Claim the next block in good time; what goes wrong shows when the stock is used up."""
        if not self._spare and (self._stocking is None or self._stocking.done()):
            self._stocking = self._broker.spawn(self._stock_up())

    async def _stock_up(self) -> None:
        try:
            await self._claim()
        except KlogError as error:
            log.warning("no producer ids could be claimed ahead: %s", error.message)

    async def _claim(self) -> None:
        async with self._claiming:
            if not self._spare:
                self._spare = await self._broker.executors.run(
                    Purpose.OTHER, claim_block, self._broker.zookeeper, self._broker.broker_id
                )
                self.below = self._spare.stop
