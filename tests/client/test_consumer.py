"""The paper's consumer against a real ZooKeeper and a real broker: streams, offsets, settings, who may use a group."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import klog
from klog.admin.topics import alter_topic
from klog.client.consumer import Consumer
from klog.client.streams import MessageStream
from klog.coordination import committed, consumers, group_states, paths
from klog.coordination.group_states import COORDINATOR, ZOOKEEPER, GroupState, MemberState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    CannotConnect,
    ConsumerTimeout,
    GroupIsHeld,
    InvalidConfig,
    NoNode,
    NotOwned,
    OffsetOutOfRange,
    Refused,
    UsageError,
)
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog as klog_command
from tests.client.stream_readers import Reading, drain
from tests.rows import each
from tests.tools.verbs import delete_topic, make_topic, run, send
from tests.until import until


@pytest.fixture
def make_consumer(broker: RunningBroker, topic: str) -> Iterator[Callable[..., Consumer]]:
    """Consumers of a group of the test's own, from the smallest offset on; all are shut down."""
    made: list[Consumer] = []

    def make(group: str = f"g-{topic}", **settings: Any) -> Consumer:
        made.append(Consumer(broker.zookeeper, group, **{"auto_offset_reset": "smallest", **settings}))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def values(stream: MessageStream, count: int) -> list[bytes]:
    return [next(stream).payload() for _ in range(count)]


def numbered(count: int, begin: int = 0) -> bytes:
    return b"".join(b"%d\n" % number for number in range(begin, begin + count))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_message_as_it_is_read(broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"k:v\n", key_delimiter=b":", headers=[("h", b"1")])
    message = next(make_consumer().create_message_streams(topic)[0])
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert (message.key, message.value, message.headers) == (b"k", b"v", (("h", b"1"),))
    assert message.timestamp is not None and message.timestamp > 0
    assert message.payload() == b"v"


def test_streams_share_the_partitions_evenly_and_go_on_when_more_comes(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, topic, 5)
    streams = make_consumer().create_message_streams({topic: 2})[topic]
    assert [len(stream.partitions) for stream in streams] == [3, 2]
    reading = Reading(streams)
    for begin in (0, 500):
        for partition in range(5):
            send(broker.bootstrap, topic, numbered(100, begin + partition * 100), partition=partition)
        found = reading.wait_for(begin + 500)
    assert sorted(map(int, found)) == list(range(1000))
    places = [(message.partition, message.offset) for message in reading.messages]
    for partition in range(5):
        offsets = [offset for one, offset in places if one == partition]
        assert offsets == sorted(offsets), "the order within a partition"


def test_visits_while_a_stream_is_read_lose_and_repeat_nothing(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    """Whoever iterates takes messages without the lock; another thread asks where it is meanwhile."""
    make_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        send(broker.bootstrap, topic, numbered(30_000), partition=partition)
    (stream,) = make_consumer(auto_commit_enable=False).create_message_streams(topic)
    read: list[klog.Message] = []
    states: list[tuple[int, dict[TopicPartition, int], int]] = []
    over = threading.Event()

    def visit() -> None:
        while not over.is_set():
            before = len(read)
            states.append((before, stream.positions(done=True), len(read)))

    visitor = threading.Thread(target=visit)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        visitor.start()
        for message in stream:
            read.append(message)
            if len(read) == 60_000:
                break
    finally:
        over.set()
        visitor.join()
        sys.setswitchinterval(usual_s)
    assert len(states) > 10
    offsets: list[list[int]] = [[], []]
    done_behind: list[dict[int, int]] = [{0: 0, 1: 0}]
    for message in read:
        assert message.partition is not None and message.offset is not None
        offsets[message.partition].append(message.offset)
        done_behind.append({**done_behind[-1], message.partition: message.offset + 1})
    for partition in range(2):
        assert offsets[partition] == sorted(set(offsets[partition])), "each once, in its order"
        assert len(offsets[partition]) == 30_000
    for before, positions, after in states:
        for partition in range(2):
            found = positions.get(TopicPartition(topic, partition), 0)
            least = done_behind[max(0, before - 1)][partition]
            most = done_behind[min(after + 1, len(read))][partition]  # one may be taken that is not in the list yet
            assert least <= found <= most, (before, after)


def test_a_stream_without_a_partition_waits_and_shutdown_ends_it(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, topic)
    consumer = make_consumer()
    reading = Reading(consumer.create_message_streams(topic, 3))
    send(broker.bootstrap, topic, b"one\n")
    assert reading.wait_for(1) == [b"one"]
    consumer.shutdown()
    reading.join()
    assert not reading.errors
    consumer.shutdown()  # once more does no harm


def test_nothing_within_the_timeout(broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]) -> None:
    make_topic(broker.bootstrap, topic)
    reads, idle = make_consumer(consumer_timeout_ms=50).create_message_streams(topic, 2)
    with pytest.raises(ConsumerTimeout, match=rf"0\.05 s.*{topic}-0"):
        next(reads)
    with pytest.raises(ConsumerTimeout, match=r"0\.05 s") as caught:
        next(idle)
    assert topic not in caught.value.message
    send(broker.bootstrap, topic, b"one\n")
    until(lambda: [message.value for message in drain(reads)] == [b"one"], "the stream goes on after a time-out")


def test_largest_begins_at_the_end_and_misses_nothing_from_then_on(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"before\n")
    first = make_consumer(auto_offset_reset="largest")
    (stream,) = first.create_message_streams(topic)
    first.shutdown()  # before anything was read
    assert list(stream) == []
    send(broker.bootstrap, topic, b"after\n")
    (stream,) = make_consumer(auto_offset_reset="latest").create_message_streams(topic)
    assert next(stream).value == b"after"


def test_a_filter_sees_topics_that_come_later_from_their_start(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, f"{topic}-a")
    consumer = make_consumer(auto_offset_reset="largest")
    reading = Reading(consumer.create_message_streams_by_filter(whitelist=f"{topic}-(a|b)"))
    for name in ("b", "c"):
        make_topic(broker.bootstrap, f"{topic}-{name}")
        send(broker.bootstrap, f"{topic}-{name}", name.encode() + b"\n")
    send(broker.bootstrap, f"{topic}-a", b"a\n")
    assert sorted(reading.wait_for(2)) == [b"a", b"b"]
    assert {one.topic for one in consumer.partitions} == {f"{topic}-a", f"{topic}-b"}


def test_a_topic_that_is_not_there_is_waited_for_and_more_partitions_are_read(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    consumer = make_consumer(auto_offset_reset="largest")
    reading = Reading(consumer.create_message_streams(topic, 2))
    assert consumer.partitions == []
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"one\n")
    reading.wait_for(1)
    run(broker.bootstrap, lambda cluster: alter_topic(cluster, topic, 3))
    send(broker.bootstrap, topic, b"two\n", partition=2)
    assert reading.wait_for(2) == [b"one", b"two"]


def test_a_topic_that_is_made_anew_is_another_topic(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    """Its offsets begin anew, what was claimed of the old one is nothing, and all in it is news."""
    make_topic(broker.bootstrap, topic)
    consumer = make_consumer(auto_offset_reset="largest", auto_commit_enable=False)
    reading = Reading(consumer.create_message_streams(topic))
    before = consumer.consumer_id
    send(broker.bootstrap, topic, numbered(10))
    reading.wait_for(10)
    assert consumer._rebalancer is not None
    with consumer._rebalancer._wakeup:  # it hears of nothing, and then sees the new topic alone
        delete_topic(broker.bootstrap, topic)
        make_topic(broker.bootstrap, topic)
        send(broker.bootstrap, topic, numbered(20, 10))
    until(lambda: set(reading.values) == set(numbered(30).splitlines()), "all of the new one is read")
    last = {(topic, 0): reading.messages[-1].offset + 1}

    def is_taken() -> bool:
        try:
            consumer.commit_offsets(last)
        except NotOwned:  # it has not seen yet that the topic is another
            return False
        return True

    until(is_taken, "it commits in the topic that there is")
    assert {one: found.offset for one, found in committed.read(registry, f"g-{topic}").items()} == last
    assert consumer.consumer_id == before


def test_a_restored_topic_is_read_on(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    make_topic(broker.bootstrap, topic)
    consumer = make_consumer(auto_commit_enable=False)
    reading = Reading(consumer.create_message_streams(topic))
    send(broker.bootstrap, topic, numbered(10))
    reading.wait_for(10)
    last = {TopicPartition(topic, 0): reading.messages[-1].offset + 1}
    consumer.commit_offsets({tuple(name): offset for name, offset in last.items()})
    assert klog_command("topic", "delete", topic, "--yes", "-B", broker.bootstrap).code == 0
    until(lambda: consumer.partitions == [], "it reads nothing of a deleted topic")
    assert {one: found.offset for one, found in committed.read(registry, f"g-{topic}").items()} == last
    assert klog_command("topic", "restore", topic, "-B", broker.bootstrap).code == 0
    send(broker.bootstrap, topic, numbered(20, 10))
    assert reading.wait_for(30) == numbered(30).splitlines()


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_stopped(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(10))
    with make_consumer() as consumer:
        (stream,) = consumer.create_message_streams(topic)
        assert values(stream, 4) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(RuntimeError), make_consumer() as consumer:
        (stream,) = consumer.create_message_streams(topic)
        assert values(stream, 2) == [b"4", b"5"]
        raise RuntimeError("5 could not be done")
    found = committed.read(registry, f"g-{topic}")[TopicPartition(topic, 0)]
    assert registry.get(paths.consumer_offset(f"g-{topic}", topic, 0)).data == str(found.offset).encode()
    (stream,) = make_consumer().create_message_streams(topic)
    assert values(stream, 5) == [b"5", b"6", b"7", b"8", b"9"]


def test_a_second_consumer_takes_its_share_over_and_nothing_is_repeated(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, topic, 4)
    first = make_consumer(auto_commit_interval_ms=3_600_000)
    readings = [Reading(first.create_message_streams(topic, 1))]

    def more(begin: int) -> None:
        for partition in range(4):
            send(broker.bootstrap, topic, numbered(50, begin + partition * 50), partition=partition)

    def wait_for(count: int) -> None:
        until(lambda: sum(len(one.messages) for one in readings) >= count, f"{count} messages")

    more(0)
    wait_for(200)
    second = make_consumer(auto_commit_interval_ms=3_600_000)
    readings.append(Reading(second.create_message_streams(topic, 1)))
    until(lambda: (len(first.partitions), len(second.partitions)) == (2, 2), "each owns half")
    more(200)
    wait_for(400)
    first.shutdown()
    until(lambda: len(second.partitions) == 4, "all are the second's")
    more(400)
    wait_for(600)
    found = [int(value) for one in readings for value in one.values]
    assert sorted(found) == list(range(600)), "each once"
    assert readings[1].messages


@pytest.mark.parametrize("is_done_in_time", [True, False])
def test_a_message_in_hand_when_its_partition_goes_to_another(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], is_done_in_time: bool
) -> None:
    """It gets a moment to be done; then it counts as done. Either way it does not come again."""
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(3))
    # The later one has the partition: threads are sorted by name.
    first = make_consumer(consumer_id="b", auto_commit_interval_ms=3_600_000)
    (stream,) = first.create_message_streams(topic)
    assert next(stream).value == b"0"
    second = make_consumer(consumer_id="a")
    (other,) = second.create_message_streams(topic) if not is_done_in_time else (None,)
    if other is None:
        more = Reading([stream])  # asks for the next message: the first is done
        assert more.wait_for(2) == [b"1", b"2"]
        (other,) = second.create_message_streams(topic)
        send(broker.bootstrap, topic, b"3\n")
        assert next(other).value == b"3"
        assert more.values == [b"1", b"2"]
    else:
        assert next(other).value == b"1"
        with pytest.raises(NotOwned):
            first.commit_offsets({(topic, 0): 0})


def test_offsets_that_the_user_commits(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    """An indexer commits the smallest offset that it has not flushed."""
    make_topic(broker.bootstrap, topic, 2)
    send(broker.bootstrap, topic, numbered(10), partition=0)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def stands() -> dict[TopicPartition, int]:
        return {name: found.offset for name, found in committed.read(registry, f"g-{topic}").items()}

    consumer = make_consumer(auto_commit_enable=False)
    with pytest.raises(Refused, match="yet"):
        consumer.commit_offsets()
    (stream,) = consumer.create_message_streams(topic)
    messages = [next(stream) for _ in range(5)]
    assert stands() == {}
    consumer.commit_offsets()
    assert messages[4].offset is not None and stands()[one] == messages[4].offset + 1
    consumer.commit_offsets({(topic, 0): messages[2].offset, (topic, 1): 0})
    assert stands() == {one: messages[2].offset, other: 0}
    with pytest.raises(NotOwned, match="other-0"):
        consumer.commit_offsets({("other", 0): 7, (topic, 0): 0})
    with pytest.raises(UsageError, match="'end'"):
        consumer.commit_offsets({(topic, 0): "end"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="9223372036854775808"):
        consumer.commit_offsets({(topic, 0): 2**63})
    consumer.shutdown()
    assert stands() == {one: messages[2].offset, other: 0}
    with pytest.raises(Refused, match="shut"):
        consumer.commit_offsets()
    (stream,) = make_consumer().create_message_streams(topic)
    assert values(stream, 8) == [b"%d" % n for n in range(2, 10)]


def test_commits_come_by_themselves_and_leave_out_what_is_in_hand(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(10))
    (stream,) = make_consumer(auto_commit_interval_ms=20).create_message_streams(topic)
    offsets = [next(stream).offset for _ in range(5)]

    def stands() -> int:
        return committed.read(registry, f"g-{topic}")[TopicPartition(topic, 0)].offset

    until(lambda: stands() == offsets[4], "what is done is committed")
    next(stream)
    until(lambda: stands() == offsets[4] + 1, "and then the next")


def test_seek(broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]) -> None:
    make_topic(broker.bootstrap, topic, 2)
    send(broker.bootstrap, topic, numbered(10), partition=0)
    consumer = make_consumer()
    (stream,) = consumer.create_message_streams(topic)
    offsets = [next(stream).offset for _ in range(10)]
    consumer.seek(topic, 0, offsets[7])  # type: ignore[arg-type]
    assert [next(stream).offset for _ in range(3)] == offsets[7:]
    consumer.seek(topic, 0, "earliest")
    assert next(stream).offset == offsets[0]
    consumer.seek(topic, 0, "largest")
    send(broker.bootstrap, topic, b"new\n", partition=0)
    assert next(stream).value == b"new"
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to"):
        consumer.seek(topic, 0, 1_000_000)
    with pytest.raises(UsageError, match="'middle'"):
        consumer.seek(topic, 0, "middle")
    with pytest.raises(NotOwned):
        consumer.seek(topic, 2, 0)


# --- the registry, and who may use a group ----------------------------------------------------------------------------


def test_what_stands_in_the_registry(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    group = f"g-{topic}"
    make_topic(broker.bootstrap, topic, 2)
    consumer = make_consumer(consumer_id="indexer")
    consumer.create_message_streams({topic: 2})
    assert consumer.consumer_id.startswith(f"{group}_indexer-")
    (entry,) = consumers.members(registry, group)
    assert (entry.consumer_id, entry.subscription, entry.pattern) == (consumer.consumer_id, {topic: 2}, "static")
    owners = consumers.owners(registry, [group])[group]
    assert owners == {TopicPartition(topic, n): f"{consumer.consumer_id}-{n}" for n in range(2)}
    for number in range(2):
        owner = registry.get(paths.consumer_owner(group, topic, number))
        claim = registry.get(paths.ownership_fence(group, topic, number))
        assert owner.stat.created_zxid == claim.stat.modified_zxid, "made in one step"
        assert claim.stat.version == 1
    assert group_states.read(registry, group).group_protocol == ZOOKEEPER
    consumer.shutdown()
    assert consumers.members(registry, group) == []
    assert consumers.owners(registry, [group])[group] == {}

    with make_consumer() as listening:
        listening.create_message_streams_by_filter(blacklist=f"(?!{topic}).*", streams=2)
        (entry,) = consumers.members(registry, group)
        assert (entry.subscription, entry.pattern) == ({f"(?!{topic}).*": 2}, "black_list")
        assert registry.get(paths.ownership_fence(group, topic, 0)).stat.version == 2


def test_a_group_is_used_one_way_at_a_time(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer], registry: ZooKeeper
) -> None:
    group = f"g-{topic}"
    members = tuple(MemberState(f"m-{n}", None, f"client-{n}", "/10.0.0.7", 6000, 6000) for n in range(7))
    held = group_states.write(registry, GroupState(group, COORDINATOR, 3, members=members))
    with pytest.raises(GroupIsHeld, match=r"7 members .*client-0 on /10\.0\.0\.7.*\b2 more"):
        make_consumer().create_message_streams(topic)
    assert consumers.members(registry, group) == []
    group_states.write(registry, GroupState(group, COORDINATOR, 4, version=held.version))  # they have left
    make_consumer().create_message_streams(topic)
    taken = group_states.read(registry, group)
    assert (taken.group_protocol, taken.generation) == (ZOOKEEPER, 5)


# --- wrong use --------------------------------------------------------------------------------------------------------


@each(
    ("settings", "says"),
    [
        ({"auto_offset_rest": "smallest"}, "auto.offset.rest"),
        ({"nonsense": 1, "more_nonsense": 2}, "nonsense, more.nonsense"),
        ({"auto_offset_reset": "middle"}, "auto.offset.reset=middle: expected .*smallest"),
        ({"consumer_timeout_ms": "soon"}, "consumer.timeout.ms=soon: .*integer"),
        ({"auto_commit_enable": "perhaps"}, "auto.commit.enable=perhaps: .*true.*false"),
        (
            {"enable_auto_commit": True, "auto_commit_enable": True},
            "enable.auto.commit.*auto.commit.enable|auto.commit.enable.*enable.auto.commit",
        ),
        ({"offsets_storage": "kafka"}, "offsets.storage=kafka: expected .*zookeeper"),
        ({"partition_assignment_strategy": "roundrobin"}, "expected .*range"),
        ({"bootstrap_servers": "h:1"}, "bootstrap.servers"),
        ({"group_id": "g"}, "group.id"),
        ({"security_protocol": "none such"}, "security.protocol"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        Consumer("127.0.0.1:2181", "g", **settings)


def test_a_wrong_name_is_told_what_was_perhaps_meant() -> None:
    with pytest.raises(InvalidConfig) as caught:
        Consumer("127.0.0.1:2181", auto_offset_rest="smallest")
    assert "auto.offset.reset" in str(caught.value.hint)


def test_todays_names_and_those_of_0_7() -> None:
    old = Consumer("h:1", autooffset_reset="smallest", fetch_size=1000, zk_sessiontimeout_ms=4000)._settings
    now = Consumer(
        "h:1", auto_offset_reset="earliest", max_partition_fetch_bytes=1000, session_timeout_ms=4000
    )._settings
    assert old == now
    assert (old.session_timeout_ms, old.librdkafka["fetch.message.max.bytes"], old.from_smallest) == (4000, 1000, True)
    assert Consumer("h:1", socket_keepalive_enable=True)._settings.librdkafka["socket.keepalive.enable"] == "true"


def test_wrong_use(broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        Consumer("host:port")
    with pytest.raises(UsageError, match="group"):
        Consumer("h:1", "")
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1"):
        Consumer("127.0.0.1:1", zookeeper_connection_timeout_ms=100).create_message_streams("t")
    with pytest.raises(NoNode, match="/nowhere"):
        Consumer(broker.zookeeper.partition("/")[0] + "/nowhere").create_message_streams("t")
    consumer = make_consumer()
    consumer.create_message_streams(topic)
    with pytest.raises(Refused, match="once"):
        consumer.create_message_streams(topic)
    consumer.shutdown()
    with pytest.raises(Refused, match="shut"):
        consumer.create_message_streams(topic)


def test_two_threads_may_read_while_a_third_commits(
    broker: RunningBroker, topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    consumer = make_consumer(auto_commit_interval_ms=5)
    reading = Reading(consumer.create_message_streams(topic, 2))
    stop = threading.Event()

    def commit() -> None:
        while not stop.is_set():
            consumer.commit_offsets()

    committer = threading.Thread(target=commit)
    committer.start()
    for partition in range(2):
        send(broker.bootstrap, topic, numbered(5000, partition * 5000), partition=partition)
    found = reading.wait_for(10_000)
    stop.set()
    committer.join()
    assert sorted(map(int, found)) == list(range(10_000))
