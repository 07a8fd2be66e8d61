"""Maintains the ISRs of led partitions: at each heartbeat, and when a follower may have caught up.

At each heartbeat, a quarter of ``replica.lag.time.max.ms``, every replicated partition notes its log end. A follower
that has not flushed up to a note older than the lag time leaves the ISR (rule R4). A partition whose replicas are all
in sync, and have flushed everything, is skipped until something happens to it (`LedPartition.settle`). The clock for
the lag stops while the process is stopped: otherwise a broker that was suspended would find all its followers late.

A leader that no follower reaches does not shrink the ISR to itself at once. It asks, through ZooKeeper, for another
leader (`coordination.leadership_transfer`). Until that is decided, or half the lag time is over, the ISR stays
unchanged: the next leader has everything that was acknowledged, since nothing more is (rule R2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from klog.coordination import leadership_transfer
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication.led_partition import LedPartition
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.isr_writer import IsrWriter
from klog.server.runtime import Runtime
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)

BEATS = 4
"""Heartbeats per lag time: a late follower is found after one to one and a half lag times."""
LOOK_EVERY_S = 0.25
"""Interval of checks whether other brokers lead, after this one has asked for it."""
TOGETHER_S = 0.01
"""Followers that catch up within this time go into one write."""


class IsrMonitor:
    """Event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        log_dirs: LogDirs,
        report_offline: Callable[..., None],
        led: Mapping[TopicPartition, LedPartition],
        damaged: dict[Log, list[tuple[int, int]]],
        writer: IsrWriter,
    ) -> None:
        """``damaged``: logs with known damage; closed ones are taken out."""
        self._runtime = runtime
        self._image = image
        self._log_dirs = log_dirs
        self._report_offline = report_offline
        self._led = led
        self._damaged = damaged
        self._writer = writer
        self._lag_s = runtime.config.integer("replica.lag.time.max.ms") / 1000
        messages = runtime.config["replica.lag.max.messages"]
        self._lag_messages = messages if isinstance(messages, int) else None
        self._clock_s = 0.0
        self._noticed: set[LedPartition] = set()
        self._lost_dirs: set[str] = set()
        self._given_up: dict[TopicPartition, float] = {}
        self._handed_over: dict[TopicPartition, float] = {}
        """Partition -> when this broker asked for another leader, since no follower reaches it."""
        self._full_since: dict[str, float] = {}
        """Log dir -> since when it has been full."""
        self._beating: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Start, unless it is running."""
        if self._beating is None and not self._closed:
            self._beating = self._runtime.spawn(self._beat())

    def close(self) -> None:
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()

    # --- in-sync sets -------------------------------------------------------------------------------------------------

    def look_at(self, partition: LedPartition) -> None:
        """A follower of it may have caught up."""
        if not self._noticed and not self._closed:
            self._runtime.loop.call_later(TOGETHER_S, self._look_at_noticed)
        self._noticed.add(partition)

    def look_at_all(self) -> None:
        """Another broker is alive now, and may join an ISR."""
        for partition in self._led.values():
            if len(partition.isr) < len(partition.replicas):
                self.look_at(partition)

    def _look_at_noticed(self) -> None:
        noticed, self._noticed = self._noticed, set()
        if not self._closed:
            self._propose(noticed)

    def _propose(self, partitions: set[LedPartition]) -> None:
        alive = self._alive
        for partition in partitions:
            if self._is_handing_over(partition):
                continue
            change = partition.propose_isr(self._clock_s, alive, self._lag_s, self._lag_messages)
            if change is not None:
                self._writer.write(partition, change)

    @property
    def _alive(self) -> dict[int, int]:
        return {broker_id: one.incarnation for broker_id, one in self._image.brokers.items()}

    async def _beat(self) -> None:
        interval_s = self._lag_s / BEATS
        before_s = self._runtime.loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._runtime.loop.time()
            self._clock_s += min(now_s - before_s, 2 * interval_s)
            before_s = now_s
            try:
                await self._look()
            except KlogError as error:
                log.error("keeping the ISRs: %s", error.message)
            except Exception:  # a bug; without the next heartbeat no follower would ever leave an ISR
                log.exception("keeping the ISRs failed: internal error")

    async def _look(self) -> None:
        self.look_at_disks()
        open_ones = [one for one in self._led.values() if one.needs_look]
        for partition in open_ones:
            partition.mark(self._clock_s, self._lag_s)
        late = [one for one in open_ones if one.isr_size > 1 and one.own_flush_is_overdue(self._clock_s, self._lag_s)]
        if late:
            self._give_up(late, "flushes are overdue")
        self.look_at_damaged()
        self._look_at_full()
        self._look_at_cut_off(open_ones)
        self._propose(set(open_ones) - set(late))
        for partition in open_ones:
            if partition.change is not None and not partition.resigned:
                self._writer.write(
                    partition, partition.change
                )  # nothing if it is being written; and it stays under way
        deserted = [one for one in open_ones if one.is_deserted(self._clock_s, self._lag_s / 2)]
        for partition in open_ones:
            partition.settle()
        if deserted:
            await self._writer.read_again(deserted)

    # --- leaders that no follower reaches -----------------------------------------------------------------------------

    def _look_at_cut_off(self, partitions: list[LedPartition]) -> None:
        """Ask for other leaders: at most once per partition and lag time."""
        self._handed_over = {name: at for name, at in self._handed_over.items() if self._clock_s - at < self._lag_s}
        alive = self._alive
        cut_off = [one for one in partitions if one.is_cut_off(self._clock_s, alive, self._lag_s)]
        new = [one for one in cut_off if one.topic_partition not in self._handed_over]
        if new:
            log.warning(
                "no follower reaches %d partitions, %s first: asking for other leaders",
                len(new),
                new[0].topic_partition,
            )
            self._handed_over |= {one.topic_partition: self._clock_s for one in new}
            self._runtime.spawn(self._hand_over([one for one in cut_off if self._is_handing_over(one)]))

    def _is_handing_over(self, partition: LedPartition) -> bool:
        """Whether another broker may lead it soon; until then its ISR does not shrink."""
        at = self._handed_over.get(partition.topic_partition)
        return at is not None and self._clock_s - at < self._lag_s / 2

    async def _hand_over(self, wanted: list[LedPartition]) -> None:
        registration = self._runtime.identity.registration
        if registration is None:
            return
        epochs = {one.topic_partition: one.leader_epoch for one in wanted}
        try:
            await self._runtime.at_zookeeper(Purpose.IN_SYNC, leadership_transfer.ask, registration, epochs)
        except KlogError as error:
            log.warning("the request for other leaders of %d partitions failed: %s", len(wanted), error.message)
            return
        while not self._closed and (left := [one for one in wanted if not one.resigned and self._is_handing_over(one)]):
            await asyncio.sleep(LOOK_EVERY_S)
            await self._writer.read_again(left)

    # --- leaders with a bad disk --------------------------------------------------------------------------------------

    def _look_at_full(self) -> None:
        """Hand leadership over where the disk has been full for the lag time and another replica is in sync (rule L5).

        By then a follower that hangs has left the ISR.
        """
        full = {one.path for one in self._log_dirs.dirs if one.is_full}
        self._full_since = {path: self._full_since.get(path, self._clock_s) for path in full}
        long = {path for path, since_s in self._full_since.items() if self._clock_s - since_s >= self._lag_s}
        if not long:
            return
        stuck = [one for one in self._led.values() if one.isr_size > 1 and one.log.log_dir.path in long]
        if stuck:
            self._give_up(stuck, "the disk is full, or does not answer")

    def look_at_damaged(self) -> None:
        """Hand leadership of damaged logs over to an in-sync replica, and repair them as a follower (rule L2)."""
        for one in [one for one in self._damaged if one.is_closed]:
            del self._damaged[one]
        logs = [(one, self._led.get(one.topic_partition)) for one in self._damaged]
        damaged = [led for one, led in logs if led is not None and led.log is one and led.isr_size > 1]
        if damaged:
            self._give_up(damaged, "the log is damaged")

    def _give_up(self, late: list[LedPartition], why: str) -> None:
        """This broker's disk delays all replicas: ask for another leader (rules R4, L2, L5)."""
        self._given_up = {name: at for name, at in self._given_up.items() if self._clock_s - at < self._lag_s}
        names = [one.topic_partition for one in late if one.topic_partition not in self._given_up]
        if names:
            log.error("giving up leadership of %d partitions, %s first: %s", len(names), names[0], why)
            self._given_up |= dict.fromkeys(names, self._clock_s)
            self._report_offline(names, may_follow=True)

    def look_at_disks(self) -> None:
        """Report each log dir that has failed to the controller, once: its replicas are lost (rule L5)."""
        for one in self._log_dirs.dirs:
            if one.failure is not None and one.path not in self._lost_dirs:
                self._lost_dirs.add(one.path)
                log.error("%s: %d replicas are lost with it", one.failure.message, len(one.logs))
                self._runtime.tell("log-dir-offline", dir=one.path, replicas=len(one.logs), reason=one.failure.message)
                if one.logs:
                    self._report_offline(list(one.logs), may_follow=False)
