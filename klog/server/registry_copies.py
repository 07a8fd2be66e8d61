"""Keeps a copy of the registries beside the logs, in each log dir (see `klog.storage.registry_copy`).

Strategy: what the controller says changes the image; a moment later the image is written, and not again before twenty
times as long has passed as that took, so that 30,000 partitions that come and go cost no more than a twentieth of a
thread. A stop in order writes what is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from klog.errors import StorageError
from klog.server.executors import Purpose
from klog.storage.registry_copy import FILE, PartitionCopy, RegistryCopy, TopicCopy

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.storage.log_dir import LogDir

log = logging.getLogger(__name__)

WAIT_S: Final = 0.1
"""What changes together is written together."""
RETRY_S: Final = 1.0
"""Also where a disk has refused the copy."""
REST: Final = 20
"""Times as long as writing took."""


class RegistryCopies:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """The image is another one."""
        self._changed.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what is not written yet, and no more."""
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
        broker = self._broker
        copy = RegistryCopy(
            cluster_id=broker.image.cluster_id,
            broker_id=broker.broker_id,
            written_ms=time.time_ns() // 1_000_000,
            controller_epoch=broker.authority.epoch,
            producer_ids_below=broker.producer_ids.below,
        )
        topics = list(broker.image.topics.values())  # each is replaced when it changes, and never changed

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

        for log_dir in broker.log_dirs.dirs:
            if log_dir.failure is not None:
                continue
            try:
                await broker.executors.run_at(log_dir.path, Purpose.UPKEEP, write, log_dir)
            except StorageError as error:
                log.warning("%s: the copy of the registries is not written: %s", log_dir.path, error)
                self._changed.set()
