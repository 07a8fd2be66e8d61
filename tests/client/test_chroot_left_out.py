"""An address of ZooKeeper without the chroot that the cluster is under: nothing is written, and the chroot is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import klog
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NoNode
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog as command
from tests.zookeeper_fixture import klog_home


def tree(session: ZooKeeper) -> set[str]:
    found, level = set[str](), [""]
    while level:
        level = [f"{one}/{name}" for one in level for name in session.children(one or "/")]
        found |= set(level)
    return {one for one in found if not one.startswith("/zookeeper")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of its own: a hint names three clusters, and others' tests have many."""
    alone = embedded.start(tmp_path_factory.mktemp("alone"), cache=klog_home() / "cache")
    try:
        alone.await_serving()
        yield alone
    finally:
        alone.stop()


def test_no_client_writes_where_no_cluster_is(
    server: ZooKeeperServer, make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    servers, above = server.address, topic
    zk_chroot = f"{servers}/{topic}"
    with ZooKeeper(zk_chroot) as session:
        session.start(create_chroot=True)
    broker = make_broker(chroot=f"{servers}/prod/kafka").start()
    address = zk_chroot  # it is there, and has no cluster
    with ZooKeeper(address) as session:
        session.start()
        assert tree(session) == set()
        with pytest.raises(NoNode) as refused:
            klog.Consumer(address, "g").create_message_streams(topic)
        assert broker.zookeeper in (refused.value.hint or "")
        with pytest.raises(NoNode):
            klog.Producer(zookeeper=address)
        for words in (
            ("topic", "list"),
            ("topic", "list", "-B", broker.bootstrap),
        ):
            ran = command(*words, "-z", address, "-o", "json")
            assert (ran.code, ran.error["code"]) == (1, NoNode.code), words
            assert broker.zookeeper in ran.error["hint"], words
        rows = command("status", "-z", address, "-o", "json").rows
        assert broker.zookeeper in next(row["found"] for row in rows if row["kind"] == "no-brokers")
        assert tree(session) == set()
    with pytest.raises(NoNode) as missing:
        klog.Consumer(f"{servers}/no-such-{above}", "g").create_message_streams(topic)
    assert broker.zookeeper in (missing.value.hint or "")
