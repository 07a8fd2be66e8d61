"""Three brokers that speak SASL_SSL to one another: replication, elections, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.security.stock_clients import consumed


@pytest.fixture
def three(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[tuple[list[RunningBroker], Authority]]:
    authority = Authority(tmp_path)
    chroot = f"{zookeeper.address}/{unique('between')}"
    brokers = []
    for broker_id in (1, 2, 3):
        one = RunningBroker(tmp_path / str(broker_id), chroot, broker_id)
        one.folder.mkdir()
        one.listen = listen_to("CLIENTS", "BETWEEN")
        one.settings = {
            **pem(one.folder, authority),
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BETWEEN:SASL_SSL",
            "inter.broker.listener.name": "BETWEEN",
            "listener.name.between.scram-sha-256.sasl.jaas.config": (
                'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="b;=\\"x";'
            ),
        }
        brokers.append(one)
    add_user(brokers[0], "broker", 'b;="x')
    add_user(brokers[0], "alice", "pw")
    try:
        waiting = [one.start_in_background() for one in brokers]
        for one, descriptor in zip(brokers, waiting, strict=True):
            with os.fdopen(descriptor) as ready:
                assert ready.readline().startswith("ready "), one.log_text
        yield brokers, authority
    finally:
        for one in brokers:
            one.end()


def test_what_is_acknowledged_survives_the_leader(three: tuple[list[RunningBroker], Authority]) -> None:
    brokers, authority = three
    settings = {
        "bootstrap.servers": ",".join(f"localhost:{ports_of(one)['CLIENTS']}" for one in brokers),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "pw",
    }
    topic = unique("t")
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(20)
    producer = Producer({**settings, "acks": "all"})
    sent = [b"%d" % number for number in range(200)]
    for value in sent[:100]:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    ports = [ports_of(one) for one in brokers]
    clients = {one["CLIENTS"] for one in ports}
    assert {one.port for one in admin.list_topics(timeout=10).brokers.values()} == clients
    for one in brokers:
        connections = psutil.Process(one.pid).net_connections("tcp")
        remote = {each.raddr.port for each in connections if each.status == psutil.CONN_ESTABLISHED}
        assert not remote & clients, "brokers reach one another by their own listener"
        assert one.broker_id == leader or ports[leader - 1]["BETWEEN"] in remote, "followers fetch by it"
    brokers[leader - 1].kill()
    for value in sent[100:]:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    assert consumed(settings, topic, len(sent)) == sent
    assert 'password="b' not in "".join(one.log_text for one in brokers)
