"""The paper's consumer against a real ZooKeeper and a real broker: streams, offsets, settings, who may use a group."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
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


class Group:
    """A topic, not made yet, and a group that reads it from the smallest offset on."""

    def __init__(self, broker: RunningBroker, topic: str, registry: ZooKeeper) -> None:
        self.bootstrap, self.zookeeper = broker.bootstrap, broker.zookeeper
        self.topic, self.name = topic, f"g-{topic}"
        self.registry = registry
        self.made: list[Consumer] = []

    def make_topic(self, partitions: int = 1) -> None:
        make_topic(self.bootstrap, self.topic, partitions)

    def send(self, lines: bytes, **options: Any) -> None:
        send(self.bootstrap, self.topic, lines, **options)

    def consumer(self, **settings: Any) -> Consumer:
        """A member; it is shut down at the end."""
        self.made.append(Consumer(self.zookeeper, self.name, **{"auto_offset_reset": "smallest", **settings}))
        return self.made[-1]

    def streams(self, count: int = 1, **settings: Any) -> list[MessageStream]:
        """Those of a new member."""
        return self.consumer(**settings).create_message_streams(self.topic, count)

    def committed(self) -> dict[TopicPartition, int]:
        return {name: found.offset for name, found in committed.read(self.registry, self.name).items()}


@pytest.fixture
def group(broker: RunningBroker, topic: str, registry: ZooKeeper) -> Iterator[Group]:
    found = Group(broker, topic, registry)
    yield found
    for one in found.made:
        one.shutdown()


def values(stream: MessageStream, count: int) -> list[bytes]:
    return [next(stream).payload() for _ in range(count)]


def numbered(count: int, begin: int = 0) -> bytes:
    return b"".join(b"%d\n" % number for number in range(begin, begin + count))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_message_as_it_is_read(group: Group) -> None:
    group.make_topic()
    group.send(b"k:v\n", key_delimiter=b":", headers=[("h", b"1")])
    message = next(group.streams()[0])
    assert (message.topic, message.partition, message.offset) == (group.topic, 0, 0)
    assert (message.key, message.value, message.headers) == (b"k", b"v", (("h", b"1"),))
    assert message.timestamp is not None and message.timestamp > 0
    assert message.payload() == b"v"


def test_streams_share_the_partitions_evenly_and_go_on_when_more_comes(group: Group) -> None:
    group.make_topic(5)
    streams = group.streams(2)
    assert [len(stream.partitions) for stream in streams] == [3, 2]
    reading = Reading(streams)
    for begin in (0, 500):
        for partition in range(5):
            group.send(numbered(100, begin + partition * 100), partition=partition)
        found = reading.wait_for(begin + 500)
    assert sorted(map(int, found)) == list(range(1000))
    places = [(message.partition, message.offset) for message in reading.messages]
    for partition in range(5):
        offsets = [offset for one, offset in places if one == partition]
        assert offsets == sorted(offsets), "the order within a partition"


def test_visits_while_a_stream_is_read_lose_and_repeat_nothing(group: Group) -> None:
    """Whoever iterates takes messages without the lock; another thread asks where it is meanwhile."""
    group.make_topic(2)
    for partition in range(2):
        group.send(numbered(30_000), partition=partition)
    (stream,) = group.streams(auto_commit_enable=False)
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
            found = positions.get(TopicPartition(group.topic, partition), 0)
            least = done_behind[max(0, before - 1)][partition]
            most = done_behind[min(after + 1, len(read))][partition]  # one may be taken that is not in the list yet
            assert least <= found <= most, (before, after)


def test_a_stream_without_a_partition_waits_and_shutdown_ends_it(group: Group) -> None:
    group.make_topic()
    consumer = group.consumer()
    reading = Reading(consumer.create_message_streams(group.topic, 3))
    group.send(b"one\n")
    assert reading.wait_for(1) == [b"one"]
    consumer.shutdown()
    reading.join()
    assert not reading.errors
    consumer.shutdown()  # once more does no harm


def test_nothing_within_the_timeout(group: Group) -> None:
    group.make_topic()
    reads, idle = group.streams(2, consumer_timeout_ms=50)
    with pytest.raises(ConsumerTimeout, match=rf"0\.05 s.*{group.topic}-0"):
        next(reads)
    with pytest.raises(ConsumerTimeout, match=r"0\.05 s") as caught:
        next(idle)
    assert group.topic not in caught.value.message
    group.send(b"one\n")
    until(lambda: [message.value for message in drain(reads)] == [b"one"], "the stream goes on after a time-out")


def test_largest_begins_at_the_end_and_misses_nothing_from_then_on(group: Group) -> None:
    group.make_topic()
    group.send(b"before\n")
    first = group.consumer(auto_offset_reset="largest")
    (stream,) = first.create_message_streams(group.topic)
    first.shutdown()  # before anything was read
    assert list(stream) == []
    group.send(b"after\n")
    (stream,) = group.streams(auto_offset_reset="latest")
    assert next(stream).value == b"after"


def test_a_filter_sees_topics_that_come_later_from_their_start(group: Group) -> None:
    make_topic(group.bootstrap, f"{group.topic}-a")
    consumer = group.consumer(auto_offset_reset="largest")
    reading = Reading(consumer.create_message_streams_by_filter(whitelist=f"{group.topic}-(a|b)"))
    for name in ("b", "c"):
        make_topic(group.bootstrap, f"{group.topic}-{name}")
        send(group.bootstrap, f"{group.topic}-{name}", name.encode() + b"\n")
    send(group.bootstrap, f"{group.topic}-a", b"a\n")
    assert sorted(reading.wait_for(2)) == [b"a", b"b"]
    assert {one.topic for one in consumer.partitions} == {f"{group.topic}-a", f"{group.topic}-b"}


def test_a_topic_that_is_not_there_is_waited_for_and_more_partitions_are_read(group: Group) -> None:
    consumer = group.consumer(auto_offset_reset="largest")
    reading = Reading(consumer.create_message_streams(group.topic, 2))
    assert consumer.partitions == []
    group.make_topic()
    group.send(b"one\n")
    reading.wait_for(1)
    run(group.bootstrap, lambda cluster: alter_topic(cluster, group.topic, 3))
    group.send(b"two\n", partition=2)
    assert reading.wait_for(2) == [b"one", b"two"]


def test_a_topic_that_is_made_anew_is_another_topic(group: Group) -> None:
    """Its offsets begin anew, what was claimed of the old one is nothing, and all in it is news."""
    group.make_topic()
    consumer = group.consumer(auto_offset_reset="largest", auto_commit_enable=False)
    reading = Reading(consumer.create_message_streams(group.topic))
    before = consumer.consumer_id
    group.send(numbered(10))
    reading.wait_for(10)
    assert consumer._rebalancer is not None
    with consumer._rebalancer._wakeup:  # it hears of nothing, and then sees the new topic alone
        delete_topic(group.bootstrap, group.topic)
        group.make_topic()
        group.send(numbered(20, 10))
    until(lambda: set(reading.values) == set(numbered(30).splitlines()), "all of the new one is read")
    last = {(group.topic, 0): reading.messages[-1].offset + 1}

    def is_taken() -> bool:
        try:
            consumer.commit_offsets(last)
        except NotOwned:  # it has not seen yet that the topic is another
            return False
        return True

    until(is_taken, "it commits in the topic that there is")
    assert group.committed() == last
    assert consumer.consumer_id == before


def test_a_restored_topic_is_read_on(group: Group) -> None:
    group.make_topic()
    consumer = group.consumer(auto_commit_enable=False)
    reading = Reading(consumer.create_message_streams(group.topic))
    group.send(numbered(10))
    reading.wait_for(10)
    last = {TopicPartition(group.topic, 0): reading.messages[-1].offset + 1}
    consumer.commit_offsets({tuple(name): offset for name, offset in last.items()})
    assert klog_command("topic", "delete", group.topic, "--yes", "-B", group.bootstrap).code == 0
    until(lambda: consumer.partitions == [], "it reads nothing of a deleted topic")
    assert group.committed() == last
    assert klog_command("topic", "restore", group.topic, "-B", group.bootstrap).code == 0
    group.send(numbered(20, 10))
    assert reading.wait_for(30) == numbered(30).splitlines()


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_stopped(group: Group) -> None:
    group.make_topic()
    group.send(numbered(10))
    with group.consumer() as consumer:
        (stream,) = consumer.create_message_streams(group.topic)
        assert values(stream, 4) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(RuntimeError), group.consumer() as consumer:
        (stream,) = consumer.create_message_streams(group.topic)
        assert values(stream, 2) == [b"4", b"5"]
        raise RuntimeError("5 could not be done")
    (offset,) = group.committed().values()
    assert group.registry.get(paths.consumer_offset(group.name, group.topic, 0)).data == str(offset).encode()
    (stream,) = group.streams()
    assert values(stream, 5) == [b"5", b"6", b"7", b"8", b"9"]


def test_a_second_consumer_takes_its_share_over_and_nothing_is_repeated(group: Group) -> None:
    group.make_topic(4)
    first = group.consumer(auto_commit_interval_ms=3_600_000)
    readings = [Reading(first.create_message_streams(group.topic, 1))]

    def more(begin: int) -> None:
        for partition in range(4):
            group.send(numbered(50, begin + partition * 50), partition=partition)

    def wait_for(count: int) -> None:
        until(lambda: sum(len(one.messages) for one in readings) >= count, f"{count} messages")

    more(0)
    wait_for(200)
    second = group.consumer(auto_commit_interval_ms=3_600_000)
    readings.append(Reading(second.create_message_streams(group.topic, 1)))
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
def test_a_message_in_hand_when_its_partition_goes_to_another(group: Group, is_done_in_time: bool) -> None:
    """It gets a moment to be done; then it counts as done. Either way it does not come again."""
    group.make_topic()
    group.send(numbered(3))
    # The later one has the partition: threads are sorted by name.
    first = group.consumer(consumer_id="b", auto_commit_interval_ms=3_600_000)
    (stream,) = first.create_message_streams(group.topic)
    assert next(stream).value == b"0"
    second = group.consumer(consumer_id="a")
    (other,) = second.create_message_streams(group.topic) if not is_done_in_time else (None,)
    if other is None:
        more = Reading([stream])  # asks for the next message: the first is done
        assert more.wait_for(2) == [b"1", b"2"]
        (other,) = second.create_message_streams(group.topic)
        group.send(b"3\n")
        assert next(other).value == b"3"
        assert more.values == [b"1", b"2"]
    else:
        assert next(other).value == b"1"
        with pytest.raises(NotOwned):
            first.commit_offsets({(group.topic, 0): 0})


def test_offsets_that_the_user_commits(group: Group) -> None:
    """An indexer commits the smallest offset that it has not flushed."""
    group.make_topic(2)
    group.send(numbered(10), partition=0)
    one, other = TopicPartition(group.topic, 0), TopicPartition(group.topic, 1)
    consumer = group.consumer(auto_commit_enable=False)
    with pytest.raises(Refused, match="yet"):
        consumer.commit_offsets()
    (stream,) = consumer.create_message_streams(group.topic)
    messages = [next(stream) for _ in range(5)]
    assert group.committed() == {}
    consumer.commit_offsets()
    assert messages[4].offset is not None and group.committed()[one] == messages[4].offset + 1
    consumer.commit_offsets({(group.topic, 0): messages[2].offset, (group.topic, 1): 0})
    assert group.committed() == {one: messages[2].offset, other: 0}
    with pytest.raises(NotOwned, match="other-0"):
        consumer.commit_offsets({("other", 0): 7, (group.topic, 0): 0})
    with pytest.raises(UsageError, match="'end'"):
        consumer.commit_offsets({(group.topic, 0): "end"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="9223372036854775808"):
        consumer.commit_offsets({(group.topic, 0): 2**63})
    consumer.shutdown()
    assert group.committed() == {one: messages[2].offset, other: 0}
    with pytest.raises(Refused, match="shut"):
        consumer.commit_offsets()
    (stream,) = group.streams()
    assert values(stream, 8) == [b"%d" % n for n in range(2, 10)]


def test_commits_come_by_themselves_and_leave_out_what_is_in_hand(group: Group) -> None:
    group.make_topic()
    group.send(numbered(10))
    (stream,) = group.streams(auto_commit_interval_ms=20)
    name = TopicPartition(group.topic, 0)
    offsets = [next(stream).offset for _ in range(5)]
    until(lambda: group.committed() == {name: offsets[4]}, "what is done is committed")
    next(stream)
    until(lambda: group.committed() == {name: offsets[4] + 1}, "and then the next")


def test_seek(group: Group) -> None:
    group.make_topic(2)
    group.send(numbered(10), partition=0)
    consumer = group.consumer()
    (stream,) = consumer.create_message_streams(group.topic)
    offsets = [next(stream).offset for _ in range(10)]
    consumer.seek(group.topic, 0, offsets[7])  # type: ignore[arg-type]
    assert [next(stream).offset for _ in range(3)] == offsets[7:]
    consumer.seek(group.topic, 0, "earliest")
    assert next(stream).offset == offsets[0]
    consumer.seek(group.topic, 0, "largest")
    group.send(b"new\n", partition=0)
    assert next(stream).value == b"new"
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to"):
        consumer.seek(group.topic, 0, 1_000_000)
    with pytest.raises(UsageError, match="'middle'"):
        consumer.seek(group.topic, 0, "middle")
    with pytest.raises(NotOwned):
        consumer.seek(group.topic, 2, 0)


# --- the registry, and who may use a group ----------------------------------------------------------------------------


def test_what_stands_in_the_registry(group: Group) -> None:
    registry, topic, name = group.registry, group.topic, group.name
    group.make_topic(2)
    consumer = group.consumer(consumer_id="indexer")
    consumer.create_message_streams({topic: 2})
    assert consumer.consumer_id.startswith(f"{name}_indexer-")
    (entry,) = consumers.members(registry, name)
    assert (entry.consumer_id, entry.subscription, entry.pattern) == (consumer.consumer_id, {topic: 2}, "static")
    owners = consumers.owners(registry, [name])[name]
    assert owners == {TopicPartition(topic, n): f"{consumer.consumer_id}-{n}" for n in range(2)}
    for number in range(2):
        owner = registry.get(paths.consumer_owner(name, topic, number))
        claim = registry.get(paths.ownership_fence(name, topic, number))
        assert owner.stat.created_zxid == claim.stat.modified_zxid, "made in one step"
        assert claim.stat.version == 1
    assert group_states.read(registry, name).group_protocol == ZOOKEEPER
    consumer.shutdown()
    assert consumers.members(registry, name) == []
    assert consumers.owners(registry, [name])[name] == {}

    with group.consumer() as listening:
        listening.create_message_streams_by_filter(blacklist=f"(?!{topic}).*", streams=2)
        (entry,) = consumers.members(registry, name)
        assert (entry.subscription, entry.pattern) == ({f"(?!{topic}).*": 2}, "black_list")
        assert registry.get(paths.ownership_fence(name, topic, 0)).stat.version == 2


def test_a_group_is_used_one_way_at_a_time(group: Group) -> None:
    registry, name = group.registry, group.name
    members = tuple(MemberState(f"m-{n}", None, f"client-{n}", "/10.0.0.7", 6000, 6000) for n in range(7))
    held = group_states.write(registry, GroupState(name, COORDINATOR, 3, members=members))
    with pytest.raises(GroupIsHeld, match=r"7 members .*client-0 on /10\.0\.0\.7.*\b2 more"):
        group.streams()
    assert consumers.members(registry, name) == []
    group_states.write(registry, GroupState(name, COORDINATOR, 4, version=held.version))  # they have left
    group.streams()
    taken = group_states.read(registry, name)
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


def test_wrong_use(group: Group) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        Consumer("host:port")
    with pytest.raises(UsageError, match="group"):
        Consumer("h:1", "")
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1"):
        Consumer("127.0.0.1:1", zookeeper_connection_timeout_ms=100).create_message_streams("t")
    with pytest.raises(NoNode, match="/nowhere"):
        Consumer(group.zookeeper.partition("/")[0] + "/nowhere").create_message_streams("t")
    consumer = group.consumer()
    consumer.create_message_streams(group.topic)
    with pytest.raises(Refused, match="once"):
        consumer.create_message_streams(group.topic)
    consumer.shutdown()
    with pytest.raises(Refused, match="shut"):
        consumer.create_message_streams(group.topic)


def test_two_threads_may_read_while_a_third_commits(group: Group) -> None:
    group.make_topic(2)
    consumer = group.consumer(auto_commit_interval_ms=5)
    reading = Reading(consumer.create_message_streams(group.topic, 2))
    stop = threading.Event()

    def commit() -> None:
        while not stop.is_set():
            consumer.commit_offsets()

    committer = threading.Thread(target=commit)
    committer.start()
    for partition in range(2):
        group.send(numbered(5000, partition * 5000), partition=partition)
    found = reading.wait_for(10_000)
    stop.set()
    committer.join()
    assert sorted(map(int, found)) == list(range(10_000))
