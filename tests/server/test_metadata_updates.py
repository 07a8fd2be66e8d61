"""UpdateMetadata for many brokers: encoded once, and the same as if it were encoded for each."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klog.config import BrokerConfig
from klog.coordination.brokers import Broker, Registration
from klog.coordination.group_slots import SlotHolder
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Topic
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.codec import EncodedRequest
from klog.server.controller import metadata_updates, requests
from klog.server.controller.context import Context, KnownBroker, TopicTable
from klog.server.controller.metadata_updates import MetadataUpdates

HEAD = {"controller_id": 1, "controller_epoch": 5}


def topic_of(name: str, partitions: dict[int, tuple[int, ...]]) -> Topic:
    return Topic(name, uuid.uuid4(), partitions, 0, 0)


def context_of(*names: str) -> Context:
    context = Context(BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"}), time.monotonic)
    for one in (1, 2, 3):
        context.brokers[one] = KnownBroker(Registration(Broker(one, f"host-{one}", 9092), 100 + one, one, 0, 0))
    for name in names:
        add(context, name)
    context.group_slots = {0: SlotHolder(0, 1, 101, 1, 0)}
    return context


def add(context: Context, name: str) -> None:
    context.topics[name] = topic_of(name, {0: (1, 2), 1: (2, 3)})
    context.overrides[name] = {"retention.ms": "5"}
    for number, leader in ((0, 1), (1, 2)):
        lead(context, TopicPartition(name, number), leader, epoch=0, version=0)


def lead(context: Context, name: TopicPartition, leader: int, *, epoch: int, version: int) -> None:
    replicas = context.replicas(name)
    state = PartitionState(
        leader, epoch, replicas, 5, version=version, incarnations=tuple(100 + one for one in replicas)
    )
    context.take_states({name: state})


def everything(context: Context, incarnation: int) -> Any:
    return codec.request(
        ApiKey.UPDATE_METADATA,
        0,
        **HEAD,
        incarnation=incarnation,
        is_full=True,
        brokers=requests.metadata_brokers(context),
        topics=[requests.metadata_topic(context, topic, None) for topic in context.topics],
        slots=[asdict(holder) for holder in context.group_slots.values()],
    )


def test_everything_is_what_one_broker_alone_would_be_sent() -> None:
    context = context_of("a", "b", "c")
    updates = MetadataUpdates(context, 1, 5)
    for incarnation in (102, 103):
        sent = updates.request(0, incarnation)
        plain = everything(context, incarnation)
        assert codec.encode_request(sent, 7, "klog-broker-1") == codec.encode_request(plain, 7, "klog-broker-1")
        assert sent.decoded() == plain
    context.deleting["b"] = set()
    updates.changed(gone={"b": None})
    assert [one.name for one in updates.request(0, 102).decoded().topics] == ["a", "c"]


def test_channels_at_the_same_number_share_the_bytes() -> None:
    context = context_of("a", "b")
    updates = MetadataUpdates(context, 1, 5)
    told = updates.number
    lead(context, TopicPartition("b", 1), 3, epoch=1, version=1)
    updates.changed([TopicPartition("b", 1)])
    first, second = updates.request(told, 102), updates.request(told, 103)
    assert first.parts[1] is second.parts[1] and first.parts[0] != second.parts[0]
    (topic,) = first.decoded().topics
    assert (topic.name, [(one.partition_index, one.leader) for one in topic.partitions]) == ("b", [(1, 3)])
    assert not first.decoded().slots and len(first.decoded().brokers) == 3
    assert updates.request(0, 102).parts[1] is updates.request(0, 103).parts[1]


def test_what_was_sent_is_not_sent_again_and_nothing_is_left_out() -> None:
    context = context_of("a", "b")
    updates = MetadataUpdates(context, 1, 5)
    start = updates.number
    updates.changed([TopicPartition("a", 0)])
    between = updates.number
    updates.changed([TopicPartition("a", 1)], topics_whole=["b"])
    updates.slots_changed()
    assert named(updates.request(between, 102)) == {("a", 1), ("b", 0), ("b", 1)}
    assert named(updates.request(start, 102)) == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    assert updates.request(start, 102).decoded().slots
    updates.changed(gone={"a": context.topics.pop("a").topic_id})
    gone = updates.request(start, 102).decoded()
    assert [(one.name, one.is_deleted) for one in gone.topics] == [("b", False), ("a", True)]
    add(context, "a")
    updates.changed(topics_whole=["a"])
    assert [one.name for one in updates.request(start, 102).decoded().topics if one.is_deleted] == []


def named(request: EncodedRequest) -> set[tuple[str, int]]:
    return {(topic.name, one.partition_index) for topic in request.decoded().topics for one in topic.partitions}


def test_who_has_missed_a_forgotten_deletion_is_sent_everything(monkeypatch: Any) -> None:
    monkeypatch.setattr(metadata_updates, "GONE_MAX", 1)
    updates = MetadataUpdates(context_of("a"), 1, 5)
    start = updates.number
    updates.changed(gone={"x": None})
    updates.changed()
    after = updates.number
    updates.changed(gone={"y": None})
    assert updates.request(start, 102).decoded().is_full
    assert not updates.request(after, 102).decoded().is_full


def test_bytes_that_are_kept_are_dropped_with_whatever_they_say() -> None:
    context = context_of("a", "b")
    updates = MetadataUpdates(context, 1, 5)
    updates.request(0, 102)

    def check() -> None:
        updates.changed()
        assert updates.request(0, 102).decoded() == everything(context, 102)

    lead(context, TopicPartition("a", 0), 2, epoch=3, version=4)  # read again, and no broker was told
    check()
    context.brokers[3].is_refused = True  # its replicas are offline
    check()
    context.brokers[1].lost = {TopicPartition("b", 0)}
    check()
    context.brokers[1].lost.clear()
    check()


async def test_so_many_at_a_time_are_sent_everything(monkeypatch: Any) -> None:
    monkeypatch.setattr(metadata_updates, "UNDER_WAY_MAX", 2)
    updates = MetadataUpdates(context_of("a"), 1, 5)
    await updates.encode()
    turns = [updates.turn() for _ in range(4)]
    assert [one.done() for one in turns] == [True, True, False, False]
    updates.give_back(turns[2])  # its connection has ended while it waited
    updates.give_back(turns[0])
    assert turns[3].done() and not turns[2].done()
    monkeypatch.setattr(metadata_updates, "UNDER_WAY_BYTES_MAX", 1)
    for one in (turns[1], turns[3]):
        updates.give_back(one)
    first, second = updates.turn(), updates.turn()
    assert first.done() and not second.done(), "one is always under way, whatever its size"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.none()
            | st.dictionaries(st.integers(0, 3), st.lists(st.integers(1, 4), min_size=1, unique=True).map(tuple)),
        )
    )
)
def test_a_table_knows_who_has_replicas(changes: list[tuple[str, dict[int, tuple[int, ...]] | None]]) -> None:
    table = TopicTable()
    table["a"] = topic_of("a", {0: (1, 2)})
    for name, partitions in changes:
        if partitions is None:
            table.pop(name, None)
        else:
            table[name] = topic_of(name, partitions)
        for broker_id in range(1, 5):
            assert table.hosted(broker_id) == {
                TopicPartition(topic.name, number)
                for topic in table.values()
                for number, replicas in topic.partitions.items()
                if broker_id in replicas
            }


def test_an_encoded_request_is_answered_by_its_own_broker_as_the_entity_it_is() -> None:
    updates = MetadataUpdates(context_of("a"), 1, 5)
    found = updates.request(0, 101).decoded()
    assert (int(found.__api_key__), found.incarnation, found.is_full) == (ApiKey.UPDATE_METADATA, 101, True)
