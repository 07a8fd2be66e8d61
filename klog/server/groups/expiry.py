"""Offsets of groups in which nobody has lived for ``offsets.retention.minutes`` go, as they do with Kafka.

Every ``offsets.retention.check.interval.ms`` each coordinator looks at the groups of its slots, one after the other:
what has expired is decided, and fenced, by `klog.coordination.expired_offsets`, and written as a commit is, behind the
slot. A group that cannot have anything to give before a certain time is not looked at before it. While the clock is in
doubt (it has jumped against the time that has passed) nothing goes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from klog.coordination import expired_offsets
from klog.coordination.expired_offsets import Expired
from klog.coordination.group_slots import slot_of
from klog.coordination.zookeeper import Operation, ZooKeeper
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.ops import groups as registry
from klog.server.groups.writer import GroupChanged, GroupWrite
from klog.storage.retention import RetentionClock

if TYPE_CHECKING:
    from klog.coordination.committed import OffsetWriter
    from klog.server.groups.coordinator import Coordinator

log = logging.getLogger(__name__)

MINUTE_MS = 60_000


class Expiry:
    """Event loop only; ZooKeeper is asked in threads, one group at a time."""

    def __init__(self, coordinator: Coordinator, offsets: OffsetWriter) -> None:
        config = coordinator.broker.config
        self._coordinator = coordinator
        self._offsets = offsets
        self._retention_ms = config.integer("offsets.retention.minutes") * MINUTE_MS
        self._every_s = config.integer("offsets.retention.check.interval.ms") / 1000
        self._clock = RetentionClock(_now_ms(), time.monotonic_ns() // 1_000_000)
        self._not_before_ms: dict[str, int] = {}

    async def run(self) -> None:
        """For as long as the broker coordinates."""
        while True:
            await asyncio.sleep(self._every_s)
            doubt = self._clock.doubt(_now_ms(), time.monotonic_ns() // 1_000_000)
            if doubt is not None:
                log.error("offsets of idle groups stay: %s", doubt)
                continue
            try:
                await self._look()
            except KlogError as error:
                log.warning("offsets that have expired stay for now: %s", error.message)

    async def _look(self) -> None:
        coordinator = self._coordinator
        names = await coordinator.ask_zookeeper(_names_of_slots, coordinator.zookeeper, coordinator.slots)
        known = self._not_before_ms
        self._not_before_ms = {name: known[name] for name in names if name in known}
        for name in names:
            if self._not_before_ms.get(name, 0) < _now_ms():
                try:
                    await self._look_at(name)
                except KlogError as error:
                    log.info("group %r: what has expired of it stays for now: %s", name, error.message)

    async def _look_at(self, name: str) -> None:
        """Of one group, as many times as there is more than one write takes."""
        coordinator = self._coordinator
        while True:
            kept = coordinator.find(name)
            if kept is not None and not kept.group.is_idle:
                return
            holder = coordinator.holder(name)
            found: Expired = await coordinator.ask_zookeeper(
                expired_offsets.of_group, coordinator.zookeeper, name, _now_ms(), self._retention_ms
            )
            self._not_before_ms[name] = found.next_ms
            if not found.partitions:
                return
            gone: set[TopicPartition] = set()

            def operations(expected: int = found.state.version, gone: set[TopicPartition] = gone) -> list[Operation]:
                """In the writer's thread: as it is now, if nobody has written the group since."""
                now = expired_offsets.of_group(coordinator.zookeeper, name, _now_ms(), self._retention_ms)
                is_same = now.state.version == expected
                gone.clear()
                gone.update(now.partitions if is_same else ())
                return now.operations if is_same else []

            write = GroupWrite(
                holder,
                name,
                found.state.version,
                operations,
                lambda _: self._offsets.forget(name),
                lambda: self._offsets.forget(name),
            )
            try:
                await coordinator.writer.write(write)
            except GroupChanged:
                return
            kept = coordinator.find(name)
            if kept is not None:
                await coordinator.look_again(kept)
            topics = sorted({one.topic for one in gone})
            await coordinator.ask_zookeeper(expired_offsets.remove_empty_folders, coordinator.zookeeper, name, topics)
            if not gone:
                return
            log.info("group %r: offsets of %d partitions have expired, of %s", name, len(gone), ", ".join(topics))


def _names_of_slots(zookeeper: ZooKeeper, slots: set[int]) -> list[str]:
    return [name for name in registry.names(zookeeper) if slot_of(name) in slots]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
