"""Keeps a copy of the registries in each log dir (see `klog.coordination.registry_copy`).

Strategy: an update of the controller changes the image. A moment later a thread writes the image, and then pauses for
twenty times as long as the write took, so that frequent changes of 30,000 partitions cost a twentieth of a thread at
most. A controlled shutdown writes the last changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from klog.coordination.registry_copy import FILE, PartitionCopy, RegistryCopy, TopicCopy
from klog.errors import StorageError
from klog.server.authority import Authority
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.producer_ids import ProducerIds
from klog.server.runtime import Runtime

if TYPE_CHECKING:
    from klog.storage.log_dir import LogDir, LogDirs

log = logging.getLogger(__name__)

WAIT_S: Final = 0.1
"""Changes within this time are written together."""
RETRY_S: Final = 1.0
"""Also after a disk has failed to store the copy."""
REST: Final = 20
"""The pause after a write, as a multiple of its duration."""


@dataclass(eq=False)
class RegistryCopies:
    """Event loop only."""

    runtime: Runtime
    image: ClusterImage
    log_dirs: LogDirs
    authority: Authority
    producer_ids: ProducerIds
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def changed(self) -> None:
        """The image has changed."""
        self._changed.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write the last changes, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._changed.is_set():
            await self._write()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(WAIT_S)
            begun = time.monotonic()
            await self._write()
            await asyncio.sleep(max(RETRY_S if self._changed.is_set() else 0.0, (time.monotonic() - begun) * REST))

    async def _write(self) -> None:
        self._changed.clear()
        copy = RegistryCopy(
            cluster_id=self.image.cluster_id,
            broker_id=self.runtime.broker_id,
            written_ms=time.time_ns() // 1_000_000,
            controller_epoch=self.authority.epoch,
            producer_ids_below=self.producer_ids.below,
        )
        topics = list(self.image.topics.values())  # each is replaced when it changes, and never changed

        def write(log_dir: LogDir) -> None:
            copied = {
                one.name: TopicCopy(
                    one.name,
                    one.topic_id,
                    one.overrides,
                    {
                        number: PartitionCopy(state.replicas, state.isr, state.leader, state.leader_epoch)
                        for number, state in one.partitions.items()
                    },
                )
                for one in topics
            }
            log_dir.file_system.replace(f"{log_dir.path}/{FILE}", replace(copy, topics=copied).to_bytes())

        for log_dir in self.log_dirs.dirs:
            if log_dir.failure is not None:
                continue
            try:
                await self.runtime.executors.run_at(log_dir.path, Purpose.UPKEEP, write, log_dir)
            except StorageError as error:
                log.warning("%s: the copy of the registries is not written: %s", log_dir.path, error)
                self._changed.set()
