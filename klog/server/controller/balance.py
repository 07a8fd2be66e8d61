"""Automatic leader balance: moves leadership back to the preferred leaders, which placement spreads evenly.

Where ``auto.leader.rebalance.enable`` is set: every ``leader.imbalance.check.interval.seconds``, for each broker that
does not lead more than ``leader.imbalance.per.broker.percentage`` of the partitions it is the preferred leader of.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from klog.errors import KlogError
from klog.names import TopicPartition, counted
from klog.replication import leader_election
from klog.replication.leader_election import Decision
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.partition_writer import PartitionWriter
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)


class Balance:
    """Event loop only."""

    def __init__(self, runtime: Runtime, state: ControllerState, partitions: PartitionWriter) -> None:
        self._runtime = runtime
        self._state = state
        self._partitions = partitions

    def start(self) -> None:
        """The term has begun."""
        if self._runtime.config.flag("auto.leader.rebalance.enable"):
            self._state.spawn(self._run())

    async def _run(self) -> None:
        interval_s = self._runtime.config.integer("leader.imbalance.check.interval.seconds")
        while True:
            await asyncio.sleep(interval_s)
            names = self._imbalanced()
            if names:
                log.info("electing the preferred leaders of %s", counted(len(names), "partition"))
                try:
                    async with self._state.lock:
                        self._state.require()
                        await self._partitions.change(names, self._decide)
                except KlogError as error:
                    log.warning("preferred leaders were not elected: %s", error.message)

    def _imbalanced(self) -> list[TopicPartition]:
        """The partitions led by others whose preferred leader leads too few of its own."""
        context = self._state.context
        limit = self._runtime.config.integer("leader.imbalance.per.broker.percentage")
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

    def _decide(self, name: TopicPartition) -> Decision | None:
        context = self._state.context
        state = context.states.get(name)
        if state is None:
            return None
        found = leader_election.preferred(state, context.replicas(name), context.election_input(name))
        return found if isinstance(found, Decision) else None
