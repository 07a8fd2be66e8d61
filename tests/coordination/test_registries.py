"""What `klog zk` shows, from a chroot with real entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from klog.admin import registries
from klog.coordination import brokers, cluster, controller_election, partition_states, topic_deletion, topics
from klog.coordination.brokers import Broker
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NoNode, UsageError
from klog.names import TopicPartition
from tests.rows import each


@pytest.fixture
def term(zk: ZooKeeper) -> ControllerTerm:
    """A cluster with broker 1, controller; and broker 12 of another session's without log dirs."""
    cluster.ensure_cluster(zk)
    brokers.register(zk, Broker(1, "h", 9092, ("dir-a",), "127.0.0.1:9093", "r1", timestamp_ms=1435833841290))
    zk.create("/brokers/ids/12", b'{"jmx_port":9999,"timestamp":"0","host":"old","version":1,"port":6667}')
    return controller_election.elect(zk, 1)


def test_brokers(zk: ZooKeeper, term: ControllerTerm) -> None:
    one, twelve = asyncio.run(registries.list_brokers(zk))
    assert (one.path, one.version, one.session) == ("/brokers/ids/1", 0, f"{zk.session_id:#x}")
    assert (one.broker, one.host, one.port, one.bind, one.rack) == (1, "h", 9092, "127.0.0.1:9093", "r1")
    assert one.log_dirs == ["dir-a"]
    assert one.timestamp == datetime(2015, 7, 2, 10, 44, 1, 290_000, tzinfo=UTC)
    assert (twelve.broker, twelve.session, twelve.bind, twelve.rack, twelve.jmx_port) == (12, None, None, None, 9999)
    assert one.incarnation < twelve.incarnation


def test_topics(zk: ZooKeeper, term: ControllerTerm) -> None:
    made = topics.create(zk, "b", {0: [1], 1: [12, 1]}, {"retention.ms": "5"}, [term.fence])
    topics.create(zk, "a", {0: [1]}, {}, [term.fence])
    topic_deletion.mark_for_deletion(zk, "a", [term.fence])
    a, b = asyncio.run(registries.list_topics(zk))
    assert (a.topic, a.deleting, b.topic, b.deleting) == ("a", True, "b", False)
    assert (b.path, b.version, b.session, b.partitions) == ("/brokers/topics/b", 0, None, 2)
    assert (b.topic_id, b.replicas, b.config) == (str(made.topic_id), {"0": [1], "1": [12, 1]}, {"retention.ms": "5"})


def test_isr(zk: ZooKeeper, term: ControllerTerm) -> None:
    topics.create(zk, "b", {0: [1, 12], 1: [12, 1]}, {}, [term.fence])
    state = PartitionState(1, 3, (1,), term.epoch, new=True, incarnations=(77,))
    partition_states.create_many(zk, {TopicPartition("b", 0): state}, [term.fence])
    led, unled = asyncio.run(registries.list_isr(zk))
    assert (led.path, led.version, led.topic, led.partition) == ("/brokers/topics/b/partitions/0/state", 0, "b", 0)
    assert (led.leader, led.leader_epoch, led.isr, led.catching_up, led.controller_epoch) == (1, 3, [1], [12], 1)
    assert (led.new, led.incarnations, led.adding, led.removing) == (True, [77], [], [])
    assert (unled.partition, unled.version, unled.leader, unled.isr, unled.catching_up) == (1, None, None, [], [12, 1])


def test_controller(zk: ZooKeeper, term: ControllerTerm) -> None:
    (row,) = asyncio.run(registries.show_controller(zk))
    assert (row.path, row.version, row.session) == ("/controller", 0, f"{zk.session_id:#x}")
    assert (row.broker, row.epoch) == (1, 1)
    assert abs((row.timestamp - datetime.now(UTC)).total_seconds()) < 60
    controller_election.resign(zk, term)
    assert asyncio.run(registries.show_controller(zk)) == []


def test_an_empty_chroot_has_no_rows(zk: ZooKeeper) -> None:
    assert asyncio.run(registries.list_brokers(zk)) == []
    assert asyncio.run(registries.list_topics(zk)) == []
    assert asyncio.run(registries.list_isr(zk)) == []
    assert asyncio.run(registries.show_controller(zk)) == []
    assert zk.children("/") == []  # looking has made nothing


def test_raw(zk: ZooKeeper, term: ControllerTerm) -> None:
    def listed(path: str) -> list[str]:
        return [row.path for row in asyncio.run(registries.list_nodes(zk, path))]

    top = ["admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch", "klog"]
    assert listed("/") == [f"/{name}" for name in top]
    assert listed("/brokers/ids/") == ["/brokers/ids/1", "/brokers/ids/12"]
    assert listed("/brokers/ids/1") == []
    nodes = [row.path for row in asyncio.run(registries.tree(zk, "/brokers"))]
    assert nodes == ["/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/12", "/brokers/topics"]
    shallow = [row.path for row in asyncio.run(registries.tree(zk, "/brokers", depth=1))]
    assert shallow == ["/brokers", "/brokers/ids", "/brokers/topics"]
    assert [row.path for row in asyncio.run(registries.tree(zk, "/", depth=0))] == ["/"]
    data = asyncio.run(registries.get_node(zk, "/controller_epoch"))
    assert (data.data, data.version, data.session) == (b"1", 1, None)
    stat = asyncio.run(registries.stat_node(zk, "/controller"))
    found = zk.exists("/controller")
    assert found is not None
    assert (stat.c_zxid, stat.data_version, stat.data_length) == (found.created_zxid, 0, found.data_bytes)
    assert (stat.ephemeral_owner, stat.holder) == (f"{zk.session_id:#x}", "broker 1 (h:9092)")
    assert asyncio.run(registries.stat_node(zk, "/controller_epoch")).holder is None


@each("verb", [registries.list_nodes, registries.tree, registries.get_node, registries.stat_node])
def test_what_is_missing_is_told_with_the_nearest_that_is_there(
    zk: ZooKeeper, term: ControllerTerm, verb: Callable[..., object]
) -> None:
    with pytest.raises(NoNode, match="/brokers/ids/7/x") as caught:
        asyncio.run(verb(zk, "/brokers/ids/7/x"))  # type: ignore[arg-type]
    assert str(caught.value.hint).endswith(" /brokers/ids")


@each("path", ["", "brokers", "/a//b", "/a/../b", "/.", "/a\0b"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(UsageError):
        registries.check_path(path)
