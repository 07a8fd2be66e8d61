"""Checks that a request comes from the current controller (rule R10).

A request of the controller has its epoch. An epoch below the highest one obeyed so far belongs to a deposed controller.
For an epoch above the highest one read in ZooKeeper, this broker first reads ``/controller_epoch`` again: otherwise a
forged number would depose every real controller, whose epoch is lower.

A refusal has a code and nothing else: epochs and incarnations are what a forger lacks.
"""

from __future__ import annotations

import asyncio
import logging

from klog.coordination import controller_election as registry
from klog.errors import NotController, StaleBrokerEpoch, StaleControllerEpoch
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)


class Authority:
    """Event loop only; a thread reads ZooKeeper, once for all waiting requests."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._obeyed = 0
        self._written = 0
        self._reading = asyncio.Lock()
        self._reads_begun = 0

    @property
    def epoch(self) -> int:
        """The highest controller epoch that this broker knows of."""
        return max(self._obeyed, self._written)

    def learn(self, epoch: int) -> None:
        """This broker has read the epoch in ZooKeeper, or written it there."""
        self._written = max(self._written, epoch)

    def begin(self, epoch: int) -> None:
        """This broker is the controller, in this epoch: it obeys no earlier one from now on."""
        self.learn(epoch)
        self._obeyed = max(self._obeyed, epoch)

    async def check(self, epoch: int, incarnation: int) -> None:
        """Return if the broker may obey the request; between the check and the return the task does not wait.

        Raises StaleControllerEpoch, StaleBrokerEpoch, NotController if ZooKeeper has no such epoch, and SessionLost if
        ZooKeeper cannot be read.
        """
        self._check(epoch, incarnation)
        if epoch > self._written:
            await self._read(epoch)
            self._check(epoch, incarnation)
        if epoch > self._written:
            log.warning("a request of controller epoch %d is refused: ZooKeeper is at epoch %d", epoch, self._written)
            raise NotController(f"controller epoch {epoch} has not begun: ZooKeeper is at {self._written}")
        self._obeyed = epoch

    def _check(self, epoch: int, incarnation: int) -> None:
        if epoch < self._obeyed:
            raise StaleControllerEpoch(f"a request of controller epoch {epoch}; epoch {self._obeyed} has begun")
        now = self._runtime.identity.incarnation
        if incarnation != now:
            raise StaleBrokerEpoch(f"a request for incarnation {incarnation}; this is {now}")

    async def _read(self, epoch: int) -> None:
        came_at = self._reads_begun
        async with self._reading:
            if self._reads_begun > came_at:
                return  # a read that began after this call has ended: its result serves this call too
            self._reads_begun += 1
            run, zookeeper = self._runtime.executors.run, self._runtime.zookeeper
            self.learn(await run(Purpose.ELECTIONS, registry.written_epoch, zookeeper, epoch))
