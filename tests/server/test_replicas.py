"""What a broker does when the controller speaks: each word once, none too late, nothing empty that held something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from klog.coordination import topic_deletion, topics
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import FencedLeaderEpoch, NotLeader, UnknownTopicOrPartition
from klog.names import TopicPartition
from tests.coordination.states import read_state
from tests.replication.side import Waiter
from tests.server.replica_owner import CONTROLLER_EPOCH, Owner, owning
from tests.until import until_async

NO_LEADER = -1


def failed(answer: Any) -> dict[str, int]:
    """topic -> the wire code of what could not be done."""
    assert answer["error_code"] == 0
    return {one["topic"]: one["error_code"] for one in answer["failed"]}


async def refused(waiter: Waiter) -> Any:
    error = await asyncio.wait_for(waiter.told, 10)
    assert error is not None
    return error


# --- Taking up --------------------------------------------------------------------------------------------------------


async def test_a_new_partition_is_made_its_mark_is_cleared_and_then_it_is_led(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", partitions=3)
        assert failed(await owner.say(topic)) == {}
        states = await topic.read()
        assert len(owner.partitions) == 3
        for name, state in states.items():
            assert state is not None and not state.new and state.version == 1
            assert state.isr == (1, 2, 3) and state.incarnations == owner.incarnations((1, 2, 3))
            assert owner.partitions[name].state_version == 1
        before = dict(owner.partitions)
        assert failed(await owner.say(topic)) == {}  # an answer that was lost: the very same is said again
        assert owner.partitions == before
        assert not any(partition.resigned for partition in before.values())


async def test_a_new_partition_whose_state_has_changed_meanwhile_is_not_led(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic, other = await owner.make_topic("t"), await owner.make_topic("u")
        stale = topic.states
        await topic.write(leader=2, leader_epoch=1, isr=(2,), incarnations=owner.incarnations((2,)))
        topic.states = stale
        assert failed(await owner.say(topic, other)) == {}
        assert set(owner.partitions) == {other.first}  # of those written together the other is none the worse


async def test_r1_what_has_held_messages_is_not_led_without_its_log(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", new=False)
        assert failed(await owner.say(topic)) == {"t": 56}
        assert owner.partitions == {} and owner.log_dirs.logs() == []
        assert failed(await owner.say(topic)) == {"t": 56}  # and again, when it is said again
        topic.change(leader=2, leader_epoch=1)  # but a follower may begin with nothing
        assert failed(await owner.say(topic)) == {}
        assert set(owner.replicas.followed) == {topic.first}
        assert owner.log(topic).end.address == 0


async def test_r1_a_new_incarnation_does_not_lead_in_the_epoch_of_an_earlier_one(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        waiter = owner.append(topic)
        owner.replicas.suspend(NotLeader("the session has expired"))
        assert isinstance(await refused(waiter), NotLeader)
        await owner.register()
        with pytest.raises(NotLeader):
            owner.append(topic)
        topic.change(new=False, version=1)
        await owner.say(topic, is_full=True)
        assert owner.partitions == {}
        await topic.write(leader_epoch=1, incarnations=owner.incarnations((1, 2, 3)))
        assert failed(await owner.say(topic, is_full=True)) == {}
        assert owner.partitions[topic.first].leader_epoch == 1


async def test_who_speaks_and_to_whom_is_checked(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        assert (await owner.say(topic, incarnation=7))["error_code"] == 77
        assert (await owner.say(topic, epoch=CONTROLLER_EPOCH + 1))["error_code"] == 41
        await asyncio.to_thread(owner.write_controller_epoch, CONTROLLER_EPOCH + 1)
        assert failed(await owner.say(topic, epoch=CONTROLLER_EPOCH + 1)) == {}
        assert (await owner.say(topic))["error_code"] == 11
        assert (await owner.say_stop(topic))["error_code"] == 11
        assert set(owner.partitions) == {topic.first}


async def test_r10_an_epoch_that_nobody_has_written_deposes_nobody(zk: ZooKeeper, tmp_path: Path) -> None:
    """Whatever is asked under it, by many at once; who is the controller is obeyed on."""
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        forged = 0x7FFF_FFFF
        answers = await asyncio.gather(
            *(owner.say(topic, epoch=forged) for _ in range(20)),
            *(owner.say_stop(topic, controller_epoch=forged) for _ in range(20)),
        )
        assert {one["error_code"] for one in answers} == {41}
        assert owner.partitions == {}
        assert failed(await owner.say(topic)) == {}
        assert set(owner.partitions) == {topic.first}


async def test_an_earlier_epoch_is_refused_a_later_version_adopted(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", epoch=5)
        await owner.say(topic)
        led = owner.partitions[topic.first]
        topic.change(leader_epoch=4, leader=2, version=9)
        await owner.say(topic)
        assert owner.partitions[topic.first] is led and not owner.replicas.followed
        await topic.write(leader=1, leader_epoch=5, isr=(1, 3), incarnations=owner.incarnations((1, 3)))
        await owner.say(topic)
        assert owner.partitions[topic.first] is led
        assert led.isr == (1, 3) and led.state_version == 2


async def test_r2_a_leader_that_becomes_a_follower_fails_whoever_waits(zk: ZooKeeper, tmp_path: Path) -> None:
    class Reader:
        woken = 0

        def more(self, partition: object) -> None:
            self.woken += 1

    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        waiter, reader = owner.append(topic), Reader()
        led = owner.partitions[topic.first]
        led.watch(reader)
        await topic.write(leader=2, leader_epoch=1)
        await owner.say(topic)
        assert isinstance(await refused(waiter), NotLeader)
        assert reader.woken >= 1 and led.resigned
        assert set(owner.replicas.followed) == {topic.first} and owner.partitions == {}
        await topic.write(leader=1, leader_epoch=2)
        await owner.say(topic)
        assert owner.replicas.followed == {}
        assert owner.partitions[topic.first].leader_epoch == 2


async def test_r2_the_same_leader_in_a_new_epoch_is_another_leader(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        waiter = owner.append(topic)
        await topic.write(leader_epoch=1)
        await owner.say(topic)
        assert isinstance(await refused(waiter), NotLeader)
        led = owner.partitions[topic.first]
        assert not led.end_is_known  # until the others have said under this epoch what they have
        owner.fetched(topic, 2)
        owner.fetched(topic, 3)
        await owner_flushes(owner)
        assert led.end_is_known


async def owner_flushes(owner: Owner) -> None:
    """Until all that was appended is flushed, and told."""
    await asyncio.to_thread(owner.flusher.stop)
    await asyncio.sleep(0)


async def test_r2_what_is_older_than_what_we_have_seen_is_not_led_again(zk: ZooKeeper, tmp_path: Path) -> None:
    """A controller that was deposed and does not know it says again what it knows: an ISR of ours alone, of before."""
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", isr=(1,))
        await owner.say(topic)
        old = {name: replace(state, new=False, version=1) for name, state in topic.states.items()}
        await topic.write(isr=(1, 2), incarnations=owner.incarnations((1, 2)))
        await owner.say(topic)
        led = owner.partitions[topic.first]
        assert led.isr_size == 2
        await topic.write(leader=2, leader_epoch=1)
        owner.replicas.step_down(led, "another leads", (await topic.state()).version)
        newest, topic.states = topic.states, old
        await owner.say(topic)
        assert owner.partitions == {}
        topic.states = newest
        await topic.write(leader=1, leader_epoch=2)
        await owner.say(topic)
        assert owner.partitions[topic.first].leader_epoch == 2


async def test_r1_nothing_is_led_by_an_incarnation_whose_session_is_gone(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        owner.replicas.suspend(NotLeader("the session has expired"))
        await owner.say(topic)
        assert owner.partitions == {}


async def test_an_epoch_below_the_logs_own_is_not_led(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", epoch=7)
        await owner.say(topic)
        owner.append(topic)
        await owner.say(is_full=True)
        assert owner.partitions == {}
        topic.change(new=False, leader_epoch=3, version=5)
        assert failed(await owner.say(topic)) == {"t": FencedLeaderEpoch.wire}


async def test_without_a_leader_it_neither_leads_nor_follows_and_keeps_its_log(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        owner.append(topic)
        for epoch in (1, 2):
            await topic.write(leader=NO_LEADER, leader_epoch=epoch)
            assert failed(await owner.say(topic)) == {}
            assert owner.partitions == {} and owner.replicas.followed == {}
            topic.change(leader=2)
            assert owner.log(topic).end.address > 0


async def test_what_a_full_request_does_not_name_is_let_go_and_its_log_stays(
    zk: ZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with owning(zk, tmp_path) as owner:
        led, followed = await owner.make_topic("led"), await owner.make_topic("followed")
        followed.change(leader=2)
        await owner.say(led, followed, is_full=True)
        waiter = owner.append(led)
        assert owner.times_assigned == 1
        await owner.say(led)  # names but one, and is not full
        assert set(owner.replicas.followed) == {followed.first}
        await owner.say(is_full=True)
        assert owner.partitions == {} and owner.replicas.followed == {}
        assert isinstance(await refused(waiter), NotLeader)
        assert len(owner.log_dirs.logs()) == 2
        assert any(str(record.args[0]) == "led-0" for record in caplog.records if record.args)


async def test_a_thousand_new_partitions_are_led_with_a_handful_of_requests(
    connect: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    asked: list[str] = []
    zk = connect(trace=lambda operation, path, took_ms: asked.append(operation))
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", partitions=1000)
        owner.authority.learn(CONTROLLER_EPOCH)  # as a broker has, since it watches who is controller
        asked.clear()
        begun = time.perf_counter()
        assert failed(await owner.say(topic)) == {}
        took_s = time.perf_counter() - begun
        assert len(owner.partitions) == 1000
        assert asked == ["multi"]
        await topic.write(leader_epoch=1)
        asked.clear()
        begun = time.perf_counter()
        assert failed(await owner.say(topic)) == {}
        assert asked == []
        print(f"1,000 new ones in {took_s:.2f} s, led anew in {time.perf_counter() - begun:.2f} s")


async def test_r8_what_was_not_flushed_at_the_election_is_flushed_for_it(zk: ZooKeeper, tmp_path: Path) -> None:
    """Otherwise nobody could read the end of a topic that is flushed rarely until somebody writes to it."""
    rare: dict[str, Any] = {"log_flush_interval_messages": "1000", "log_flush_interval_ms": "600000"}
    async with owning(zk, tmp_path, **rare) as owner:
        topic = await owner.make_topic("t", isr=(1,))
        await owner.say(topic)
        waiter = owner.append(topic)
        await topic.write(leader_epoch=1)
        await owner.say(topic)
        assert isinstance(await refused(waiter), NotLeader)
        led = owner.partitions[topic.first]
        await until_async(lambda: led.end_is_known)
        assert led.high_watermark == led.log.end


# --- Stopping ---------------------------------------------------------------------------------------------------------


async def test_a_deleted_replica_goes_durably_another_topics_stays(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t", epoch=3)
        await owner.say(topic)
        waiter = owner.append(topic)
        assert failed(await owner.say_stop(topic, topic_id=uuid4())) == {}
        await asyncio.to_thread(topic_deletion.mark_for_deletion, zk, topic.name)
        assert failed(await owner.say_stop(topic, epoch=2)) == {}  # of an epoch that is over
        assert set(owner.partitions) == {topic.first}
        assert failed(await owner.say_stop(topic)) == {}
        assert isinstance(await refused(waiter), UnknownTopicOrPartition)
        assert owner.log_dirs.logs() == [] and not (tmp_path / "t-0").exists()
        assert failed(await owner.say_stop(topic)) == {}  # said again


async def test_r10_nothing_is_deleted_that_the_registry_still_has(zk: ZooKeeper, tmp_path: Path) -> None:
    """A replica that it has is served on, whoever asks; one that was reassigned from here may go."""
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        waiter = owner.append(topic)
        assert failed(await owner.say_stop(topic)) == {"t": 42}
        assert failed(await owner.say_stop(topic, epoch=5)) == {"t": 42}
        assert failed(await owner.say_stop(topic, with_id=False)) == {"t": 42}
        assert set(owner.partitions) == {topic.first} and (tmp_path / "t-0").exists()
        assert not waiter.told.done()
        there = await asyncio.to_thread(topics.find, zk, topic.name)
        assert there is not None
        elsewhere = replace(there, partitions={0: (2, 3)})
        await asyncio.to_thread(topics.replace_assignment, zk, elsewhere, [])
        assert failed(await owner.say_stop(topic, epoch=5, with_id=False)) == {"t": 42}
        assert failed(await owner.say_stop(topic, epoch=5)) == {}
        assert owner.log_dirs.logs() == [] and not (tmp_path / "t-0").exists()


async def test_a_stopped_replica_keeps_its_log(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        topic.change(leader=2)
        await owner.say(topic)
        await owner.say_stop(topic, epoch=0, delete=False)
        assert owner.replicas.followed == {} and len(owner.log_dirs.logs()) == 1


async def test_l10_a_log_of_another_topic_of_the_name_is_set_aside(zk: ZooKeeper, tmp_path: Path) -> None:
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        owner.append(topic)
        topic.topic_id = uuid4()
        topic.change(leader=2, leader_epoch=1, new=False)
        assert failed(await owner.say(topic)) == {}
        assert owner.log(topic).end.address == 0
    assert len(list(tmp_path.glob("t-0.*-aside"))) == 1  # noqa: ASYNC240


# --- What is on the disks ---------------------------------------------------------------------------------------------


async def test_r1_facts_tell_a_clean_stop_from_a_crash_and_what_is_missing(zk: ZooKeeper, tmp_path: Path) -> None:
    rare: dict[str, Any] = {"log_flush_interval_messages": "1000", "log_flush_interval_ms": "1000"}

    async def first() -> None:
        async with owning(zk, tmp_path, **rare) as owner:
            topic = await owner.make_topic("t", isr=(1,))
            await owner.say(topic)
            owner.append(topic)
            await owner_flushes(owner)
            one = owner.log_dirs.dirs[0]
            one.checkpoints.keep_high_watermarks({topic.first: owner.replicas.high_watermark(owner.log(topic))})

    async def facts() -> dict[str, Any]:
        async with owning(zk, tmp_path, **rare) as owner:
            (found,) = owner.replicas.describe()
            owner.is_killed = True
            return found

    await first()
    clean = await facts()
    assert (clean["topic"], clean["partition_index"], clean["last_epoch"]) == ("t", 0, 0)
    assert clean["is_whole"] and clean["was_safe"] and clean["is_online"] and clean["end_address"] > 0
    crashed = await facts()
    assert crashed["is_whole"] and not crashed["was_safe"]
    async with owning(zk, tmp_path, **rare):  # a clean stop of a process that found it unsafe
        pass
    assert not (await facts())["was_safe"]
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    segment.write_bytes(b"")
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    (tmp_path / "log-summary-checkpoint").unlink()
    lost = await facts()
    assert not lost["is_whole"] and lost["end_address"] == 0


async def test_the_high_watermark_of_whatever_is_here_is_known(zk: ZooKeeper, tmp_path: Path) -> None:
    """Retention and the checkpoint go by it: never above what is known to be committed."""
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        await owner.say(topic)
        owner.append(topic)
        one = owner.log(topic)
        await owner_flushes(owner)
        assert owner.replicas.high_watermark(one) == 0 < one.end.address
        owner.fetched(topic, 2)
        owner.fetched(topic, 3)
        committed = one.end.address
        assert owner.replicas.high_watermark(one) == committed
        owner.append(topic)
        await topic.write(leader=2, leader_epoch=1)
        await owner.say(topic)
        assert owner.replicas.high_watermark(one) == committed < one.end.address
        await topic.write(leader=NO_LEADER, leader_epoch=2)
        await owner.say(topic)
        assert owner.replicas.high_watermark(one) == committed


async def test_the_states_are_those_that_are_written(zk: ZooKeeper, tmp_path: Path) -> None:
    """A mark is cleared only by whoever is still registered, and only of the topic that was meant (rule Z1)."""
    async with owning(zk, tmp_path) as owner:
        topic = await owner.make_topic("t")
        topic.fence_version += 1  # another topic of the name by now
        assert failed(await owner.say(topic)) == {}
        assert owner.partitions == {}
        state = await topic.state()
        assert state.new and state.version == 0
        found = await asyncio.to_thread(read_state, zk, TopicPartition("t", 0))
        assert found == state
