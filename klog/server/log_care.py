"""What is done for the logs besides appending and reading: roll by age, retention, checkpoints, counts, the scrubber.

Event loop only. What may wait for the disk runs in threads; what changes a log, on the loop, its owner.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.server.executors import Purpose
from klog.server.follower import FollowerState
from klog.storage.damage import Damage
from klog.storage.log import Log
from klog.storage.log_dir import LogDir
from klog.storage.scrubber import Scrubber

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

ROLL_EVERY_S = 1.0
SCRUBBER_S = 5.0
"""It looks whether it is to end between small reads."""
REBUILD_PAUSE_S = 0.005
"""Counting old segments again gives way to requests this long after every few milliseconds of work."""


class LogCare:
    """Started with the broker, stopped before its logs are closed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = threading.Event()
        self._busy: set[tuple[Callable[[LogDir], Awaitable[None]], str]] = set()
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        config = broker.config
        self._scrubber = Scrubber(
            broker.log_dirs.logs,
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
        for one in self._broker.log_dirs.logs():
            for damage in one.damages_at_open:
                self._tell_damage(one, damage, "recovery")
        self._scrubber.start()
        self._tasks = [self._broker.spawn(self._every(interval_s, act)) for interval_s, act in self._intervals]
        self._tasks.append(self._broker.spawn(self._count_again()))

    async def stop(self) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(SCRUBBER_S):
                await self._broker.executors.run(Purpose.OTHER, self._scrubber.stop)
        except TimeoutError:
            log.warning("the scrubber waits for a disk that does not answer")
        for one in self._broker.log_dirs.dirs:
            if one.failure is None and not one.is_stalled:
                try:
                    await self._keep_high_watermarks_in(one)
                except KlogError as error:
                    log.warning("the last high watermarks were not written down: %s", error.message)

    async def _every(self, interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await act()
            except KlogError as error:
                log.error("%s", error.message)

    async def _roll(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        replicas = self._broker.replicas
        led = [partition.log for partition in replicas.partitions.values()]
        # A thread that cuts a log has it to itself.
        followed = [one.log for one in replicas.followed.values() if one.state is not FollowerState.CUTTING]
        for one in led + followed:
            try:
                one.roll_if_due(now_ms)
            except KlogError as error:
                log.error("%s: %s", one.topic_partition, error.message)

    async def _retain(self) -> None:
        self._broker.measures.traffic.keep_only(self._broker.image.topics)
        await self._at_each(self._retain_in)

    async def _retain_in(self, one: LogDir) -> None:
        plan = functools.partial(self._broker.log_dirs.plan_retention, self._high_watermark, one.path)
        await self._broker.deletions.run(one.path, plan)

    async def _at_each(self, act: Callable[[LogDir], Awaitable[None]]) -> None:
        """Do it for each log dir that serves, side by side: one that hangs is left to itself, and not begun again."""
        for one in self._broker.log_dirs.dirs:
            if one.failure is None and not one.is_stalled and (act, one.path) not in self._busy:
                self._busy.add((act, one.path))
                self._broker.spawn(self._at_one(act, one))

    async def _at_one(self, act: Callable[[LogDir], Awaitable[None]], one: LogDir) -> None:
        try:
            await act(one)
        except KlogError as error:
            log.error("%s", error.message)
        finally:
            self._busy.discard((act, one.path))

    def _high_watermark(self, one: Log) -> int:
        """The address below which retention may delete, and which the checkpoint names."""
        return self._broker.replicas.high_watermark(one)

    async def _checkpoint(self) -> None:
        self._broker.log_dirs.checkpoint_soon()

    async def _keep_high_watermarks(self) -> None:
        await self._at_each(self._keep_high_watermarks_in)

    async def _keep_high_watermarks_in(self, one: LogDir) -> None:
        logs = one.logs.copy()  # a thread may be making others just now
        now = {name: self._high_watermark(there) for name, there in logs.items()}
        if now != self._kept.get(one.path):
            await self._broker.executors.run_at(one.path, Purpose.UPKEEP, one.checkpoints.keep_high_watermarks, now)
            self._kept[one.path] = now

    async def _count_again(self) -> None:
        """Count the segments that the checkpoint did not know; until then their counts are unknown."""
        await asyncio.gather(*(self._count_again_in(one) for one in self._broker.log_dirs.dirs))

    async def _count_again_in(self, log_dir: LogDir) -> None:
        for one in list(log_dir.logs.values()):
            if one.needs_rebuild:
                log.info("%s: counting the messages of old segments again", one.topic_partition)
                try:
                    rebuilt = await self._broker.executors.run_at(
                        one.home.path, Purpose.UPKEEP, one.rebuild, lambda: self._stopping.wait(REBUILD_PAUSE_S)
                    )
                except KlogError as error:
                    log.error("%s: its messages cannot be counted: %s", one.topic_partition, error.message)
                else:
                    one.adopt(rebuilt)

    def _damaged(self, one: Log, damage: Damage) -> None:
        """In the scrubber's thread."""
        log.error("%s: damage found by the scrubber: %s", one.topic_partition, damage)
        self._broker.from_thread(self._tell_damage, one, damage, "scrubber")
        self._broker.from_thread(self._broker.replicas.damaged, one, damage.first_address, damage.end_address)

    def _tell_damage(self, one: Log, damage: Damage, found_by: str) -> None:
        self._broker.tell(
            "damage-found",
            topic=one.topic_partition.topic,
            partition=one.topic_partition.partition,
            first_address=damage.first_address,
            end_address=damage.end_address,
            found_by=found_by,
            reason=damage.reason,
        )
