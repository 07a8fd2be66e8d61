"""Acts on committed offsets: each multi that changes some has one, by the command line and by a stock client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient

from klog.admin import undo as undoing
from klog.coordination import acts, committed, offset_acts, offset_changes
from klog.coordination.acts import Act, Actor
from klog.coordination.committed import CommittedOffset
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import Refused
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.admin.group_registry import commit
from tests.broker_fixture import RunningBroker
from tests.cli.runner import act_rows, klog
from tests.server.asking import with_channel
from tests.tools.verbs import make_topic, run, send

ME = Actor("test", "here")


@pytest.fixture
def group(broker: RunningBroker, registry: ZooKeeper, topic: str) -> str:
    """A group without members that has read 10 messages of two partitions."""
    make_topic(broker.bootstrap, topic, 2)
    for partition in (0, 1):
        send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(10)), partition=partition)
    name = f"g-{topic}"
    offsets: dict[TopicPartition, int | CommittedOffset] = {
        TopicPartition(topic, 0): CommittedOffset(7, 3, "kept"),
        TopicPartition(topic, 1): 10,
    }
    commit(registry, name, offsets)
    return name


def acts_of(registry: ZooKeeper, group: str) -> list[Act]:
    return [act for act in acts.read(registry, acts.list_ids(registry)) if act.group == group]


def listed(broker: RunningBroker, group: str) -> list[dict[str, Any]]:
    return act_rows(broker.zookeeper, group=group)


def undo(broker: RunningBroker, act: str) -> Any:
    return klog("undo", act, "-y", "-o", "json", "-B", broker.bootstrap)


def test_a_rewind_is_an_act_and_is_taken_back(
    broker: RunningBroker, registry: ZooKeeper, topic: str, group: str
) -> None:
    before = committed.read(registry, group)
    assert klog("group", "rewind", group, "--to", "start", "-y", "-B", broker.bootstrap).code == 0
    (act,) = acts_of(registry, group)
    assert (act.kind, act.actor.client) == ("offsets", "klog")
    assert act.before == {f"{topic}-0": {"offset": 7, "leader_epoch": 3, "metadata": "kept"}, f"{topic}-1": 10}
    assert act.after == {f"{topic}-0": 0, f"{topic}-1": 0}

    assert undo(broker, act.act_id).code == 0
    now = committed.read(registry, group)
    assert {name: (one.offset, one.leader_epoch, one.metadata) for name, one in now.items()} == {
        name: (one.offset, one.leader_epoch, one.metadata) for name, one in before.items()
    }
    first, second = listed(broker, group)
    assert (first["undone_by"], second["undoes"]) == (second["act"], first["act"])
    assert first["before"] == f"{topic}-0=7 {topic}-1=10"

    again = undo(broker, act.act_id)
    assert again.code == 1
    assert again.error["code"] == "REFUSED"
    assert len(acts_of(registry, group)) == 2


def test_a_deleted_group_comes_back(broker: RunningBroker, registry: ZooKeeper, topic: str, group: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "cleaner"})
    client.delete_consumer_groups([group])[group].result(20)
    (act,) = acts_of(registry, group)
    assert (act.kind, act.actor.client, act.actor.host) == ("group-delete", "cleaner", "127.0.0.1")
    assert committed.read(registry, group) == {}
    assert undo(broker, act.act_id).code == 0
    assert {name.partition: one.offset for name, one in committed.read(registry, group).items()} == {0: 7, 1: 10}


def test_offsets_that_have_moved_on_are_left_alone(
    broker: RunningBroker, registry: ZooKeeper, topic: str, group: str
) -> None:
    klog("group", "rewind", group, "--to", "start", "-y", "-B", broker.bootstrap)
    (act,) = acts_of(registry, group)
    commit(registry, group, {TopicPartition(topic, 0): 2})
    refused = undo(broker, act.act_id)
    assert (refused.code, refused.error["code"]) == (1, "REFUSED")
    assert f"{topic}-0 is at 2" in refused.error["message"]
    assert f"{topic}-1" not in refused.error["message"]
    assert {one.offset for one in committed.read(registry, group).values()} == {2, 0}


def test_an_undo_compares_when_it_writes(broker: RunningBroker, registry: ZooKeeper, topic: str, group: str) -> None:
    """Not only before its question, which can stand for a long time."""
    klog("group", "rewind", group, "--to", "start", "-y", "-B", broker.bootstrap)
    (act,) = acts_of(registry, group)
    plan = undoing.plan_undo(registry, act)
    commit(registry, group, {TopicPartition(topic, 1): 4})
    with pytest.raises(Refused, match=f"{topic}-1 is at 4"):
        run(broker.bootstrap, lambda cluster: plan.carry_out(cluster, registry))
    assert {one.offset for one in committed.read(registry, group).values()} == {0, 4}
    assert acts_of(registry, group) == [act]


def test_before_is_what_the_multi_replaces(
    registry: ZooKeeper, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between the read and the write makes the write look again."""
    one, read, raced = TopicPartition(topic, 0), committed.read, iter([8])

    def read_and_race(*asked: Any) -> Any:
        found = read(*asked)
        for offset in raced:
            commit(registry, group, {one: offset})
        return found

    monkeypatch.setattr(committed, "read", read_and_race)
    offset_changes.write(registry, group, {one: CommittedOffset(1)}, actor=ME)
    (act,) = acts_of(registry, group)
    assert (act.before, act.after) == ({str(one): 8}, {str(one): 1})


def test_offsets_of_a_purged_topic_stay_away(
    broker: RunningBroker, registry: ZooKeeper, topic: str, group: str
) -> None:
    assert klog("group", "delete", group, "-y", "-B", broker.bootstrap).code == 0
    (act,) = acts_of(registry, group)
    assert klog("topic", "delete", topic, "--purge", "-y", "-B", broker.bootstrap).code == 0
    refused = undo(broker, act.act_id)
    assert (refused.code, refused.error["code"]) == (1, "REFUSED") and topic in refused.error["message"]
    assert committed.read(registry, group) == {}


@pytest.mark.slow
def test_offsets_that_a_stock_client_sets_back_or_deletes_are_acts(
    broker: RunningBroker, registry: ZooKeeper, topic: str, group: str
) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "night shift"})

    def alter(offset: int, *metadata: str) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [Assigned(topic, 0, offset, *metadata)])
        client.alter_consumer_group_offsets([wanted])[group].result(20)

    alter(9)  # as a consumer without a group protocol does
    assert acts_of(registry, group) == []
    alter(2)
    (act,) = acts_of(registry, group)
    assert (act.kind, act.actor.client, act.before, act.after) == (
        *("offsets", "night shift"),
        *({f"{topic}-0": 9}, {f"{topic}-0": 2}),
    )
    assert undo(broker, act.act_id).code == 0
    assert committed.read(registry, group)[TopicPartition(topic, 0)].offset == 9

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()
    before = len(acts_of(registry, group))
    alter(10)  # nobody but an operator commits without a member where members were
    assert acts_of(registry, group)[before:][0].after == {f"{topic}-0": 10}
    for offset, more in ((12, 1), (10, 2)):  # a mirror does, all the time; but where it goes back that is an act
        alter(offset, offset_acts.CARRIED + "1}")
        assert len(acts_of(registry, group)) == before + more

    partitions = [{"partition_index": number} for number in (0, 1)]
    asked = codec.request(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=[{"name": topic, "partitions": partitions}])
    for _ in range(2):  # the second one changes nothing
        answer = with_channel(broker.bootstrap, lambda channel: channel.request(asked, client_id="day shift"))
        assert answer.error_code.value == 0
    (gone,) = [one for one in acts_of(registry, group) if one.actor.client == "day shift"]
    assert gone.after == {f"{topic}-0": None, f"{topic}-1": None} and committed.read(registry, group) == {}
    assert undo(broker, gone.act_id).code == 0
    assert committed.read(registry, group)[TopicPartition(topic, 0)].offset == 10


def test_each_multi_has_the_act_of_what_it_changes(
    broker: RunningBroker, registry: ZooKeeper, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_changes, "PARTITIONS_AT_ONCE", 2)
    make_topic(broker.bootstrap, topic, 5)
    wanted = {TopicPartition(topic, number): CommittedOffset(number) for number in range(5)}
    offset_changes.write(registry, f"g-{topic}", wanted, actor=ME)
    found = acts_of(registry, f"g-{topic}")
    assert sorted(len(act.after) for act in found) == [1, 2, 2]
    assert {name: offset for act in found for name, offset in act.after.items()} == {
        f"{topic}-{number}": number for number in range(5)
    }
    offset_changes.write(registry, f"g-{topic}", wanted)  # a program's progress
    assert len(acts_of(registry, f"g-{topic}")) == 3


def test_undo_alone_shows_what_its_caller_did(
    broker: RunningBroker, registry: ZooKeeper, topic: str, group: str
) -> None:
    """A person has one name, whether a broker or the command itself has written the act."""
    at = ("-B", broker.bootstrap)
    assert klog("topic", "config", topic, "retention.ms=7000000", "-y", *at).code == 0
    assert klog("group", "rewind", group, "--to", "start", "-y", *at).code == 0
    offset_changes.write(
        registry, group, {TopicPartition(topic, 0): CommittedOffset(1)}, actor=Actor("night", "10.9.9.9")
    )
    ran = klog("undo", "-o", "json", *at)
    newest, before = ran.rows[:2]
    assert (newest["kind"], newest["subject"]) == ("offsets", f"group {group}")
    assert (before["kind"], before["subject"]) == ("topic-settings", f"topic {topic}")
    assert newest["principal"] == before["principal"] == "klog@127.0.0.1"
    assert not [row for row in ran.rows if row["principal"].endswith("@10.9.9.9")]
    assert "of others" in klog("undo", *at).stderr


def test_offsets_that_were_not_kept_are_not_taken_back() -> None:
    one = TopicPartition("t", 0)
    long = {one: CommittedOffset(1, 0, "x" * acts.STATE_BYTES_MAX)}
    act = offset_acts.new_offset_act(offset_acts.OFFSETS, ME, "g", {}, long)
    assert act.after is None
    with pytest.raises(Refused, match=act.act_id):
        offset_acts.decoded(act, act.after)
    with pytest.raises(Refused, match=act.act_id):
        offset_acts.decoded(act, {"no partition": 1})
    for hostile in ({"../../x-0": 1}, {"t-+1": 1}, {"t-0": 2**64}, {"t-0": {"offset": 1}}, {"t-0": float("inf")}):
        with pytest.raises(Refused, match=act.act_id):
            offset_acts.decoded(act, hostile)
    kept = offset_acts.new_offset_act(offset_acts.OFFSETS, ME, "g", {}, {one: CommittedOffset(1)})
    assert offset_acts.decoded(kept, kept.before) == {one: None}
