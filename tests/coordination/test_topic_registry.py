"""Topics: 0.8's layout, UUIDs and first epochs (rule L10), fences (rule Z1), deletion that can be cut off."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from klog.coordination import (
    config_notices,
    controller_election,
    partition_states,
    paths,
    topic_deletion,
    topics,
)
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Deletion, TopicConfig
from klog.coordination.zookeeper import Check, Operation, ZooKeeper
from klog.errors import BadVersion, InvalidPartitions, NodeExists, TopicAlreadyExists, UnknownTopicOrPartition
from klog.names import TopicPartition
from tests.coordination.states import read_state, write_state
from tests.hand_clock import HandClock

pytestmark = pytest.mark.usefixtures("made_cluster")

Connect = Callable[..., ZooKeeper]


def test_the_layout_is_0_8s(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = topics.create(zk, "t", {1: [2, 1], 0: [1, 2]}, {"retention.ms": "5"}, fence)
    entry = json.loads(zk.get("/brokers/topics/t").data)
    assert list(entry) == ["version", "partitions", "topic_id"]
    assert (entry["version"], entry["partitions"]) == (1, {"0": [1, 2], "1": [2, 1]})
    assert zk.get("/config/topics/t").data == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert topic.topic_id is not None
    assert topics.find(zk, "t") == topic
    assert topics.read_all(zk) == [topic]
    assert topics.names(zk) == ["t"]
    states = partition_states.create_many(
        zk, {TopicPartition("t", 0): PartitionState(5, 2, (5,), 4)}, [*fence, *topic.fence]
    )
    assert zk.get("/brokers/topics/t/partitions/0/state").data == (
        b'{"controller_epoch":4,"leader":5,"version":1,"leader_epoch":2,"isr":[5]}'
    )
    assert states == {TopicPartition("t", 0): PartitionState(5, 2, (5,), 4, version=0)}
    assert read_state(zk, TopicPartition("t", 1)) is None


def test_a_topic_that_a_zookeeper_era_tool_made(zk: ZooKeeper, fence: list[Check]) -> None:
    zk.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1],"10":[1],"2":[1]}}')
    topic = topics.find(zk, "old")
    assert topic is not None
    assert (topic.topic_id, list(topic.partitions), topic.fence) == (None, [0, 2, 10], [])
    given = topics.give_id(zk, topic, fence)
    assert isinstance(given.topic_id, uuid.UUID)
    assert topics.find(zk, "old") == given == topics.give_id(zk, given, fence)
    assert topics.configs(zk, ["old"]) == {"old": TopicConfig({})}


def test_an_existing_topic_is_not_made_again(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = topics.create(zk, "t", {0: [1]}, {}, fence)
    with pytest.raises(TopicAlreadyExists, match="'t'"):
        topics.create(zk, "t", {0: [1]}, {"a": "b"}, fence)
    topic_deletion.mark_for_deletion(zk, "t", fence)
    topic_deletion.mark_for_deletion(zk, "t", fence)
    with pytest.raises(TopicAlreadyExists, match="deleted"):
        topics.create(zk, "t", {0: [1]}, {}, fence)
    assert topics.find(zk, "t") == topic
    with pytest.raises(UnknownTopicOrPartition):
        topic_deletion.mark_for_deletion(zk, "none", fence)


def test_many_race_to_make_a_topic_and_one_does(zk: ZooKeeper, connect: Connect) -> None:
    outcomes: list[object] = []

    def make(session: ZooKeeper) -> None:
        try:
            outcomes.append(topics.create(session, "t", {0: [1]}, {}, []))
        except TopicAlreadyExists as error:
            outcomes.append(error)

    threads = [threading.Thread(target=make, args=(connect(),)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 5
    assert [one for one in outcomes if not isinstance(one, Exception)] == [topics.find(zk, "t")]


def test_nothing_is_made_by_a_deposed_controller(zk: ZooKeeper, connect: Connect, fence: list[Check]) -> None:
    term = controller_election.current(zk)
    assert term is not None
    controller_election.resign(zk, term)
    controller_election.elect(connect(), 2)
    with pytest.raises(BadVersion):
        topics.create(zk, "t", {0: [1]}, {}, fence)
    assert topics.names(zk) == zk.children(paths.TOPIC_CONFIGS) == []


def test_first_epochs_exceed_all_that_the_name_ever_used(zk: ZooKeeper, fence: list[Check]) -> None:
    """Rule L10, through three lives of one name."""
    expected = 0
    for highest in (7, 2, 40):
        topic = topics.create(zk, "t", {0: [1], 1: [1]}, {}, fence)
        first = topics.first_leader_epochs(zk, ["t", "other"])
        assert first == {"t": expected, "other": 0}
        states = {one: PartitionState(1, first["t"], (1,), 1, new=True) for one in topic.topic_partitions}
        states = partition_states.create_many(zk, states, [*fence, *topic.fence])
        raised = PartitionState(1, first["t"] + highest, (1,), 1, version=0)
        write_state(zk, TopicPartition("t", 1), raised, [*fence, *topic.fence])
        topic_deletion.mark_for_deletion(zk, "t", fence)
        topic_deletion.finish_deletion(zk, "t", fence)
        expected += highest + 1
    assert topics.first_leader_epochs(zk, ["t"]) == {"t": 52}
    assert zk.children(paths.TOPICS) == zk.children(paths.TOPIC_CONFIGS) == zk.children(paths.DELETE_TOPICS) == []


def test_what_was_read_of_an_earlier_topic_cannot_be_written_to_a_later_one(zk: ZooKeeper, fence: list[Check]) -> None:
    """Rule Z1: versions start at 0 again with the new topic, so only the node beside it tells them apart."""
    old = topics.create(zk, "t", {0: [1]}, {}, fence)
    old_config = topics.configs(zk, ["t"])["t"]
    first = TopicPartition("t", 0)
    old_state = partition_states.create_many(zk, {first: PartitionState(1, 0, (1,), 1)}, fence)[first]
    topic_deletion.finish_deletion(zk, "t", fence)
    new = topics.create(zk, "t", {0: [1]}, {}, fence)
    partition_states.create_many(zk, {first: PartitionState(1, 1, (1,), 1)}, fence)
    assert (old.version, old_config.version, old_state.version) == (0, 0, 0)
    assert new.version == topics.configs(zk, ["t"])["t"].version == 0
    with pytest.raises(BadVersion):
        topics.add_partitions(zk, old, {1: [1]}, fence)
    with pytest.raises(BadVersion):
        topics.set_config(zk, old, TopicConfig({"a": "b"}, old_config.version), fence)
    with pytest.raises(BadVersion):
        write_state(zk, first, old_state, [*fence, *old.fence])
    assert topics.find(zk, "t") == new
    zk.multi([*fence, *new.fence])


def test_partitions_are_added_at_the_end(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = topics.create(zk, "t", {0: [1]}, {}, fence)
    grown = topics.add_partitions(zk, topic, {1: [1], 2: [1, 2]}, fence)
    assert topics.find(zk, "t") == grown
    assert grown.partitions == {0: (1,), 1: (1,), 2: (1, 2)}
    assert grown.topic_id == topic.topic_id
    for wrong in ({}, {2: [1]}, {4: [1]}, {3: [1], 5: [1]}):
        with pytest.raises(InvalidPartitions):
            topics.add_partitions(zk, grown, wrong, fence)
    with pytest.raises(BadVersion):  # read before another added
        topics.add_partitions(zk, topic, {1: [1]}, fence)


def test_settings_are_versioned_and_leave_a_notice(zk: ZooKeeper, fence: list[Check]) -> None:
    topic = topics.create(zk, "t", {0: [1]}, {"a": "1"}, fence)
    config = topics.configs(zk, ["t", "none"])["t"]
    assert config == TopicConfig({"a": "1"}, 0)
    changed = topics.set_config(zk, topic, TopicConfig({"b": "2"}, config.version), fence)
    assert topics.configs(zk, ["t"])["t"] == changed == TopicConfig({"b": "2"}, 1)
    with pytest.raises(BadVersion):
        topics.set_config(zk, topic, TopicConfig({"c": "3"}, config.version), fence)
    with pytest.raises(NodeExists):
        topics.set_config(zk, topic, TopicConfig({"c": "3"}), fence)
    notices = zk.children(paths.CONFIG_CHANGES)
    assert notices == ["config_change_0000000000"]
    stat = zk.get(f"{paths.CONFIG_CHANGES}/{notices[0]}")
    assert stat.data == b'"t"'
    for later_ms, kept in ((0, notices), (1, [])):
        zk.clock = HandClock(now_ms=stat.stat.created_ms + config_notices.KEPT_MS + later_ms)
        config_notices.forget(zk)
        assert zk.children(paths.CONFIG_CHANGES) == kept


def test_notices_are_bounded(zk: ZooKeeper, fence: list[Check], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_notices, "KEPT_MAX", 3)
    topic, config = topics.create(zk, "t", {0: [1]}, {"a": "1"}, fence), TopicConfig({}, 0)
    for number in range(5):
        config = topics.set_config(zk, topic, TopicConfig({"a": str(number)}, config.version), fence)
    config_notices.forget(zk)
    assert zk.children(paths.CONFIG_CHANGES) == [f"config_change_000000000{number}" for number in (2, 3, 4)]


def test_a_deletion_that_waits_is_one_mark_and_changes_nothing_else(zk: ZooKeeper, fence: list[Check]) -> None:
    made = {name: topics.create(zk, name, {0: [1, 2]}, {"a": "1"}, fence) for name in ("b", "a", "c")}
    held = {TopicPartition("b", 0): made["b"].topic_id or uuid.UUID(int=0)}
    before = [zk.get(path) for path in (paths.topic_config("b"), paths.topic_epoch("b"), paths.topic_id("b"))]
    deletion = Deletion(5000, "act", is_name_kept=False)
    for name in ("b", "a"):
        made[name] = topics.replace_assignment(zk, replace(made[name], deletion=deletion), fence)
    found = topics.deleted(zk)
    assert [(name, topic.deletion) for name, (topic, _) in found.items()] == [("b", deletion), ("a", deletion)]
    mark = found["b"][1]
    assert (mark.since_ms, mark.until_ms) == (zk.get(paths.topic("b")).stat.modified_ms, mark.since_ms + 5000)
    assert [zk.get(path) for path in (paths.topic_config("b"), paths.topic_epoch("b"), paths.topic_id("b"))] == before
    assert topics.still_held(zk, 1, held) == set(held), "its logs must stay (rule R10)"
    with pytest.raises(TopicAlreadyExists):
        topics.create(zk, "b", {0: [1]}, {}, fence)
    with pytest.raises(BadVersion):  # what read the topic before does not know of the mark
        topics.replace_assignment(zk, replace(made["b"], version=0, deletion=None), fence)

    back = topics.replace_assignment(zk, replace(made["b"], deletion=None), fence)
    assert topics.find(zk, "b") == back
    assert replace(back, version=0) == replace(made["b"], version=0, deletion=None)
    topic_deletion.mark_for_deletion(zk, "a", fence)
    assert topics.deleted(zk) == {}, "what is purged cannot be restored"


class CutOff(Exception):
    """Stands for a kill of the controller."""


def test_a_deletion_cut_off_anywhere_is_finished_by_the_next(
    zk: ZooKeeper, connect: Connect, fence: list[Check]
) -> None:
    """Cut before each of its multis: the name stays taken and marked until the last, and the epoch is never lost."""
    for cut_before in range(1, 4):
        first = topics.first_leader_epochs(zk, ["t"])["t"]
        topic = topics.create(zk, "t", {number: [1] for number in range(3)}, {}, fence)
        states = {one: PartitionState(1, first + 3, (1,), 1) for one in topic.topic_partitions}
        partition_states.create_many(zk, states, fence)
        topic_deletion.mark_for_deletion(zk, "t", fence)
        mortal = connect()
        sent = 0
        whole = mortal.multi

        def multi(
            operations: Sequence[Operation], whole: Callable[..., object] = whole, cut_before: int = cut_before
        ) -> object:
            nonlocal sent
            sent += 1
            if sent == cut_before:
                raise CutOff
            return whole(operations)

        mortal.multi = multi  # type: ignore[method-assign,assignment]
        with pytest.raises(CutOff):
            topic_deletion.finish_deletion(mortal, "t", fence)
        with pytest.raises(TopicAlreadyExists, match="deleted"):
            topics.create(zk, "t", {0: [1]}, {}, fence)
        assert topics.being_deleted(zk) == ["t"]
        topic_deletion.finish_deletion(zk, "t", fence)
        assert topics.being_deleted(zk) == topics.names(zk) == []
        assert topics.first_leader_epochs(zk, ["t"])["t"] == first + 4
        topic_deletion.finish_deletion(zk, "t", fence)  # nothing left to do


def test_a_thousand_partitions(zk: ZooKeeper, fence: list[Check]) -> None:
    """More than one multi may hold with 0.8's long states, so they are batched; each batch is fenced."""
    topic = topics.create(zk, "t", {number: [1, 2, 3] for number in range(1000)}, {}, fence)
    states = {one: PartitionState(1, 0, (1, 2, 3), 1, new=True) for one in topic.topic_partitions}
    states = partition_states.create_many(zk, states, [*fence, *topic.fence])
    assert partition_states.read_many(zk, topic.topic_partitions) == states
    states = partition_states.write_many(zk, states, [*fence, *topic.fence])
    assert {state.version for state in states.values()} == {1}
    assert partition_states.read_many(zk, topic.topic_partitions) == states
    topic_deletion.finish_deletion(zk, "t", fence)
    assert topics.names(zk) == []


def test_a_state_keeps_the_incarnations_of_its_isr(zk: ZooKeeper, fence: list[Check]) -> None:
    """Rule R1: who runs on since the ISR was written is told by them. Without them, or of another ISR: nobody."""
    topics.create(zk, "t", {0: [1, 2]}, {}, fence)
    name, path = TopicPartition("t", 0), "/brokers/topics/t/partitions/0/state"
    state = PartitionState(1, 0, (2, 1), 1, incarnations=(70, 50))
    state = partition_states.create_many(zk, {name: state}, fence)[name]
    assert read_state(zk, name) == state
    assert state.ran_on(1, 50) and state.ran_on(2, 70)
    assert not state.ran_on(1, 70) and not state.ran_on(2, 71) and not state.ran_on(3, 70)
    for left in (b"", b',"incarnations":[70]'):
        zk.set(path, b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[2,1]%s}' % left)
        older = read_state(zk, name)
        assert older is not None and older.incarnations == () and not older.ran_on(1, 50)


def test_a_state_keeps_the_epoch_of_the_last_unclean_election(zk: ZooKeeper, fence: list[Check]) -> None:
    topics.create(zk, "t", {0: [1, 2]}, {}, fence)
    name, path = TopicPartition("t", 0), "/brokers/topics/t/partitions/0/state"
    state = partition_states.create_many(zk, {name: PartitionState(1, 0, (1,), 1)}, fence)[name]
    assert b"unclean" not in zk.get(path).data
    state = write_state(zk, name, replace(state, leader=2, leader_epoch=7, unclean_epoch=7), fence)
    assert json.loads(zk.get(path).data)["unclean_epoch"] == 7
    assert read_state(zk, name) == state


def test_states_are_replaced_at_their_version(zk: ZooKeeper, fence: list[Check]) -> None:
    topics.create(zk, "t", {0: [1], 1: [1]}, {}, fence)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    states = partition_states.create_many(
        zk, {zero: PartitionState(1, 0, (1,), 1, new=True), one: PartitionState(1, 0, (1,), 1)}, fence
    )
    assert states[zero].new
    with pytest.raises(NodeExists):
        partition_states.create_many(zk, {one: PartitionState(1, 9, (1,), 1)}, fence)
    moved = write_state(zk, zero, PartitionState(2, 1, (2,), 1, version=0), fence)
    assert read_state(zk, zero) == moved == PartitionState(2, 1, (2,), 1, version=1)
    with pytest.raises(BadVersion):  # one of two is stale: neither is written
        partition_states.write_many(zk, states, fence)
    assert read_state(zk, one) == states[one]
