"""The trash of a broker's disks: no empty ZooKeeper empties it (rule R10), and a full disk takes the oldest first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from klog.coordination import cluster, topic_deletion, trash
from klog.coordination.trash import Entry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import DiskFull
from klog.names import TopicPartition
from klog.record.records import Record, encode_batch
from klog.server.replicas.trash_emptier import TrashEmptier
from tests.faulty_filesystem import FaultyFileSystem
from tests.server.replica_owner import Owner, Topic, owning
from tests.zookeeper_fixture import connect

__all__ = ["connect"]

WITHIN_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110  # files and memory of others
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def emptying(owner: Owner) -> AsyncIterator[None]:
    found = await asyncio.to_thread(cluster.cluster_id, owner.zookeeper)
    assert found is not None
    owner.log_dirs.record_owner(found, 1)
    task = asyncio.ensure_future(TrashEmptier(owner.runtime, owner.log_dirs).run())
    try:
        yield
    finally:
        task.cancel()


async def delete(owner: Owner, topic: Topic) -> Entry:
    """Delete a topic as a controller does."""
    assert topic.topic_id is not None
    entry = Entry(topic.topic_id, topic.name, 1)
    await asyncio.to_thread(topic_deletion.mark_for_deletion, owner.zookeeper, topic.name, (), entry)
    answer = await owner.say_stop(topic)
    assert (answer["error_code"], answer["failed"]) == (0, [])
    await asyncio.to_thread(topic_deletion.finish_deletion, owner.zookeeper, topic.name, ())
    found = await asyncio.to_thread(trash.find, owner.zookeeper, topic.topic_id)
    assert found is not None
    return found


def waiting(owner: Owner) -> list[str]:
    return sorted(one.name.topic for one in owner.log_dirs.dirs[0].trash.waiting.copy().values())


@pytest.mark.slow
def test_an_empty_zookeeper_does_not_empty_the_trash(connect: Callable[..., ZooKeeper], tmp_path: Path) -> None:
    """It goes when its own time is over."""

    async def work() -> None:
        retention_s = 2
        async with owning(connect(), tmp_path, klog_trash_retention_ms=str(retention_s * 1000)) as owner:
            topic = await owner.make_topic("t")
            await owner.say(topic)
            owner.append(topic)
            await asyncio.to_thread(trash.purge, owner.zookeeper, await delete(owner, topic), ())
            owner.log_dirs.dirs[0].trash.taken.clear()  # as after a restart
            since_s = time.monotonic()
            async with emptying(owner):  # which has never seen the entry
                await until(lambda: waiting(owner) == [] and not list(tmp_path.glob("t-*")))
            assert time.monotonic() - since_s > retention_s / 2

    asyncio.run(work())


@pytest.mark.slow
def test_the_trash_is_kept_while_there_is_an_entry_or_a_topic(
    connect: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    async def work() -> None:
        async with owning(connect(), tmp_path, klog_trash_retention_ms="1000") as owner:
            topic = await owner.make_topic("t")
            await owner.say(topic)
            entry = await delete(owner, topic)
            other = await owner.make_topic("other")  # nothing of it may ever be in the trash
            await owner.say(other)
            await asyncio.to_thread(owner.log_dirs.to_trash, TopicPartition("other", 0), 0)
            async with emptying(owner):
                await asyncio.sleep(1.5)  # several looks, past the retention time
                assert waiting(owner) == ["other", "t"]
                await asyncio.to_thread(trash.purge, owner.zookeeper, entry, ())
                await until(lambda: waiting(owner) == ["other"])

    asyncio.run(work())


@pytest.mark.slow
def test_a_full_disk_takes_the_oldest_topic_as_a_whole(connect: Callable[..., ZooKeeper], tmp_path: Path) -> None:
    async def work() -> None:
        disk = FaultyFileSystem()
        async with owning(connect(), tmp_path, disk, message_max_bytes="100000") as owner:
            log_dir = owner.log_dirs.dirs[0]
            for name in ("b", "a", "c"):
                topic = await owner.make_topic(name)
                await owner.say(topic)
                for _ in range(25):
                    batch = encode_batch([Record(0, 1000, None, b"x" * 60_000, ())])
                    owner.partitions[topic.first].append(memoryview(bytearray(batch)))
                await delete(owner, topic)
            async with emptying(owner):
                disk.capacity = sum(len(inode.data) for inode in set(disk.names.values())) + 1000
                await asyncio.sleep(1.0)
                assert waiting(owner) == ["a", "b", "c"]  # no append has found it full
                log_dir.filled(DiskFull("an append found it"))
                await until(lambda: waiting(owner) == ["a", "c"])
                await asyncio.sleep(1.0)  # there is room now
                assert waiting(owner) == ["a", "c"]
            (event,) = [facts for kind, facts in owner.events if kind == "topic-purged"]
            assert (event["topic"], str(log_dir.path) in event["reason"]) == ("b", True)
            left = await asyncio.to_thread(trash.read_all, owner.zookeeper)
            assert {one.name for one in left} == {"a", "c"}

    asyncio.run(work())
