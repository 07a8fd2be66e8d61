"""Writes a leader's ISR changes to ZooKeeper, and determines the outcome of each (rules R2, Z1, Z2).

A write names the version that it replaces, and is fenced by the topic's node and by the broker's own registration.
Changes that come together go in one multi. If a write does not plainly succeed, the state is read again:

    our own content, one version on       the write has succeeded, whatever the answer was
    same leader, same epoch, newer        another writer has changed the ISR: adopt it
    anything else, or a fence has failed  another broker leads: step down, fail every waiting acknowledgement
    ZooKeeper is away                     the outcome is unknown: the union of both ISRs counts, try again
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from klog.coordination import partition_states
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import Check, ZooKeeper
from klog.errors import BadVersion, KlogError, NodeExists, NoNode
from klog.names import TopicPartition, first_few
from klog.replication.isr import IsrChange
from klog.replication.led_partition import LedPartition
from klog.server import image
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Pause after a write of unknown outcome, which has already waited for a session's time-out."""

Fences = Mapping[TopicPartition, Sequence[Check]]


class _Wanted(NamedTuple):
    partition: LedPartition
    change: IsrChange

    @property
    def is_open(self) -> bool:
        """Whether the partition still waits for the outcome."""
        return self.partition.change is self.change and not self.partition.resigned


class IsrWriter:
    """Event loop only; ZooKeeper is asked in threads, one write at a time."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterImage,
        report_isr: Callable[[Collection[TopicPartition]], None],
        fence_of: Callable[[TopicPartition], Sequence[Check]],
        step_down: Callable[..., None],
    ) -> None:
        self._runtime = runtime
        self._image = cluster
        self._report_isr = report_isr
        self._fence_of = fence_of
        self._step_down = step_down
        self._queue: dict[TopicPartition, _Wanted] = {}
        self._is_writing = False
        self._writing: set[_Wanted] = set()

    def write(self, partition: LedPartition, change: IsrChange) -> None:
        """Write a change that the partition has proposed; the partition gets the outcome. May be repeated."""
        wanted = _Wanted(partition, change)
        if wanted not in self._writing:
            self._queue[partition.topic_partition] = wanted
        if not self._is_writing:
            self._is_writing = True
            self._runtime.spawn(self._drain())

    async def _drain(self) -> None:
        try:
            while self._queue:
                queue, self._queue = self._queue, {}
                self._writing = set(queue.values())
                await self._write({name: one for name, one in queue.items() if one.is_open})
        finally:
            self._is_writing = False
            self._writing = set()

    async def _write(self, wanted: dict[TopicPartition, _Wanted]) -> None:
        registration = self._runtime.identity.registration
        for name, one in list(wanted.items()):
            if registration is None or one.partition.incarnation != registration.incarnation:
                del wanted[name]
                self._step_down(one.partition, "the broker has registered again since")
        if registration is None or not wanted:
            return
        states = {name: one.partition.changed(one.change) for name, one in wanted.items()}
        fences = {name: (*self._fence_of(name), registration.fence) for name in wanted}
        try:
            found = await self._runtime.at_zookeeper(Purpose.IN_SYNC, write_states, states, fences)
        except KlogError as error:
            log.warning("an ISR change of %s is not decided yet: %s", _shown(wanted), error.message)
            await asyncio.sleep(AGAIN_S)
            for name, one in wanted.items():
                if one.is_open:
                    self._queue.setdefault(name, one)
            return
        written = [name for name, one in wanted.items() if self._settle(one, found[name])]
        if written:
            self._report_isr(written)

    def _settle(self, wanted: _Wanted, found: PartitionState | None) -> bool:
        """Whether the change is written as proposed."""
        partition, change = wanted
        if not wanted.is_open:
            return False
        if found == replace(partition.changed(change), version=change.state_version + 1):
            before = partition.isr
            partition.isr_written(change, change.state_version + 1)
            log.info("%s: ISR %s (%s)", partition.topic_partition, list(change.isr), change.reason)
            self._runtime.tell(
                "isr-shrunk" if len(change.isr) < len(before) else "isr-expanded",
                topic=partition.topic_partition.topic,
                partition=partition.topic_partition.partition,
                leader=partition.broker_id,
                leader_epoch=partition.leader_epoch,
                isr=list(change.isr),
                old_isr=list(before),
                reason=change.reason,
            )
            return True
        self.judge(partition, found)
        return False

    def judge(self, partition: LedPartition, found: PartitionState | None) -> None:
        """Follow the state in ZooKeeper; None if it can no longer be this leader's."""
        ours = partition.broker_id, partition.leader_epoch
        if found is None or found.version < partition.state_version:
            self._step_down(partition, "its state in ZooKeeper is fenced, deleted, or created again")
        elif (found.leader, found.leader_epoch) == ours:
            if partition.adopt(partition.replicas, found):
                log.info("%s: ISR %s, changed by another writer", partition.topic_partition, list(found.isr))
        else:
            # Clients that find no leader here ask for the new one; if we are cut off, no controller tells us.
            image.learn(self._image, partition.topic_partition, found.leader, found.leader_epoch, found.isr)
            self._step_down(partition, f"broker {found.leader} leads in epoch {found.leader_epoch}", found.version)

    async def read_again(self, partitions: Iterable[LedPartition]) -> None:
        """Rule R6: read in ZooKeeper whether this broker still leads these.

        An answer older than a write of ours does not count: the state would look as if created again.
        """
        asked = {partition.topic_partition: partition for partition in partitions}
        known = {name: partition.state_version for name, partition in asked.items()}
        try:
            found = await self._runtime.at_zookeeper(Purpose.IN_SYNC, partition_states.read_many, list(asked))
        except KlogError as error:
            log.debug("partition states could not be read: %s", error.message)
            return
        for name, partition in asked.items():
            if not partition.resigned and partition.state_version == known[name]:
                self.judge(partition, found[name])


def write_states(
    zookeeper: ZooKeeper, wanted: Mapping[TopicPartition, PartitionState], fences: Fences
) -> dict[TopicPartition, PartitionState | None]:
    """Replace states; returns the states now in ZooKeeper, ours or another writer's. None: fenced off, or deleted.

    In a thread. Raises ZooKeeperError, SessionLost among them, if the outcome is unknown.
    """
    outcome: dict[TopicPartition, PartitionState | None] = {}
    left = dict(wanted)
    for together in (True, True, False):
        if not left:
            break
        groups = [left] if together else [{name: state} for name, state in left.items()]
        for group in groups:
            try:
                outcome |= partition_states.write_many(zookeeper, group, _together(fences, group))
                left = {name: state for name, state in left.items() if name not in group}
            except (BadVersion, NodeExists, NoNode):
                continue
        # In a multi one failure fails the others; of several multis some may be written.
        for name, found in partition_states.read_many(zookeeper, left).items():
            if found is None or found.version != left[name].version:
                outcome[name] = found
                del left[name]
    return outcome | dict.fromkeys(left)  # alone, at the right version, and rejected: a fence has failed


def _together(fences: Fences, names: Iterable[TopicPartition]) -> list[Check]:
    return list(dict.fromkeys(check for name in names for check in fences[name]))


def _shown(names: Iterable[TopicPartition]) -> str:
    return first_few(sorted(map(str, names)), 5)
