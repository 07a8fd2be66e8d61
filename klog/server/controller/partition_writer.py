"""Writes the states that the controller decides, and sends them to the brokers concerned."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from klog.coordination import partition_states
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.errors import BadVersion, NodeExists, NoNode, NotController
from klog.names import TopicPartition, counted
from klog.replication.leader_election import Decision
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.requests import Stop
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

TRIES = 10
TOGETHER = 1000
"""Partitions per round of decide, write and send: the first of ten thousand need not wait for the last. It takes the
event loop some 50 ms."""

Decide = Callable[[TopicPartition], Decision | None]
"""The state that a partition must get; None if it is right."""


class PartitionWriter:
    """Event loop only, under the controller's lock; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime, state: ControllerState, channels: BrokerChannels) -> None:
        self._runtime = runtime
        self._state = state
        self._channels = channels

    async def reconcile(self, names: Iterable[TopicPartition]) -> None:
        """Decide, write and send the leaders and in-sync sets of these partitions. Raises KlogError.

        Those whose leader is dead come first: until then they serve no client.
        """
        context = self._state.context
        known = [name for name in names if context.knows(name)]
        known.sort(key=self._is_led)
        for at in range(0, len(known), TOGETHER):
            await self.change(known[at : at + TOGETHER], context.decide)
            await asyncio.sleep(0)  # where nothing was to be written

    def _is_led(self, name: TopicPartition) -> bool:
        state = self._state.context.states.get(name)
        return state is not None and self._state.context.is_live(state.leader)

    def send(self, names: Iterable[TopicPartition]) -> None:
        """Send the states of these partitions to all their replicas."""
        states: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in names:
            for broker_id in self._state.context.replicas(name):
                states[broker_id].append(name)
        for broker_id, hosted in states.items():
            self._channels.send_states(broker_id, hosted)

    async def change(self, names: Iterable[TopicPartition], decide: Decide) -> dict[TopicPartition, Decision]:
        """Write what ``decide`` returns for each partition until it returns None for all, and send it.

        A state that its leader has changed meanwhile is read and decided again.
        """
        done: dict[TopicPartition, Decision] = {}
        context = self._state.context
        left = {name for name in names if context.knows(name) and name.topic not in context.deleting}
        for _ in range(TRIES):
            decided = {name: found for name in left if (found := decide(name)) is not None}
            if not decided:
                return done
            before = {name: context.states.get(name) for name in decided}
            began_s = time.perf_counter()
            try:
                written = await self._state.write(self._write, decided, before)
            except (BadVersion, NodeExists, NoNode):
                await self._state.run(self._state.check_term)
                damage: dict[TopicPartition, str] = {}
                states = await self._state.run(partition_states.read_many, self._runtime.zookeeper, list(left), damage)
                for name, what in damage.items():
                    log.error("%s stays unchanged, its state cannot be read: %s", name, what)
                context.take_states(states)
                left -= damage.keys()
                continue
            context.take_states(written)
            if self._send(before, decided):
                self._runtime.measures.elections.took((time.perf_counter() - began_s) * 1000)
            done.update(decided)
            left = set(decided)
        raise NotController(f"the states of {counted(len(left), 'partition')} were still changing after {TRIES} tries")

    def _write(
        self, decided: Mapping[TopicPartition, Decision], before: Mapping[TopicPartition, PartitionState | None]
    ) -> dict[TopicPartition, PartitionState]:
        """In a thread."""
        zookeeper, fence, epoch = self._runtime.zookeeper, self._state.fence, self._state.require().epoch
        new = {name: found.applied(None, epoch) for name, found in decided.items() if before[name] is None}
        again = {name: found.applied(before[name], epoch) for name, found in decided.items() if name not in new}
        written: dict[TopicPartition, PartitionState] = {}
        if new:
            written |= partition_states.create_many(zookeeper, new, fence)
        if again:
            written |= partition_states.write_many(zookeeper, again, fence)
        return written

    def _send(
        self, before: Mapping[TopicPartition, PartitionState | None], decided: Mapping[TopicPartition, Decision]
    ) -> int:
        """To the replicas concerned, and to all brokers for Metadata. Returns how many have a new leader epoch."""
        context = self._state.context
        new_epochs = 0
        states: dict[int, list[TopicPartition]] = defaultdict(list)
        stops: dict[int, dict[TopicPartition, Stop]] = defaultdict(dict)
        for name, found in decided.items():
            old = before[name]
            is_new_epoch = old is None or old.leader_epoch != found.leader_epoch
            new_epochs += is_new_epoch
            concerned = (
                context.replicas(name) if old is None or is_new_epoch else (found.leader, *{*old.isr} - {*found.isr})
            )
            for one in concerned:
                if one in context.leaving and one != found.leader:
                    stops[one][name] = Stop(context.topics[name.topic].topic_id, found.leader_epoch, delete=False)
                elif is_new_epoch or one == found.leader:
                    states[one].append(name)
            self._report(name, old, found, is_new_epoch=is_new_epoch)
        for broker_id, names in states.items():
            self._channels.send_states(broker_id, names)
        for broker_id, what in stops.items():
            self._channels.send_stop(broker_id, what)
        self._channels.send_metadata(decided)
        if new_epochs:
            log.info("new leader epochs of %s", counted(new_epochs, "partition"))
        return new_epochs

    def _report(self, name: TopicPartition, old: PartitionState | None, found: Decision, *, is_new_epoch: bool) -> None:
        if found.unclean:
            log.error("%s: unclean election of %d: %s", name, found.leader, found.reason)
        facts: dict[str, Any] = {
            "topic": name.topic,
            "partition": name.partition,
            "leader": found.leader,
            "leader_epoch": found.leader_epoch,
            "isr": list(found.isr),
            "reason": found.reason,
        }
        if found.leader == NO_LEADER:
            log.error("%s has no leader: %s", name, found.reason)
            self._runtime.tell("partition-offline", **facts)
        elif is_new_epoch:
            log.debug("%s: leader %d, epoch %d: %s", name, found.leader, found.leader_epoch, found.reason)
            kind = "unclean-election" if found.unclean else "leader-elected"
            self._runtime.tell(kind, **facts, old_leader=NO_LEADER if old is None else old.leader)
        else:
            self._runtime.tell("isr-changed", **facts, old_isr=[] if old is None else list(old.isr))
