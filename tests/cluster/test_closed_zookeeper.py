"""An open cluster that runs is closed in ZooKeeper, by the steps of docs/security.md, while clients write and read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import klog as library
from klog.admin import znode_acls
from klog.coordination import paths
from klog.coordination.znode_acls import acls_of, identity_of
from klog.coordination.zookeeper import ZooKeeper
from klog.coordination.zookeeper_access import ZooKeeperAccess, ZooKeeperServers
from klog.protocol.apis import ApiKey
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster

STREAMS = identity_of("streams", "streams-password")
OF_OWNER = ZooKeeperAccess("klog", "owners-password", True, None, STREAMS)
CREDENTIALS = {
    "zookeeper.username": "klog",
    "zookeeper.password": "owners-password",
    "zookeeper.acl.streams": STREAMS,
}


class Load:
    """A producer that never stops, and what was acknowledged to it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._done)
            number += 1
            self._producer.poll(0)

    def _done(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]


def restart_each(cluster: RunningCluster, topic: str, settings: dict[str, str]) -> None:
    for broker_id, broker in cluster.brokers.items():
        assert cluster.stop(broker_id) == 0
        broker.settings = {**broker.settings, **settings}
        cluster.start(broker_id)
        cluster.wait_in_sync(topic)


@pytest.mark.long("closes a running cluster: every broker restarts twice")
def test_a_running_cluster_is_closed_under_load(make_cluster: Callable[..., RunningCluster], tmp_path: Path) -> None:
    cluster = make_cluster(2).start()
    topic = cluster.create("work", partitions=2, factor=2)
    config = tmp_path / "client.properties"
    config.write_text(
        "".join(f"{name}={value}\n" for name, value in {**CREDENTIALS, "zookeeper.set.acl": "true"}.items())
    )
    command = ("security", "zookeeper", "-z", cluster.zookeeper, "--client-config", config, "-o", "json")
    with Load(cluster.bootstrap, topic) as load:
        restart_each(cluster, topic, CREDENTIALS)
        refused = klog(*command, "--yes")
        assert refused.code == 1 and refused.error["code"] == "REFUSED"
        assert paths.broker(1) in refused.error["message"]
        restart_each(cluster, topic, {"zookeeper.set.acl": "true"})
        closed = klog(*command, "--yes")
        assert closed.code == 0, closed.stderr
        assert sum(row["changed"] for row in closed.rows) > 100 and not any(row["left"] for row in closed.rows)
        cluster.create("after", factor=2)
        cluster.kill(cluster.controller())
        cluster.wait_until(lambda: cluster.controller() in cluster.running, "another controller")
        cluster.start()
        cluster.wait_in_sync(topic)
    assert load.failed == []
    assert sorted(set(read_all(cluster.bootstrap, topic))) == sorted(load.acknowledged)
    with ZooKeeper(ZooKeeperServers(cluster.zookeeper, OF_OWNER)) as owner:
        owner.start()
        assert OF_OWNER.identities is not None
        assert not any(row.changed for row in znode_acls.Walks(owner, OF_OWNER.identities, dry_run=True).run())
        ids = [paths.broker(one) for one in cluster.brokers]
        assert [set(found or ()) for found in owner.acls_many(ids)] == [
            set(acls_of(one, OF_OWNER.identities)) for one in ids
        ]
    streams = {"zookeeper_username": "streams", "zookeeper_password": "streams-password", "zookeeper_set_acl": True}
    with library.Consumer(
        cluster.zookeeper,
        "paper",
        auto_offset_reset="smallest",
        consumer_timeout_ms=20_000,
        zookeeper_acl_owner=identity_of("klog", "owners-password"),
        **streams,
    ) as consumer:
        (stream,) = consumer.create_message_streams("work")
        assert next(iter(stream)).payload() in load.acknowledged
    answer = cluster.ask(cluster.controller(), ApiKey.DELETE_GROUPS, 1, groups_names=["paper"])
    assert [int(one.error_code.value) for one in answer.results] == [0]


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    found: list[bytes] = []
    ends = 0
    try:
        consumer.subscribe([topic])
        while ends < 2:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                ends += 1
            else:
                found.append(message.value())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found
