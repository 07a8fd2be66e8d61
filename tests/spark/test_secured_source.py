"""One secured topic, read by Spark's own Kafka connector and by klog's source with the same options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import Doors, add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.spark.test_spark_kafka import contents

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first run fetches the jars

PASSWORD = 'correct "horse\\'
MESSAGES = 300


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('secured')}")
    broker.listen = listen_to("PLAINTEXT", "SSL", "SASL_SSL")
    broker.settings = {**pem(folder, authority), "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    add_user(broker, "alice", PASSWORD)
    try:
        broker.start()
        yield Doors(broker, ports_of(broker), authority)
    finally:
        broker.end()


def connecting(doors: Doors, listener: str) -> dict[str, str]:
    """The connector's options, which are Kafka's for Java."""
    found = {
        "kafka.bootstrap.servers": doors.address(listener),
        "kafka.security.protocol": listener,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(doors.authority.path),
    }
    if listener == "SASL_SSL":
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        found |= {
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{login} username="alice" password="{quoted}";',
        }
    return found


@pytest.mark.long("another's connector; test_option_table.py has the options, tests/security/test_clients.py the doors")
@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_the_options_of_the_connector_are_those_of_the_source(
    connected: Any, doors: Doors, tmp_path: Path, listener: str
) -> None:
    topic = f"t-{listener.lower().replace('_', '-')}"
    settings = doors.librdkafka("SSL")
    admin = AdminClient(settings)  # held: it ends its requests when it goes
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer(settings)
    for number in range(MESSAGES):
        producer.produce(topic, b"value %d" % number, b"key", partition=number % 2)
    assert producer.flush(30) == 0
    options = {**connecting(doors, listener), "subscribe": topic, "failOnDataLoss": "true"}
    theirs = contents(connected.read.format("kafka").options(includeHeaders="true", **options).load())
    assert len(theirs) == MESSAGES
    assert contents(connected.read.format("klog").options(includeHeaders="true", **options).load()) == theirs
