"""What the tools of Kafka 0.8 write into ZooKeeper takes effect as it is written, and nonsense there ends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from kazoo.client import KazooClient

from klog.coordination import controller_election, topics
from klog.errors import KlogError, UnknownTopicOrPartition
from klog.protocol.apis import ApiKey
from tests import era_tools
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.cluster.test_hung_disk import produced_by_whoever_leads
from tests.cluster_fixture import RunningCluster
from tests.server.asking import ask, error, offsets
from tests.server.test_admin import BAD_REQUEST, DELETION_DISABLED
from tests.tools.verbs import check, make_topic, own_settings, run, send
from tests.until import until
from tests.zookeeper_fixture import session_of


@contextmanager
def tool_of(address: str) -> Iterator[KazooClient]:
    """A session as such a tool has it."""
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def tools(three: RunningCluster) -> Iterator[KazooClient]:
    with tool_of(three.zookeeper) as client:
        yield client


def epoch_of(zookeeper: str) -> int:
    """The controller's."""
    with session_of(zookeeper) as session:
        found = controller_election.current(session)
        assert found is not None
        return found.epoch


def test_a_topic_is_made_grown_configured_and_deleted(three: RunningCluster, tools: KazooClient, topic: str) -> None:
    epoch = epoch_of(three.zookeeper)
    era_tools.make_topic(tools, topic, {0: [1, 2, 3], 1: [2, 3, 1]}, {"retention.ms": "86400000"})
    three.wait_until(lambda: len(three.partitions(topic)) == 2, "both partitions are known")
    three.wait_in_sync(topic)
    assert three.leader_of(topic, 0) == 1
    described = klog("topic", "describe", topic, "-B", three.bootstrap, "-o", "json")
    assert [row["replicas"] for row in json.loads(described.stdout)["rows"]] == [[1, 2, 3], [2, 3, 1]]
    assert send(three.bootstrap, topic, b"a\nb\nc\n").is_complete
    assert own_settings(three.bootstrap, topic) == {"retention.ms": "86400000"}
    with session_of(three.zookeeper) as session:
        before = topics.find(session, topic)
    assert before is not None and before.topic_id is not None

    era_tools.grow_topic(tools, topic, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    three.wait_until(lambda: len(three.partitions(topic)) == 3, "the new partition is known")
    # Metadata may know of the partition before its leader does.
    three.wait_until(lambda: produced_by_whoever_leads(three, topic, 2), "the new partition takes messages")
    with session_of(three.zookeeper) as session:
        after = topics.find(session, topic)
    assert after is not None and after.topic_id == before.topic_id  # the tool has dropped it, and it is there again

    era_tools.change_settings(tools, topic, {"retention.ms": "5000000", "segment.bytes": "1048576"})
    wanted = {"retention.ms": "5000000", "segment.bytes": "1048576"}
    three.wait_until(lambda: own_settings(three.bootstrap, topic) == wanted, "the settings hold")
    era_tools.change_settings(tools, topic, {})
    three.wait_until(lambda: own_settings(three.bootstrap, topic) == {}, "they hold no more")

    folders = [broker.folder / "data" / f"{topic}-0" for broker in three.brokers.values()]
    assert all(folder.is_dir() for folder in folders)
    era_tools.delete_topic(tools, topic)
    three.wait_until(lambda: not tools.exists(f"/brokers/topics/{topic}"), "it is deleted")
    assert not tools.exists(f"/admin/delete_topics/{topic}")
    assert not any(folder.exists() for folder in folders)
    assert three.try_create(topic) == 0
    assert epoch_of(three.zookeeper) == epoch


def test_no_settings_in_the_way_of_rule_r4(three: RunningCluster, tools: KazooClient, topic: str) -> None:
    """Followers of such a topic could not be told to be late: only these settings are left out."""
    era_tools.make_topic(tools, topic, {0: [1, 2]}, {"flush.messages": "1000000", "flush.ms": "3600000"})
    three.wait_in_sync(topic)
    assert own_settings(three.bootstrap, topic) == {}
    era_tools.change_settings(tools, topic, {"flush.messages": "1000000", "retention.ms": "777777"})
    three.wait_until(lambda: own_settings(three.bootstrap, topic) == {"retention.ms": "777777"}, "the other one holds")


def test_marks_that_are_not_to_be_followed_go(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker(delete__topic__enable="false").start()
    with tool_of(broker.zookeeper) as client:
        era_tools.make_topic(client, topic, {0: [1]})
        broker.wait_for_log("registry_watch", topic)
        for version, code in ((1, BAD_REQUEST), (5, DELETION_DISABLED)):  # nor what clients ask for
            answer = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, version, timeout=10_000, topic_names=[topic])
            assert error(answer.responses[0]) == code
        era_tools.delete_topic(client, topic)
        era_tools.delete_topic(client, "no-such-topic")
        wait(lambda: client.get_children("/admin/delete_topics") == [])
        assert send(broker.bootstrap, topic, b"a\n").is_complete
        era_tools.delete_topic(client, topic)
        wait(lambda: client.get_children("/admin/delete_topics") == [])
        broker.kill()
        era_tools.delete_topic(client, topic)
        broker.start()
        wait(lambda: client.get_children("/admin/delete_topics") == [])
        assert send(broker.bootstrap, topic, b"a\n").is_complete


BROKEN = [
    b"",
    b"{",
    b"[" * 100_000,
    b"7",
    b'{"version":1}',
    b'{"partitions":{"0":[]}}',
    b'{"partitions":{"4000000000":[1]}}',
]
BROKEN += [b'{"partitions":{"0":[1,1]}}', b'{"partitions":{"0":[-1]}}', b'{"partitions":{"0":[99999999999]}}']
BROKEN += ['{"partitions":{"²":[1]}}'.encode(), b'{"partitions":{"0":[true]}}', b'{"partitions":{}}', b"\xff\xfe"]


def test_nonsense_is_told_and_ends_nothing(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker().start()
    with tool_of(broker.zookeeper) as client:
        era_tools.make_topic(client, topic, {0: [1]}, {"retention.ms": "86400000", "segment.bytes": "1048576"})
        broker.wait_for_log("registry_watch", topic)
        epoch = epoch_of(broker.zookeeper)
        for number, data in enumerate(BROKEN):
            client.create(f"/brokers/topics/broken-{number}", data)
            era_tools.notify(client, data)
        client.create("/brokers/topics/no topic name", b'{"version":1,"partitions":{"0":[1]}}')
        client.set(f"/brokers/topics/{topic}", b"nonsense")
        client.set(f"/config/topics/{topic}", b"nonsense")
        era_tools.notify(client, json.dumps(topic).encode())
        era_tools.make_topic(client, f"{topic}-b", {0: [1]}, {"retention.ms": "long", "segment.bytes": "1048576"})
        broker.wait_for_log("registry_watch", f"{topic}-b")
        # What was known holds; of what is new what can be read, and retention only as it was meant.
        assert send(broker.bootstrap, topic, b"a\n").is_complete
        assert own_settings(broker.bootstrap, topic) == {"retention.ms": "86400000", "segment.bytes": "1048576"}
        assert own_settings(broker.bootstrap, f"{topic}-b") == {"retention.ms": "-1", "segment.bytes": "1048576"}
        told = {one.what.removeprefix("zookeeper ") for one in asyncio.run(check(broker.bootstrap, None, ["topics"]))}
        assert {f"/brokers/topics/{topic}", f"/config/topics/{topic}-b", "/brokers/topics/no topic name"} <= told
        assert {f"/brokers/topics/broken-{number}" for number in range(len(BROKEN))} <= told
        assert sum(one.startswith("/config/changes/") for one in told) == len(BROKEN)
        assert epoch_of(broker.zookeeper) == epoch
        for number in range(len(BROKEN)):
            assert f"/brokers/topics/broken-{number} " in broker.log_text

        # The next controller finds it all as it is.
        client.set(f"/brokers/topics/{topic}-b/partitions/0/state", b"nonsense")
        broker.kill()
        broker.start()
        assert klog("topic", "list", "-B", broker.bootstrap).code == 0
        assert epoch_of(broker.zookeeper) > epoch
        with pytest.raises(UnknownTopicOrPartition):
            own_settings(broker.bootstrap, topic)
        # Mended, it is served as before, with all that was in it, though the tool knows of no id.
        era_tools.grow_topic(client, topic, {0: [1]})
        broker.wait_for_log("registry_watch", topic, " 1 partition")
        wait(lambda: offsets(broker.bootstrap, topic) == (0, 1))
        wait(lambda: own_settings(broker.bootstrap, topic) == {"retention.ms": "-1", "retention.bytes": "-1"})
        assert klog("topic", "config", topic, "retention.ms=5000000", "-B", broker.bootstrap).code == 0
        assert json.loads(client.get(f"/config/topics/{topic}")[0])["config"]["retention.ms"] == "5000000"


def test_a_topic_that_a_tool_grows_between_two_controllers_keeps_its_logs(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    """The tool drops the id, and what lies under another id is never served."""
    broker = make_broker().start()
    with tool_of(broker.zookeeper) as client:
        make_topic(broker.bootstrap, topic, 2)
        assert send(broker.bootstrap, topic, b"a\nb\n").is_complete
        there = [offsets(broker.bootstrap, topic, one) for one in range(2)]
        broker.kill()
        era_tools.grow_topic(client, topic, {number: [1] for number in range(3)})
        broker.start()
        wait(lambda: broker_knows(broker, topic) == 3)
        assert [offsets(broker.bootstrap, topic, one) for one in range(2)] == there


def broker_knows(broker: RunningBroker, topic: str) -> int:
    """How many partitions have a leader."""
    found = run(broker.bootstrap, lambda cluster: cluster.topic(topic, fresh=True))
    return sum(one.leader is not None for one in found.partitions.values())


def wait(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Until it holds; what is not known to the broker yet does not hold yet."""

    def held() -> object:
        with suppress(KlogError, AssertionError):
            return holds()
        return False

    until(held, timeout_s=within_s)
