"""Leaders that ask to have others lead, granted: see `klog.coordination.handovers`.

A controller whom no other broker answers cannot tell anybody what it decides. When somebody asks, which may be itself,
it leaves its office to one of those, once in the lag time at most, and the next controller grants the wish. Is that one
no better off, then the office comes round, and what was asked for stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from klog.coordination import handovers
from klog.coordination.brokers import Registration
from klog.coordination.handovers import Handover
from klog.errors import BadVersion, KlogError, NoNode, StaleBrokerEpoch
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.executors import Purpose
from klog.server.reach import reach

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Before what could not be read is tried again: ZooKeeper is away."""
ANSWER_SHARE = 8
"""Whoever has not answered within this part of the lag time is out of reach."""


class Handovers:
    """Event loop only; ZooKeeper is asked in threads."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lag_s = broker.config.integer("replica.lag.time.max.ms") / 1000
        self._resigned_s: float | None = None

    def start(self) -> None:
        """The term has begun: grant what is asked for."""
        self._asked.set()
        self._task = self._broker.spawn(self._heed())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._broker.from_thread(self._asked.set)

    async def _heed(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                wishes = await self._broker.executors.run(
                    Purpose.ELECTIONS, handovers.asked, self._broker.zookeeper, self._watch
                )
                if wishes and self._may_resign and await self._is_alone():
                    await self._resign()
                    return
                for one in wishes:
                    await self._grant(one)
            except KlogError as error:
                if not self._controller.active:
                    return
                log.warning("what leaders ask to have led by others is not done yet: %s", error.message)
                await self._broker.pause(AGAIN_S)
                self._asked.set()

    async def _grant(self, one: Handover) -> None:
        controller = self._controller
        names = [name for name, epoch in one.epochs.items() if self._leads(one.broker_id, name, epoch)]
        if names:
            log.warning("broker %d is reached by no follower: others lead %d partitions", one.broker_id, len(names))
            try:
                await controller.give_up_leadership(
                    one.broker_id, one.incarnation, names, "is reached by no follower, and gives way"
                )
            except StaleBrokerEpoch as error:
                log.info("not granted: %s", error.message)
        await self._broker.executors.run(
            Purpose.ELECTIONS, handovers.done, self._broker.zookeeper, one, controller.fence
        )

    def _leads(self, broker_id: int, name: TopicPartition, epoch: int) -> bool:
        context = self._controller.context
        state = context.states.get(name)
        return context.knows(name) and state is not None and (state.leader, state.leader_epoch) == (broker_id, epoch)

    # --- a controller that reaches nobody ---------------------------------------------------------------------------

    @property
    def _may_resign(self) -> bool:
        return self._resigned_s is None or time.monotonic() - self._resigned_s >= self._lag_s

    async def _resign(self) -> None:
        log.warning("no other broker answers, and all are registered: the controller's office is left to them")
        self._resigned_s = time.monotonic()
        try:
            await self._broker.office.resign()
        except (BadVersion, NoNode):
            return  # another is elected already

    async def _is_alone(self) -> bool:
        """Whether there are others, and none of them answers."""
        others = [found for one, found in self._controller.context.live.items() if one != self._broker.broker_id]
        asked = [asyncio.ensure_future(self._answers(one)) for one in others]
        try:
            for one in asyncio.as_completed(asked):
                if await one:
                    return False
        finally:
            for each in asked:
                each.cancel()
        return bool(others)

    async def _answers(self, there: Registration) -> bool:
        """Asked anew: a connection that is cut off does not end."""
        within_s = self._lag_s / ANSWER_SHARE
        try:
            async with asyncio.timeout(within_s):
                channel = await reach(self._broker, there.broker, timeout_s=within_s)
                try:
                    await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
                finally:
                    await channel.close()
        except (TimeoutError, KlogError):
            return False
        return True
