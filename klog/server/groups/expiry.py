"""Deletes the offsets of groups without members for ``offsets.retention.minutes``, as Kafka does.

Every ``offsets.retention.check.interval.ms`` each coordinator checks the groups of its slots, one after the other.
`klog.coordination.expired_offsets` decides what has expired, and fences it; it is written like a commit, behind the
slot. A group is skipped until one of its offsets can expire. While the clock is in doubt (it has jumped) nothing is
deleted.
"""

from __future__ import annotations

import asyncio
import logging

from klog.coordination import expired_offsets
from klog.coordination import groups as registry
from klog.coordination.expired_offsets import Expired
from klog.coordination.group_slots import slot_of
from klog.coordination.group_writer import GroupChanged, GroupWrite
from klog.coordination.zookeeper import Operation, ZooKeeper
from klog.errors import KlogError
from klog.names import TopicPartition, counted
from klog.server.groups.group_cache import GroupCache
from klog.storage.retention import RetentionClock

log = logging.getLogger(__name__)

MINUTE_MS = 60_000


class Expiry:
    """Event loop only; one group at a time."""

    def __init__(self, cache: GroupCache) -> None:
        runtime, config = cache.runtime, cache.runtime.config
        self._identity = runtime.identity
        self._zookeeper = runtime.zookeeper
        self._cache = cache
        self._retention_ms = config.integer("offsets.retention.minutes") * MINUTE_MS
        self._every_s = config.integer("offsets.retention.check.interval.ms") / 1000
        self._clock = runtime.zookeeper.clock
        self._trusted = RetentionClock(*self._now())
        self._not_before_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Run while the broker coordinates."""
        while True:
            await asyncio.sleep(self._every_s)
            doubt = self._trusted.doubt(*self._now())
            if doubt is not None:
                log.error("expired offsets of groups are not deleted: %s", doubt)
                continue
            if self._identity.clock_ahead_ms:  # `PeerClocks` has logged it
                continue
            try:
                await self._look()
            except KlogError as error:
                log.warning("expired offsets of groups are not deleted yet: %s", error.message)

    def _now(self) -> tuple[int, int]:
        """Milliseconds by the wall clock and by the monotonic clock."""
        return self._clock.now_ms(), int(self._clock.monotonic_s() * 1000)

    async def _look(self) -> None:
        names = await self._cache.call(_names_of_slots, self._cache.slots)
        known = self._not_before_ms
        self._not_before_ms = {name: known[name] for name in names if name in known}
        for name in names:
            if self._not_before_ms.get(name, 0) < self._clock.now_ms():
                try:
                    await self._look_at(name)
                except KlogError as error:
                    log.info("group %r: its expired offsets are not deleted yet: %s", name, error.message)

    async def _look_at(self, name: str) -> None:
        """Delete the expired offsets of one group, in as many writes as it needs."""
        cache = self._cache
        while True:
            cached = cache.find(name)
            if cached is not None and not cached.group.is_idle:
                return
            holder = cache.holder(name)
            found: Expired = await self._cache.call(
                expired_offsets.of_group, name, self._clock.now_ms(), self._retention_ms
            )
            self._not_before_ms[name] = found.next_ms
            if not found.partitions:
                return
            gone: set[TopicPartition] = set()

            def operations(expected: int = found.state.version, gone: set[TopicPartition] = gone) -> list[Operation]:
                """In the writer's thread: what has expired by now; nothing if the group was written since."""
                now = expired_offsets.of_group(self._zookeeper, name, self._clock.now_ms(), self._retention_ms)
                is_same = now.state.version == expected
                gone.clear()
                gone.update(now.partitions if is_same else ())
                return now.operations if is_same else []

            try:
                await self._cache.writer.write(GroupWrite(holder, name, found.state.version, operations))
            except GroupChanged:
                return
            cached = cache.find(name)
            if cached is not None:
                await cache.refresh(cached)
            topics = sorted({one.topic for one in gone})
            await self._cache.call(expired_offsets.remove_empty_folders, name, topics)
            if not gone:
                return
            log.info(
                "group %r: deleted the expired offsets of %s of %s",
                name,
                counted(len(gone), "partition"),
                ", ".join(topics),
            )


def _names_of_slots(zookeeper: ZooKeeper, slots: set[int]) -> list[str]:
    return [name for name in registry.names(zookeeper) if slot_of(name) in slots]
