"""Frees space on full disks by purging deleted topics before their time, the oldest first, one at a time.

A topic is purged as a whole, on every broker, since half of one could not be restored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from dataclasses import dataclass
from uuid import UUID

from klog.coordination import topics
from klog.coordination.acts import Actor
from klog.coordination.topics import Topic
from klog.errors import KlogError
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime
from klog.storage.disk import ROOM_BYTES_MIN
from klog.storage.log_dir import LogDir, LogDirs

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
"""The partitions of a full disk refuse appends meanwhile."""
GONE_WITHIN_S = 5.0
"""How long to wait for the removal of a purged topic's files, before another one is purged."""


@dataclass(eq=False)
class FullDisks:
    """Event loop only."""

    runtime: Runtime
    image: ClusterImage
    log_dirs: LogDirs
    controller: Controller
    election: ControllerElection

    async def run(self) -> None:
        """Run while the broker serves."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for one in self.log_dirs.dirs:
                if one.is_full and one.failure is None and not one.is_stalled:
                    try:
                        await self._make_room(one)
                    except KlogError as error:
                        log.warning("log dir %s is full, and no deleted topic is purged: %s", one.path, error.message)

    async def _make_room(self, log_dir: LogDir) -> None:
        served = self.image.topics
        unserved = {topic_id for name, topic_id in list(log_dir.topic_ids.items()) if name.topic not in served}
        if not unserved:
            return
        topic = await self.runtime.executors.run(Purpose.OTHER, self._oldest, log_dir, unserved)
        if topic is None or topic.topic_id is None:
            return
        where = f"log dir {log_dir.path} of broker {self.runtime.broker_id} is full"
        log.warning("topic %s, deleted before, is purged before its time: %s", topic.name, where)
        if self.controller.active:
            actor = Actor(self.runtime.identity.client_id, "")
            await self.controller.deleted_topics.purge(topic.topic_id, actor=actor)
        else:
            await self.election.ask(codec.request(ApiKey.PURGE_TOPIC, 0, topic_id=topic.topic_id))
        await asyncio.sleep(GONE_WITHIN_S)

    def _oldest(self, log_dir: LogDir, unserved: Set[UUID]) -> Topic | None:
        """In a thread: the earliest deleted topic with a log on this disk; None if the disk has space again."""
        wanted = ROOM_BYTES_MIN + self.runtime.config.integer("message.max.bytes")
        if log_dir.file_system.free_bytes(log_dir.path) >= wanted:
            return None
        found = topics.deleted(self.runtime.zookeeper, {})
        return next((topic for topic, _ in found.values() if topic.topic_id in unserved), None)
