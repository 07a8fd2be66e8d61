"""Preferred leaders: the first of each assignment, which placement spreads evenly, gets its place back.

On request (`prefer`), and by itself where ``auto.leader.rebalance.enable`` is set: every
``leader.imbalance.check.interval.seconds``, for each broker that does not lead more than
``leader.imbalance.per.broker.percentage`` of the partitions it is preferred for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication import election
from klog.replication.election import Decision, Nobody

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)


class Balance:
    """Event loop only."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._broker.config.flag("auto.leader.rebalance.enable"):
            self._task = self._broker.spawn(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        interval_s = self._broker.config.integer("leader.imbalance.check.interval.seconds")
        while True:
            await asyncio.sleep(interval_s)
            names = self.imbalanced()
            if names:
                log.info("giving %d partitions back to their preferred leaders", len(names))
                try:
                    await self.prefer(names)
                except KlogError as error:
                    log.warning("preferred leaders were not elected: %s", error.message)

    def imbalanced(self) -> list[TopicPartition]:
        """The partitions of those brokers that lead too few of what they are preferred for."""
        context = self._controller.context
        limit = self._broker.config.integer("leader.imbalance.per.broker.percentage")
        preferred: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in context.partitions():
            if name in context.states and name.topic not in context.deleting:
                preferred[context.replicas(name)[0]].append(name)
        found = []
        for broker_id, names in preferred.items():
            led_by_others = [name for name in names if context.states[name].leader != broker_id]
            if context.is_live(broker_id) and len(led_by_others) * 100 > limit * len(names):
                found += led_by_others
        return found

    async def prefer(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, str | None]:
        """Elect preferred leaders where they are in sync. Partition -> why not, None where it leads (already)."""
        controller = self._controller
        outcome: dict[TopicPartition, str | None] = {}

        def decide(name: TopicPartition) -> Decision | None:
            context = controller.context
            state = context.states.get(name)
            if state is None:
                return None
            found = election.preferred(state, context.replicas(name), context.situation(name))
            outcome[name] = found.reason if isinstance(found, Nobody) else None
            return found if isinstance(found, Decision) else None

        async with controller.acting:
            controller.require()
            await controller.change(names, decide)
        return outcome
