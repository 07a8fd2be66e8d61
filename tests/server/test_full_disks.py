"""A full disk: the deleted topic that waits longest there is purged, and no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from klog.coordination import topics
from klog.coordination.topics import Deletion
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import DiskFull
from klog.names import TopicPartition
from klog.record.records import Record, encode_batch
from klog.server.full_disks import FullDisks
from tests.faulty_filesystem import FaultyFileSystem
from tests.server.replica_owner import Owner, owning
from tests.until import until_async

WITHIN_S = 20.0


class PurgingController:
    """Removes the logs of what it is to purge."""

    active = True

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.purged: list[str] = []

    @property
    def deleted_topics(self) -> PurgingController:
        return self

    async def purge(self, topic_id: UUID, **_: Any) -> None:
        log_dir = self._owner.log_dirs.dirs[0]
        (name,) = [name for name, one in log_dir.topic_ids.items() if one == topic_id]
        self.purged.append(name.topic)
        log_dir.file_system.remove_folder(log_dir.remove(name))


@pytest.mark.slow
async def test_a_full_disk_purges_the_oldest_topic(connect: Callable[..., ZooKeeper], tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    async with owning(connect(), tmp_path, disk, message_max_bytes="100000") as owner:
        log_dir = owner.log_dirs.dirs[0]
        for name in ("b", "a", "c", "served"):
            topic = await owner.make_topic(name)
            await owner.say(topic)
            for _ in range(25):
                batch = encode_batch([Record(0, 1000, None, b"x" * 60_000, ())])
                owner.partitions[topic.first].append(memoryview(bytearray(batch)))
            if name != "served":
                found = await asyncio.to_thread(topics.find, owner.zookeeper, name)
                assert found is not None
                marked = replace(found, deletion=Deletion(1000, name, is_name_kept=True))
                await asyncio.to_thread(topics.replace_assignment, owner.zookeeper, marked, ())
        controller: Any = PurgingController(owner)
        full = FullDisks(owner.runtime, owner.image, owner.log_dirs, controller, controller)
        task = asyncio.ensure_future(full.run())
        disk.capacity = sum(len(inode.data) for inode in set(disk.names.values())) + 1000
        await asyncio.sleep(1.0)
        assert controller.purged == []  # no append has found it full
        log_dir.write_failed(DiskFull("an append found it"))
        await until_async(lambda: controller.purged, WITHIN_S)
        log_dir.write_failed(DiskFull("again, though there is room now"))
        await asyncio.sleep(1.0)
        task.cancel()
        assert controller.purged == ["b"]
        assert set(log_dir.logs) == {TopicPartition(name, 0) for name in ("a", "c", "served")}
