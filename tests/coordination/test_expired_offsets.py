"""Which offsets of which groups have expired, and that what changes meanwhile stays; on a real ZooKeeper."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from klog.coordination import committed, consumers, expired_offsets, group_states, paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.expired_offsets import SEEN_PART, Expired
from klog.coordination.group_states import COORDINATOR, FREE, ZOOKEEPER, GroupProtocol, GroupState, MemberState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BadVersion, NodeExists, ZooKeeperError
from klog.names import TopicPartition

ONE, TWO, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views", 0)
WEEK_MS = 7 * 24 * 3600 * 1000
MEMBER = MemberState("me", None, "client", "/127.0.0.1", 10_000, 10_000)


def commit(zk: ZooKeeper, group: str, *partitions: TopicPartition) -> None:
    writer = OffsetWriter(zk)
    zk.multi(writer.operations(group, {one: CommittedOffset(7) for one in partitions}))


def now_ms(zk: ZooKeeper) -> int:
    """By ZooKeeper's clock."""
    zk.ensure_path("/clock")
    return zk.set("/clock", b"").modified_ms


def look(zk: ZooKeeper, after_ms: float, group: str = "g") -> Expired:
    """What has expired so long from now."""
    return expired_offsets.of_group(zk, group, now_ms(zk) + int(after_ms), WEEK_MS)


@pytest.mark.parametrize("way", [FREE, COORDINATOR, ZOOKEEPER, None])
def test_what_nobody_has_used_for_a_week_goes_with_the_group(registry: ZooKeeper, way: GroupProtocol | None) -> None:
    if way is not None:
        group_states.write(registry, GroupState("g", way, generation=5))
    commit(registry, "g", ONE, TWO, OTHER)
    early = look(registry, WEEK_MS - 60_000)
    assert (early.operations, early.next_ms) == ([], pytest.approx(now_ms(registry) + WEEK_MS, abs=50_000))
    found = look(registry, WEEK_MS + 60_000)
    assert (found.partitions, found.is_all) == ((ONE, TWO, OTHER), True)
    registry.multi(found.operations)
    expired_offsets.remove_empty_folders(registry, "g", ["clicks", "views"])
    assert committed.groups(registry) == []
    assert registry.exists(paths.commits("g")) is None
    state = group_states.read(registry, "g")
    assert state.group_protocol == FREE
    assert state.generation == (0 if way is None else 5), "a generation only goes up"
    assert (state.version >= 0) == (way is not None)
    assert look(registry, 2 * WEEK_MS).operations == []


def test_members_that_live_keep_everything(registry: ZooKeeper) -> None:
    group_states.write(registry, GroupState("g", COORDINATOR, members=(MEMBER,)))
    commit(registry, "g", ONE)
    assert look(registry, 1000 * WEEK_MS).operations == []


def test_the_week_begins_when_the_last_member_goes(registry: ZooKeeper) -> None:
    commit(registry, "g", ONE)
    time.sleep(0.05)
    committed_ms = registry.get(paths.consumer_offset("g", *ONE)).stat.modified_ms
    group_states.write(registry, GroupState("g", COORDINATOR))
    assert not expired_offsets.of_group(registry, "g", committed_ms + WEEK_MS + 10, WEEK_MS).partitions
    assert look(registry, WEEK_MS + 1).partitions == (ONE,)


def test_consumers_that_coordinate_through_zookeeper_keep_everything_and_some_time_after(registry: ZooKeeper) -> None:
    commit(registry, "g", ONE)
    entry = ConsumerEntry("me", {"clicks": 1})
    path = paths.consumer_id("g", "me")
    registry.ensure_path(path.rpartition("/")[0])
    registry.create(path, consumers.encode(entry, 1), ephemeral=True)
    late = look(registry, WEEK_MS + 60_000)
    assert late.operations == []
    seen_ms = registry.get(paths.commits("g")).stat.modified_ms
    registry.delete(path)
    part_ms = WEEK_MS // SEEN_PART
    assert not expired_offsets.of_group(registry, "g", seen_ms + WEEK_MS + part_ms, WEEK_MS).partitions
    assert expired_offsets.of_group(registry, "g", seen_ms + WEEK_MS + part_ms + 1, WEEK_MS).partitions == (ONE,)


def test_each_offset_of_a_group_without_members_has_its_own_week(registry: ZooKeeper) -> None:
    group_states.write(registry, GroupState("g"))
    commit(registry, "g", ONE)
    time.sleep(0.05)
    commit(registry, "g", TWO)
    first_ms = registry.get(paths.consumer_offset("g", *ONE)).stat.modified_ms
    second_ms = registry.get(paths.consumer_offset("g", *TWO)).stat.modified_ms
    found = expired_offsets.of_group(registry, "g", first_ms + WEEK_MS + 1, WEEK_MS)
    assert (found.partitions, found.is_all, found.next_ms) == ((ONE,), False, second_ms + WEEK_MS)
    registry.multi(found.operations)
    expired_offsets.remove_empty_folders(registry, "g", ["clicks"])
    assert committed.names(registry, ["g"]) == {"g": [TWO]}


@pytest.mark.parametrize("way", [FREE, COORDINATOR, None])
def test_what_is_committed_or_joined_meanwhile_stays(registry: ZooKeeper, way: GroupProtocol | None) -> None:
    if way is not None:
        group_states.write(registry, GroupState("g", way))
    commit(registry, "g", ONE, TWO)
    found = look(registry, 2 * WEEK_MS)
    registry.set(paths.consumer_offset("g", *TWO), b"9")
    with pytest.raises(BadVersion):
        registry.multi(found.operations)
    again = look(registry, 2 * WEEK_MS)
    state = group_states.read(registry, "g")
    group_states.write(registry, replace(state, group_protocol=COORDINATOR, members=(MEMBER,)))
    with pytest.raises((BadVersion, NodeExists)):
        registry.multi(again.operations)
    kept = committed.read(registry, "g")
    assert {one: kept[one].offset for one in kept} == {ONE: 7, TWO: 9}


def test_a_group_that_cannot_be_read_keeps_what_it_has(registry: ZooKeeper) -> None:
    registry.create(paths.group("g"), b"no state")
    commit(registry, "g", ONE)
    with pytest.raises(ZooKeeperError):
        look(registry, 2 * WEEK_MS)
