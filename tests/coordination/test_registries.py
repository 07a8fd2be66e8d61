"""What `klog zk` shows, from a chroot with real entries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klog.admin import registries
from klog.coordination import brokers, cluster, controller_election, group_states, partition_states, topics
from klog.coordination.brokers import Broker
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.group_states import GroupState
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


def entries(zk: ZooKeeper, root: str) -> dict[str, str | None]:
    return {row.path: row.entry for row in registries.tree(zk, root)}


def test_entries_of_registries_are_decoded(zk: ZooKeeper, term: ControllerTerm) -> None:
    topics.create(zk, "b", {0: [1, 12], 1: [12, 1]}, {"retention.ms": "5"}, [term.fence])
    state = PartitionState(1, 3, (1, 12), term.epoch, incarnations=(77, 78))
    partition_states.create_many(zk, {TopicPartition("b", 0): state}, [term.fence])
    group_states.write(zk, GroupState("g", "coordinator", 7, protocol="range" * 10_000))
    found = entries(zk, "/")
    one = set((found["/brokers/ids/1"] or "").split())
    assert {"host=h", "port=9092", "rack=r1", "log_dirs=dir-a", "timestamp=2015-07-02T10:44:01.290Z"} <= one
    assert "partitions=0:1,12;1:12,1" in (found["/brokers/topics/b"] or "").split()
    led = set((found["/brokers/topics/b/partitions/0/state"] or "").split())
    assert {"leader=1", "leader_epoch=3", "isr=1,12", "controller_epoch=1"} <= led
    assert (found["/config/topics/b"], found["/controller_epoch"]) == ("config=retention.ms:5", "1")
    assert "brokerid=1" in (found["/controller"] or "").split()
    assert "generation=7" in (found["/klog/groups/g"] or "").split(), "a compressed one"
    assert found["/brokers/ids"] is found["/klog/acts"] is None
    assert "brokerid=1" in str(registries.get_node(zk, "/controller").entry)


def test_what_is_no_entry_is_shown_all_the_same(zk: ZooKeeper) -> None:
    wrong = [b"", b"\xff", b"[" * 100_000, b"zz", b"{}", b"null", b'{"timestamp":"' + b"9" * 30 + b'"}']
    for number, data in enumerate(wrong):
        zk.create(f"/brokers/ids/{number}", data, parents=True)
    assert len(entries(zk, "/brokers/ids")) == 1 + len(wrong)


def test_raw(zk: ZooKeeper, term: ControllerTerm) -> None:
    def listed(path: str) -> list[str]:
        return [row.path for row in registries.list_nodes(zk, path)]

    top = ["admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch", "klog"]
    assert listed("/") == [f"/{name}" for name in top]
    assert listed("/brokers/ids/") == ["/brokers/ids/1", "/brokers/ids/12"]
    assert listed("/brokers/ids/1") == []
    nodes = [row.path for row in registries.tree(zk, "/brokers")]
    assert nodes == ["/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/12", "/brokers/topics"]
    shallow = [row.path for row in registries.tree(zk, "/brokers", depth=1)]
    assert shallow == ["/brokers", "/brokers/ids", "/brokers/topics"]
    assert [row.path for row in registries.tree(zk, "/", depth=0)] == ["/"]
    data = registries.get_node(zk, "/controller_epoch")
    assert (data.data, data.version, data.session) == (b"1", 1, None)
    stat = registries.stat_node(zk, "/controller")
    found = zk.exists("/controller")
    assert found is not None
    assert (stat.c_zxid, stat.data_version, stat.data_length) == (found.created_zxid, 0, found.data_bytes)
    assert (stat.ephemeral_owner, stat.holder) == (f"{zk.session_id:#x}", "broker 1 (h:9092)")
    assert registries.stat_node(zk, "/controller_epoch").holder is None


@each("verb", [registries.list_nodes, registries.tree, registries.get_node, registries.stat_node])
def test_what_is_missing_is_told_with_the_nearest_that_is_there(
    zk: ZooKeeper, term: ControllerTerm, verb: Callable[..., object]
) -> None:
    with pytest.raises(NoNode, match="/brokers/ids/7/x") as caught:
        verb(zk, "/brokers/ids/7/x")  # type: ignore[arg-type]
    assert str(caught.value.hint).endswith(" /brokers/ids")


@each("path", ["", "brokers", "/a//b", "/a/../b", "/.", "/a\0b"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(UsageError):
        registries.check_path(path)
