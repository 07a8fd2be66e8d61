"""Maintains the logs: rolls by age, retention, checkpoints, counts, the scrubber.

Event loop only. Work that may wait for the disk runs in threads; changes of a log run on the loop, which owns it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable

from klog.clock import SYSTEM_CLOCK
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication.follower import FollowerState
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Runtime
from klog.storage.damage_record import DamageRecord
from klog.storage.log import Log
from klog.storage.log_dir import LogDir, LogDirs
from klog.storage.scrubber import Scrubber

log = logging.getLogger(__name__)

ROLL_EVERY_S = 1.0
SCRUBBER_S = 5.0
"""How long a stop waits for the scrubber, which checks for it between small reads."""
REBUILD_PAUSE_S = 0.005
"""Pause of the count of old segments after every few milliseconds of work, for requests."""


class LogMaintenance:
    """Started with the broker, stopped before its logs are closed."""

    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        log_dirs: LogDirs,
        deletions: Deletions,
        replicas: Replicas,
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._log_dirs = log_dirs
        self._deletions = deletions
        self._replicas = replicas
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = threading.Event()
        self._busy: set[tuple[Callable[[LogDir], Awaitable[None]], str]] = set()
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        config = runtime.config
        self._scrubber = Scrubber(
            log_dirs.logs,
            self._damaged,
            interval_s=config.integer("log.scrubber.interval.ms") / 1000,
            rate_bytes=config.integer("log.scrubber.io.max.bytes.per.second"),
        )
        self._intervals: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (ROLL_EVERY_S, self._roll),
            (config.integer("log.retention.check.interval.ms") / 1000, self._retain),
            (config.integer("log.flush.offset.checkpoint.interval.ms") / 1000, self._checkpoint),
            (config.integer("replica.high.watermark.checkpoint.interval.ms") / 1000, self._keep_high_watermarks),
        )

    def start(self) -> None:
        for one in self._log_dirs.logs():
            for damage in one.damages_at_open:
                self._tell_damage(one, damage, "recovery")
        self._scrubber.start()
        self._tasks = [self._runtime.spawn(self._every(interval_s, act)) for interval_s, act in self._intervals]
        self._tasks.append(self._runtime.spawn(self._count_again()))

    async def stop(self) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(SCRUBBER_S):
                await self._runtime.executors.run(Purpose.OTHER, self._scrubber.stop)
        except TimeoutError:
            log.warning("the scrubber has not ended: it waits for a disk that does not answer")
        for one in self._log_dirs.dirs:
            if one.failure is None and not one.is_stalled:
                try:
                    await self._keep_high_watermarks_in(one)
                except KlogError as error:
                    log.warning("the last high watermarks were not checkpointed: %s", error.message)

    async def _every(self, interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await act()
            except KlogError as error:
                log.error("%s", error.message)

    async def _roll(self) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        replicas = self._replicas
        led = [partition.log for partition in replicas.partitions.values()]
        # A thread that truncates a log has it to itself.
        followed = [one.log for one in replicas.followed.values() if one.state is not FollowerState.TRUNCATING]
        for one in led + followed:
            try:
                one.roll_if_due(now_ms)
            except KlogError as error:
                log.error("%s: %s", one.topic_partition, error.message)

    async def _retain(self) -> None:
        self._runtime.measures.traffic.keep_only(self._image.topics)
        await self._at_each(self._retain_in)

    async def _retain_in(self, one: LogDir) -> None:
        is_odd = bool(self._runtime.identity.clock_ahead_ms)
        plan = functools.partial(self._log_dirs.plan_retention, self._deletable, one.path, by_time=not is_odd)
        await self._deletions.run(one.path, plan)

    async def _at_each(self, act: Callable[[LogDir], Awaitable[None]]) -> None:
        """Do it for each log dir that serves, side by side. Skips dirs where the last round still hangs."""
        for one in self._log_dirs.dirs:
            if one.failure is None and not one.is_stalled and (act, one.path) not in self._busy:
                self._busy.add((act, one.path))
                self._runtime.spawn(self._at_one(act, one))

    async def _at_one(self, act: Callable[[LogDir], Awaitable[None]], one: LogDir) -> None:
        try:
            await act(one)
        except KlogError as error:
            log.error("%s", error.message)
        finally:
            self._busy.discard((act, one.path))

    def _deletable(self, one: Log) -> int:
        """The address below which retention may delete; nothing of a topic that the cluster does not know: its deletion
        may be delayed, and it may be restored."""
        return self._replicas.high_watermark(one) if one.topic_partition.topic in self._image.topics else 0

    async def _checkpoint(self) -> None:
        self._log_dirs.checkpoint_soon()

    async def _keep_high_watermarks(self) -> None:
        await self._at_each(self._keep_high_watermarks_in)

    async def _keep_high_watermarks_in(self, one: LogDir) -> None:
        logs = one.logs.copy()  # a thread may be creating others
        now = {name: self._replicas.high_watermark(there) for name, there in logs.items()}
        if now != self._kept.get(one.path):
            await self._runtime.executors.run_at(one.path, Purpose.UPKEEP, one.checkpoints.keep_high_watermarks, now)
            self._kept[one.path] = now

    async def _count_again(self) -> None:
        """Count the messages of segments without a checkpoint; until then their counts are unknown."""
        await asyncio.gather(*(self._count_again_in(one) for one in self._log_dirs.dirs))

    async def _count_again_in(self, log_dir: LogDir) -> None:
        for one in list(log_dir.logs.values()):
            if one.needs_rebuild:
                log.info("%s: counting the messages of old segments again", one.topic_partition)
                try:
                    rebuilt = await self._runtime.executors.run_at(
                        one.log_dir.path, Purpose.UPKEEP, one.rebuild, lambda: self._stopping.wait(REBUILD_PAUSE_S)
                    )
                except KlogError as error:
                    log.error("%s: its messages cannot be counted: %s", one.topic_partition, error.message)
                else:
                    one.adopt(rebuilt)

    def _damaged(self, one: Log, damage: DamageRecord) -> None:
        """In the scrubber's thread."""
        log.error("%s: damage found by the scrubber: %s", one.topic_partition, damage)
        self._runtime.from_thread(self._tell_damage, one, damage, "scrubber")
        self._runtime.from_thread(self._replicas.damaged, one, damage.first_address, damage.end_address)

    def _tell_damage(self, one: Log, damage: DamageRecord, found_by: str) -> None:
        self._runtime.tell(
            "damage-found",
            topic=one.topic_partition.topic,
            partition=one.topic_partition.partition,
            first_address=damage.first_address,
            end_address=damage.end_address,
            found_by=found_by,
            reason=damage.reason,
        )
