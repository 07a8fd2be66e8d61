"""What a reader of messages needs: the text under an id, from the bootstrap servers alone."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

import pytest

from klog.client.raw_fetch import RawCluster
from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.schemas import AVRO, SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import TimedOut
from klog.protocol.schema_errors import SchemaNotFound
from tests.broker_fixture import RunningBroker
from tests.zookeeper_proxy import ZooKeeperProxy


def test_a_schema_is_asked_for_by_its_id(
    broker: RunningBroker, registry_of_broker: SchemaRegistry, subject: str, unique: str
) -> None:
    text = json.dumps({"type": "enum", "name": unique, "doc": "x" * 200_000, "symbols": ["ü", "B"]})
    made = registry_of_broker.register(subject, AVRO, text, lambda settings, subject: None)
    with RawCluster(broker.bootstrap) as cluster:
        assert cluster.schema(made.schema_id) == text
        broker_asked_again = cluster._any
        broker_asked_again.close()
        assert cluster.schema(made.schema_id) == text, "what is known is not asked for again"


def test_an_id_that_nobody_has(broker: RunningBroker) -> None:
    with RawCluster(broker.bootstrap) as cluster:
        for nobodys in (2**31 - 1, 0, -1):
            with pytest.raises(SchemaNotFound, match=str(nobodys)):
                cluster.schema(nobodys)


def test_a_broker_that_has_gone_is_replaced(
    broker: RunningBroker, registry_of_broker: SchemaRegistry, subject: str, unique: str
) -> None:
    made = registry_of_broker.register(subject, AVRO, f'"{unique}"', lambda settings, subject: None)
    with RawCluster(broker.bootstrap) as cluster:
        cluster._any._socket.shutdown(2)
        assert cluster.schema(made.schema_id) == f'"{unique}"'


def test_while_zookeeper_is_away_what_was_read_is_known_and_the_rest_times_out(
    zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker]
) -> None:
    proxy = ZooKeeperProxy(ConnectString.parse(zookeeper.address).servers[0])
    try:
        chroot = f"{proxy.address}/away-{secrets.token_hex(4)}"
        broker = make_broker(chroot=chroot, zookeeper__session__timeout__ms="4000").start()
        with ZooKeeper(chroot) as session:
            session.start()
            registry = SchemaRegistry(session)
            read, unread = (registry.register("s", AVRO, f'"{one}"', lambda *_: None).schema_id for one in "ab")
        with RawCluster(broker.bootstrap) as cluster:
            assert cluster.schema(read) == '"a"'
        with (
            proxy.silent(),
            RawCluster(broker.bootstrap, timeout_s=0.5) as waiting,
            RawCluster(broker.bootstrap) as cluster,
        ):
            with pytest.raises(TimedOut):
                waiting.schema(unread)
            assert cluster.schema(read) == '"a"'
        broker.kill()  # stopping in order would wait for ZooKeeper
    finally:
        proxy.close()
