"""The trash in the registries: what is copied, when it is whole, what may be removed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from klog.coordination import (
    cluster,
    committed,
    controller_election,
    entries,
    partition_states,
    paths,
    topic_deletion,
    topics,
    trash,
)
from klog.coordination.committed import CommittedOffset
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Topic
from klog.coordination.trash import Entry
from klog.coordination.zookeeper import Check, Operation, ZooKeeper
from klog.errors import BadVersion
from klog.names import TopicPartition

Connect = Callable[..., ZooKeeper]


@pytest.fixture
def zk(connect: Connect) -> ZooKeeper:
    session = connect()
    cluster.ensure_cluster(session)
    return session


@pytest.fixture
def fence(zk: ZooKeeper) -> list[Check]:
    return [controller_election.elect(zk, 1).fence]


def begun(zk: ZooKeeper, fence: list[Check], name: str = "t", partitions: int = 3) -> Topic:
    """A topic with states and a group's offsets, marked for deletion."""
    topic = topics.create(zk, name, {number: [1, 2] for number in range(partitions)}, {"retention.ms": "5"}, fence)
    states = {one: PartitionState(1, 6, (2,), 1, unclean_epoch=3) for one in topic.topic_partitions[:-1]}
    partition_states.create_many(zk, states, fence)
    writer = committed.OffsetWriter(zk)
    offsets = {TopicPartition(name, 0): CommittedOffset(40, 6, "here", 1234)}
    zk.multi(writer.operations("a/group", offsets))
    assert topic.topic_id is not None
    topic_deletion.mark_for_deletion(zk, name, fence, Entry(topic.topic_id, name, 99, "act"))
    return topic


def entry_of(zk: ZooKeeper, topic: Topic) -> Entry:
    assert topic.topic_id is not None
    found = trash.find(zk, topic.topic_id)
    assert found is not None
    return found


def parts(zk: ZooKeeper, topic: Topic) -> dict[str, object]:
    path = entry_of(zk, topic).path
    return {name: json.loads(zk.get(f"{path}/{name}").data) for name in zk.children(path)}


WHOLE = {
    "config": {"version": 1, "config": {"retention.ms": "5"}},
    "states-0": {
        "version": 1,
        "states": {
            str(number): {"isr": [2], "leader_epoch": 6, "unclean_epoch": 3, "new": False} for number in range(2)
        },
    },
    "offsets-0": {
        "version": 1,
        "group": "a/group",
        "offsets": {"0": {"offset": 40, "leader_epoch": 6, "metadata": "here", "time": 1234}},
    },
}


def test_what_is_deleted_is_copied_first(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = begun(zk, fence)
    entry = entry_of(zk, topic)
    assert (entry.state, entry.name, entry.act, entry.deleted_ms) == (trash.DELETING, "t", "act", 99)
    assert zk.children(entry.path) == []  # a leader may still change its ISR
    topic_deletion.finish_deletion(zk, "t", fence)
    assert topics.names(zk) == []
    assert committed.read(zk, "a/group") == {}
    entry = entry_of(zk, topic)
    assert (entry.state, entry.first_epoch, entry.parts) == (trash.WHOLE, 7, 4)
    found = parts(zk, topic)
    copied = topics.decode("t", zk.get(f"{entry.path}/topic"), -1)
    assert (copied.topic_id, copied.partitions) == (topic.topic_id, topic.partitions)
    assert {name: data for name, data in found.items() if name != "topic"} == WHOLE
    assert trash.partition_counts(zk, [entry]) == {topic.topic_id: 3}
    assert trash.read_all(zk) == [entry]


class CutOff(Exception):
    """Stands for a kill of the controller."""


def test_a_copy_cut_off_anywhere_is_whole_afterwards(zk: ZooKeeper, connect: Connect, fence: list[Check]) -> None:
    """The states may be half deleted when the next controller goes on: what is whole is not copied again."""
    for cut_before in range(1, 6):
        topic = begun(zk, fence)
        mortal = connect()
        sent = 0
        send = mortal.multi

        def multi(
            operations: Sequence[Operation], send: Callable[..., object] = send, cut_before: int = cut_before
        ) -> object:
            nonlocal sent
            sent += 1
            if sent == cut_before:
                raise CutOff
            return send(operations)

        mortal.multi = multi  # type: ignore[method-assign,assignment]
        with pytest.raises(CutOff):
            topic_deletion.finish_deletion(mortal, "t", fence)
        topic_deletion.finish_deletion(zk, "t", fence)
        entry = entry_of(zk, topic)
        found = parts(zk, topic)
        assert entry.state == trash.WHOLE
        assert len(found) == entry.parts == 4
        states = found["states-0"]["states"]  # type: ignore[index]
        assert {state["isr"][0] for state in states.values()} == {2}
        offsets = found["offsets-0"]["offsets"]  # type: ignore[index]
        assert offsets["0"]["offset"] == 40
        trash.purge(zk, entry, fence)
        assert trash.read_all(zk) == []


def test_many_states_are_copied_in_parts(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = begun(zk, fence, partitions=3000)
    topic_deletion.finish_deletion(zk, "t", fence)
    found = parts(zk, topic)
    states = [part for name, part in found.items() if name.startswith("states-")]
    assert len(states) > 1
    assert sum(len(part["states"]) for part in states) == 2999  # type: ignore[index]


def test_who_keeps_and_who_may_delete(zk: ZooKeeper, fence: list[Check]) -> None:
    topic, other = begun(zk, fence), topics.create(zk, "other", {0: [1]}, {}, fence)
    assert topic.topic_id is not None and other.topic_id is not None
    unknown = uuid.uuid4()
    asked = [topic.topic_id, other.topic_id, unknown]
    assert trash.kept_ids(zk, asked) == {topic.topic_id}
    assert trash.gone_ids(zk, asked) == {unknown}
    topic_deletion.finish_deletion(zk, "t", fence)
    assert trash.kept_ids(zk, asked) == {topic.topic_id}
    assert trash.gone_ids(zk, asked) == {unknown}
    zk.set(entry_of(zk, topic).path, b"rubbish")  # nothing is deleted because of that
    assert trash.kept_ids(zk, asked) == {topic.topic_id}
    damage: dict[str, str] = {}
    assert trash.read_all(zk, damage) == []
    assert list(damage) == [paths.trashed(entries.uuid_text(topic.topic_id))]


def test_what_is_purged_is_gone_whatever_cuts_it_off(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = begun(zk, fence)
    assert topic.topic_id is not None
    old = entry_of(zk, topic)
    topic_deletion.finish_deletion(zk, "t", fence)
    with pytest.raises(BadVersion):
        trash.purge(zk, old, fence)
    entry = entry_of(zk, topic)
    zk.set(entry.path, entry.encode().replace(b"whole", b"purged"), entry.version)
    assert trash.kept_ids(zk, [topic.topic_id]) == set()
    assert trash.gone_ids(zk, [topic.topic_id]) == set()
    trash.purge(zk, entry_of(zk, topic), fence)
    assert trash.gone_ids(zk, [topic.topic_id]) == {topic.topic_id}
    trash.purge(zk, replace(entry, state=trash.PURGED), fence)  # nothing left to do


def test_an_entry_purged_before_the_deletion_ends_is_not_filled(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = begun(zk, fence)
    trash.purge(zk, entry_of(zk, topic), fence)
    topic_deletion.finish_deletion(zk, "t", fence)
    assert trash.read_all(zk) == []
    assert topics.names(zk) == []


def test_a_mark_of_another_tool_becomes_a_deletion_with_an_entry(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = topics.create(zk, "t", {0: [1]}, {}, fence)
    assert topic.topic_id is not None
    zk.create("/admin/delete_topics/t", b"")
    topic_deletion.take_on_deletion(zk, "t", fence, Entry(topic.topic_id, "t", 99))
    assert topic_deletion.deletions_begun(zk, ["t"]) == {"t"}
    assert entry_of(zk, topic).state == trash.DELETING
