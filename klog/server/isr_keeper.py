"""Looks after the ISRs of the partitions that this broker leads: at a beat, and when a follower may have caught up.

At each beat, a quarter of ``replica.lag.time.max.ms``, every replicated partition notes where its log ends; who has not
flushed up to a note that is older than the lag time leaves the ISR (rule R4). The clock that this is measured by stands
still while this process does: a broker that was stopped for a while must not find its followers late for that.

A leader that no follower reaches does not shrink the ISR to itself at once: it asks, through ZooKeeper, to have one of
them lead (`coordination.handovers`). Until that is known, or half the lag time is over, the ISR stays as it is: whoever
is elected has everything that was acknowledged, since nothing more is (rule R2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from klog.coordination import handovers
from klog.coordination.zookeeper import Check
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication.partition import Partition
from klog.server.executors import Purpose
from klog.server.isr_writer import IsrWriter
from klog.storage.log import Log

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

BEATS = 4
"""In the lag time: a follower is found late between one lag time and one and a half."""
LOOK_EVERY_S = 0.25
"""After others were asked to lead: whether they do."""
TOGETHER_S = 0.01
"""Followers that catch up so soon after one another go into one write."""


class Led(Protocol):
    """What the keeper is given: `klog.server.replicas.Replicas`."""

    partitions: dict[TopicPartition, Partition]

    def fence_of(self, name: TopicPartition) -> Sequence[Check]: ...
    def step_down(self, partition: Partition, why: str, seen_version: int = -1) -> None: ...

    def is_rotten(self, one: Log) -> bool:
        """Whether some of it is known not to check any more."""


class IsrKeeper:
    """Event loop only."""

    def __init__(self, broker: Broker, led: Led) -> None:
        self._broker = broker
        self._led = led
        self._writer = IsrWriter(broker, led.fence_of, led.step_down)
        self._lag_s = broker.config.integer("replica.lag.time.max.ms") / 1000
        messages = broker.config["replica.lag.max.messages"]
        self._lag_messages = messages if isinstance(messages, int) else None
        self._clock_s = 0.0
        self._noticed: set[Partition] = set()
        self._lost_dirs: set[str] = set()
        self._given_up: dict[TopicPartition, float] = {}
        self._handed_over: dict[TopicPartition, float] = {}
        """Partition -> when others were asked to lead it, since no follower reaches us."""
        self._full_since: dict[str, float] = {}
        """Log dir -> since when it has been full."""
        self._beating: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin, if that has not happened."""
        if self._beating is None and not self._closed:
            self._beating = self._broker.spawn(self._beat())

    def close(self) -> None:
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()

    # --- who is in sync ---------------------------------------------------------------------------------------------

    def look_at(self, partition: Partition) -> None:
        """A follower of it may have caught up."""
        if not self._noticed and not self._closed:
            self._broker.loop.call_later(TOGETHER_S, self._look_at_noticed)
        self._noticed.add(partition)

    def look_at_all(self) -> None:
        """Who lives has changed, so others may join."""
        for partition in self._led.partitions.values():
            if len(partition.isr) < len(partition.replicas):
                self.look_at(partition)

    def _look_at_noticed(self) -> None:
        noticed, self._noticed = self._noticed, set()
        if not self._closed:
            self._propose(noticed)

    def _propose(self, partitions: set[Partition]) -> None:
        alive = self._alive
        for partition in partitions:
            if self._is_handing_over(partition):
                continue
            change = partition.propose_isr(self._clock_s, alive, self._lag_s, self._lag_messages)
            if change is not None:
                self._writer.write(partition, change)

    @property
    def _alive(self) -> dict[int, int]:
        return {broker_id: one.incarnation for broker_id, one in self._broker.image.brokers.items()}

    async def _beat(self) -> None:
        interval_s = self._lag_s / BEATS
        before_s = self._broker.loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._broker.loop.time()
            self._clock_s += min(now_s - before_s, 2 * interval_s)
            before_s = now_s
            try:
                await self._look()
            except KlogError as error:
                log.error("looking after the replicas: %s", error.message)
            except Exception:  # our fault; without a next beat nobody would ever leave an ISR again
                log.exception("looking after the replicas failed")

    async def _look(self) -> None:
        self.look_at_disks()
        replicated = [one for one in self._led.partitions.values() if len(one.replicas) > 1]
        for partition in replicated:
            partition.mark(self._clock_s, self._lag_s)
        late = [one for one in replicated if one.isr_size > 1 and one.own_flush_is_overdue(self._clock_s, self._lag_s)]
        if late:
            self._give_up(late, "flushes are overdue")
        self.look_at_damaged()
        self._look_at_full(replicated)
        self._look_at_cut_off(replicated)
        self._propose(set(replicated) - set(late))
        for partition in replicated:
            if partition.change is not None and not partition.resigned:
                self._writer.write(
                    partition, partition.change
                )  # nothing if it is being written; and it stays under way
        deserted = [one for one in replicated if one.is_deserted(self._clock_s, self._lag_s / 2)]
        if deserted:
            await self._writer.read_again(deserted)

    # --- what no follower reaches -----------------------------------------------------------------------------------

    def _look_at_cut_off(self, replicated: list[Partition]) -> None:
        """Ask for other leaders, of a partition once in the lag time at most."""
        self._handed_over = {name: at for name, at in self._handed_over.items() if self._clock_s - at < self._lag_s}
        alive = self._alive
        cut_off = [one for one in replicated if one.is_cut_off(self._clock_s, alive, self._lag_s)]
        new = [one for one in cut_off if one.topic_partition not in self._handed_over]
        if new:
            log.warning(
                "no follower reaches %d partitions, %s first: others are to lead", len(new), new[0].topic_partition
            )
            self._handed_over |= {one.topic_partition: self._clock_s for one in new}
            self._broker.spawn(self._hand_over([one for one in cut_off if self._is_handing_over(one)]))

    def _is_handing_over(self, partition: Partition) -> bool:
        """Whether it may still be led by another in a moment: its ISR is not made smaller meanwhile."""
        at = self._handed_over.get(partition.topic_partition)
        return at is not None and self._clock_s - at < self._lag_s / 2

    async def _hand_over(self, wanted: list[Partition]) -> None:
        registration = self._broker.registration
        if registration is None:
            return
        epochs = {one.topic_partition: one.leader_epoch for one in wanted}
        try:
            await self._broker.executors.run(
                Purpose.IN_SYNC, handovers.ask, self._broker.zookeeper, registration, epochs
            )
        except KlogError as error:
            log.warning("others could not be asked to lead %d partitions: %s", len(wanted), error.message)
            return
        while not self._closed and (left := [one for one in wanted if not one.resigned and self._is_handing_over(one)]):
            await asyncio.sleep(LOOK_EVERY_S)
            await self._writer.read_again(left)

    # --- what cannot be led any more --------------------------------------------------------------------------------

    def _look_at_full(self, replicated: list[Partition]) -> None:
        """A leader whose disk has been full for the lag time gives way to one that is in sync (rule L5).

        By then whoever hangs is no longer in sync.
        """
        full = {one.path for one in self._broker.log_dirs.dirs if one.is_full}
        self._full_since = {path: self._full_since.get(path, self._clock_s) for path in full}
        long = {path for path, since_s in self._full_since.items() if self._clock_s - since_s >= self._lag_s}
        stuck = [one for one in replicated if one.isr_size > 1 and one.log.home.path in long]
        if stuck:
            self._give_up(stuck, "the disk is full, or does not answer")

    def look_at_damaged(self) -> None:
        """A leader whose log is damaged gives way where another is in sync, and is mended by following it (rule L2)."""
        rotten = [one for one in self._led.partitions.values() if one.isr_size > 1 and self._led.is_rotten(one.log)]
        if rotten:
            self._give_up(rotten, "the log is damaged")

    def _give_up(self, late: list[Partition], why: str) -> None:
        """Our own disk is what everybody suffers from: another shall lead (rules R4, L2, L5)."""
        self._given_up = {name: at for name, at in self._given_up.items() if self._clock_s - at < self._lag_s}
        names = [one.topic_partition for one in late if one.topic_partition not in self._given_up]
        if names:
            log.error("giving up leadership of %d partitions, %s first: %s", len(names), names[0], why)
            self._given_up |= dict.fromkeys(names, self._clock_s)
            self._broker.reports.offline(names, may_follow=True)

    def look_at_disks(self) -> None:
        """Tell the controller, once, of each log dir that has failed: its replicas are lost (rule L5)."""
        for one in self._broker.log_dirs.dirs:
            if one.failure is not None and one.path not in self._lost_dirs:
                self._lost_dirs.add(one.path)
                log.error("%s: %d replicas are lost with it", one.failure.message, len(one.logs))
                self._broker.tell("log-dir-offline", dir=one.path, replicas=len(one.logs), reason=one.failure.message)
                if one.logs:
                    self._broker.reports.offline(list(one.logs), may_follow=False)
