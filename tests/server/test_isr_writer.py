"""An ISR change on its way to ZooKeeper (rules R2, Z1, Z2): nothing is acknowledged too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.coordination import brokers, leadership_transfer, paths, topic_deletion
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NotEnoughReplicasAfterAppend, NotLeader, StorageError
from klog.replication.led_partition import LedPartition
from klog.server.replicas.isr_writer import IsrWriter
from tests.coordination.states import write_state
from tests.faulty_filesystem import FaultyFileSystem
from tests.replication.side import Waiter
from tests.server.replica_owner import Owner, Topic, owning
from tests.until import until_async
from tests.zookeeper_proxy import ZooKeeperProxy

QUICK: dict[str, Any] = {"replica_lag_time_max_ms": "400"}
SLOW: dict[str, Any] = {"replica_lag_time_max_ms": "600000"}
CUT_OFF: dict[str, Any] = {"replica_lag_time_max_ms": "1600", "min_insync_replicas": "2"}
WITHIN_S = 20.0


async def led(owner: Owner, isr: tuple[int, ...] = (1, 2, 3)) -> tuple[Topic, LedPartition]:
    """A topic of one partition that we lead, all of whose members have reported."""
    topic = await owner.make_topic("t", isr=isr)
    answer = await owner.say(topic)
    assert answer == {"error_code": 0, "failed": []}
    for one in isr[1:]:
        owner.fetched(topic, one)
    return topic, owner.partitions[topic.first]


async def told(waiter: Waiter) -> Any:
    return await asyncio.wait_for(asyncio.shield(waiter.told), WITHIN_S)


async def begun(partition: LedPartition) -> None:
    """Until a change is under way. It is for more than one turn of the loop, since a thread writes it."""
    async with asyncio.timeout(WITHIN_S):
        while partition.change is None:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def settled(partition: LedPartition) -> None:
    """Until nothing is under way."""
    await until_async(lambda: partition.change is None or partition.resigned)


def grow(owner: Owner, topic: Topic) -> None:
    """3 has caught up."""
    owner.fetched(topic, 3)


async def test_who_stays_behind_is_written_out_and_the_controller_hears_of_it(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path, **QUICK) as owner:
        topic, _ = await led(owner)
        waiter = owner.append(topic)
        owner.fetched(topic, 2)
        assert await told(waiter) is None
        state = await topic.state()
        assert state.isr == (1, 2) and state.incarnations == owner.incarnations((1, 2))
        assert (state.leader, state.leader_epoch, state.controller_epoch, state.new) == (1, 0, 4, False)
        assert await asyncio.wait_for(owner.isr_reports.get(), WITHIN_S) == [topic.first]


async def test_many_that_come_together_are_written_together(zk: ZooKeeper, tmp_path: Path) -> None:
    def _path(name: Any) -> str:
        return f"/brokers/topics/{name.topic}/partitions/{name.partition}/state"

    async with owning(zk, tmp_path, **SLOW) as owner:
        topic = await owner.make_topic("t", partitions=50, isr=(1, 2))
        await owner.say(topic)
        for partition in owner.partitions.values():
            end = partition.log.end
            partition.replica_fetched(3, owner.image.brokers[3].incarnation, end.address, end, 0.0)
        names = await asyncio.wait_for(owner.isr_reports.get(), WITHIN_S)
        assert len(names) == 50
        states = await topic.read()
        zxids = {(await asyncio.to_thread(zk.get, _path(name))).stat.modified_zxid for name in states}
        assert len(zxids) == 1  # one multi
        assert {state.isr for state in states.values() if state is not None} == {(1, 2, 3)}


async def test_another_hand_in_the_same_epoch_is_adopted(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path, **SLOW) as owner:
        topic, partition = await led(owner, isr=(1, 2))
        await topic.write(isr=(1,), incarnations=owner.incarnations((1,)), new=False)
        grow(owner, topic)
        await begun(partition)
        await settled(partition)
        assert set(partition.isr) == {1} and not partition.resigned  # then 3 has to fetch, for it to be proposed again
        assert partition.state_version == (await topic.state()).version


@pytest.mark.parametrize("how", ["another leads", "a later epoch", "the topic is gone", "registered again"])
async def test_whatever_else_is_there_means_that_we_lead_no_more(zk: ZooKeeper, tmp_path: Path, how: str) -> None:
    async with owning(zk, tmp_path, **SLOW) as owner:
        topic, partition = await led(owner, isr=(1, 2))
        other = await owner.make_topic("u", isr=(1, 2))
        await owner.say(other)
        waiter = owner.append(topic)
        if how == "another leads":
            await topic.write(leader=2, leader_epoch=1)
        elif how == "a later epoch":
            await topic.write(leader_epoch=1)
        elif how == "the topic is gone":
            await asyncio.to_thread(topic_deletion.finish_deletion, zk, "t", [])
            made_again = await owner.make_topic("t", isr=(1, 2), new=False)
            await made_again.write(leader=2, leader_epoch=7)  # at the very version that ours is to replace
        else:
            assert owner.identity.registration is not None
            me = owner.identity.registration.broker
            await asyncio.to_thread(brokers.unregister, zk, owner.identity.registration)
            await asyncio.to_thread(brokers.register, zk, me)  # another process with our id, and our dirs
        before = await topic.read()
        grow(owner, topic)
        grow(owner, other)
        assert isinstance(await told(waiter), NotLeader)
        assert partition.resigned and topic.first not in owner.partitions
        assert await topic.read() == before  # and nothing of ours is written
        if how != "registered again":
            assert await asyncio.wait_for(owner.isr_reports.get(), WITHIN_S) == [other.first]
            assert owner.partitions[other.first].isr == (1, 2, 3)


async def test_z2_an_answer_that_is_lost_is_found_again(
    proxy: ZooKeeperProxy, through: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    zk = through()
    async with owning(zk, tmp_path, **SLOW) as owner:
        topic, partition = await led(owner, isr=(1, 2))
        proxy.lose_answer_of()
        grow(owner, topic)
        await begun(partition)
        await settled(partition)
        assert proxy.lost == 1
        assert partition.isr == (1, 2, 3) and not partition.resigned
        assert (await topic.state()).version == partition.state_version


@pytest.mark.slow
async def test_r2_while_zookeeper_is_away_the_union_counts_and_it_is_tried_again(
    proxy: ZooKeeperProxy, through: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    zk = through(operation_timeout_s=0.3, session_timeout_ms=20_000)
    async with owning(zk, tmp_path, **SLOW) as owner:
        topic, partition = await led(owner, isr=(1, 2))
        with proxy.silent():
            grow(owner, topic)
            await asyncio.sleep(1.0)  # longer than a write may take: it has been tried
            assert partition.change is not None and partition.isr_size == 2
            waiter = owner.append(topic)
            owner.fetched(topic, 2)
            await asyncio.to_thread(partition.log.flush)
            assert not waiter.told.done()  # 3 may be in the ISR already
            owner.fetched(topic, 3)
            assert await told(waiter) is None
        proxy.cut()
        await settled(partition)
        assert partition.isr == (1, 2, 3)


@pytest.mark.slow
async def test_r6_a_leader_that_nobody_fetches_from_reads_its_state_again(
    connect: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    """The others were told of another leader, we were not: it is read, before anybody is late enough to be put out."""
    asked: list[str] = []
    zk = connect(trace=lambda operation, path, took_ms: asked.append(operation))
    async with owning(zk, tmp_path, replica_lag_time_max_ms="2000") as owner:
        topic, partition = await led(owner)
        waiter = owner.append(topic)
        await topic.write(leader=2, leader_epoch=1)
        asked.clear()
        assert isinstance(await told(waiter), NotLeader)
        assert partition.resigned
        assert "get" in asked and "multi" not in asked


async def test_r6_an_answer_that_an_own_write_has_overtaken_says_nothing(
    connect: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    """It names a version before the one that we have written since, as if the state had been made again."""
    written, held = threading.Event(), threading.Event()
    reading = ""

    def hold(operation: str, path: str, took_ms: float) -> None:
        if operation == "get" and path == reading and not held.is_set():
            held.set()  # the answer is here
            assert written.wait(WITHIN_S)

    async with owning(connect(trace=hold), tmp_path, **SLOW) as owner:
        topic, partition = await led(owner, isr=(1, 2))
        reading = paths.partition_state("t", 0)
        writer = IsrWriter(
            owner.runtime, owner.image, owner.reports.isr, owner.replicas.fence_of, owner.replicas.step_down
        )
        overtaken = asyncio.create_task(writer.read_again([partition]))
        assert await asyncio.to_thread(held.wait, WITHIN_S)
        grow(owner, topic)
        assert await asyncio.wait_for(owner.isr_reports.get(), WITHIN_S) == [topic.first]
        written.set()
        await overtaken
        assert not partition.resigned
        assert partition.isr == (1, 2, 3)


async def test_r4_a_leader_whose_own_flush_is_overdue_gives_leadership_up(zk: ZooKeeper, tmp_path: Path) -> None:
    """The others wait for it, and would be told to wait for ever: it is never they who are late."""
    async with owning(zk, tmp_path, **QUICK) as owner:
        owner.flusher.want = lambda log: None  # type: ignore[method-assign]  # a disk that does not come to it
        topic, partition = await led(owner)
        alone = await owner.make_topic("alone", isr=(1,))
        await owner.say(alone)
        owner.append(alone)  # nobody else could lead it
        owner.append(topic)
        owner.fetched(topic, 2)
        owner.fetched(topic, 3)
        assert await asyncio.wait_for(owner.offline_reports.get(), WITHIN_S) == ([topic.first], True)
        assert partition.isr == (1, 2, 3)


@pytest.mark.slow
async def test_a_leader_that_no_follower_reaches_asks_others_to_lead_before_it_is_alone(
    zk: ZooKeeper, tmp_path: Path
) -> None:
    """Until it is known whether one does the ISR stays whole (rule R2): nothing is acknowledged by it alone."""
    async with owning(zk, tmp_path, **CUT_OFF) as owner:
        topic, partition = await led(owner)
        waiter = owner.append(topic)
        (asked,) = await asked_for(zk)
        assert (asked.broker_id, asked.incarnation) == (1, owner.incarnation)
        assert dict(asked.epochs) == {topic.first: 0}
        assert partition.isr == (1, 2, 3) and partition.change is None
        await topic.write(leader=2, leader_epoch=1, isr=(2, 3), incarnations=owner.incarnations((2, 3)))
        assert isinstance(await told(waiter), NotLeader)
        assert partition.resigned
        assert (await topic.state()).isr == (2, 3)


@pytest.mark.slow
async def test_a_leader_whom_nobody_relieves_asks_once_and_stays(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path, **CUT_OFF) as owner:
        topic, partition = await led(owner)
        waiter = owner.append(topic)
        (asked,) = await asked_for(zk)
        await asyncio.to_thread(leadership_transfer.done, zk, asked, [])
        assert isinstance(await told(waiter), NotEnoughReplicasAfterAppend)
        assert (await topic.state()).isr == (1,)
        assert not partition.resigned
        assert await asyncio.to_thread(leadership_transfer.asked, zk) == []


async def asked_for(zk: ZooKeeper) -> list[leadership_transfer.Handover]:
    """What leaders ask others to lead, as soon as one asks."""
    loop, stirred = asyncio.get_running_loop(), asyncio.Event()

    def watch(_: object) -> None:
        loop.call_soon_threadsafe(stirred.set)

    async with asyncio.timeout(WITHIN_S):
        while not (found := await asyncio.to_thread(leadership_transfer.asked, zk, watch)):
            await stirred.wait()
            stirred.clear()
    return found


async def test_l5_a_disk_that_fails_is_reported_once_with_all_that_was_on_it(zk: ZooKeeper, tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    async with owning(zk, Path("/data"), disk, **SLOW) as owner:
        topic = await owner.make_topic("t", partitions=3, isr=(1,))
        await owner.say(topic)
        disk.fail("sync")
        waiter = owner.append(topic)
        assert isinstance(await told(waiter), StorageError)
        names, may_follow = await asyncio.wait_for(owner.offline_reports.get(), WITHIN_S)
        assert set(names) == set(topic.states) and not may_follow
        owner.replicas.look_at_disks()
        assert owner.offline_reports.empty()
        ((kind, facts),) = owner.events
        assert (kind, facts["dir"], facts["replicas"]) == ("log-dir-offline", "/data", 3)
        await topic.write(leader_epoch=1, new=False)
        answer = await owner.say(topic)
        assert {one["error_code"] for one in answer["failed"]} == {StorageError.wire}


async def test_states_are_written_one_by_one_when_together_they_cannot_be(zk: ZooKeeper, tmp_path: Path) -> None:
    """One that is stale must not hold up the others."""
    async with owning(zk, tmp_path, **SLOW) as owner:
        topic = await owner.make_topic("t", partitions=3, isr=(1, 2))
        await owner.say(topic)
        stale, *_ = topic.states
        found = (await topic.read())[stale]
        assert found is not None
        await asyncio.to_thread(write_state, zk, stale, found)  # the same content, one version on
        for partition in owner.partitions.values():
            end = partition.log.end
            partition.replica_fetched(3, owner.image.brokers[3].incarnation, end.address, end, 0.0)
        names = await asyncio.wait_for(owner.isr_reports.get(), WITHIN_S)
        assert set(names) == set(topic.states) - {stale}
        assert owner.partitions[stale].isr == (1, 2) and owner.partitions[stale].state_version == 2
