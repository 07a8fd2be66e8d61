"""Spark's own Kafka connector reads klog: the oldest program that has to cope with offsets that are not consecutive.

The connector's jars come from Maven once (10 MB) and are added to the session that all tests of this folder share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as StockTopic

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import Doors, add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first run fetches the jars


def reading(reader: Any, topic: TopicOnBroker, **options: Any) -> Any:
    """``spark.read`` or ``spark.readStream``, of the topic, with options; what is no string is given as JSON."""
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("subscribe", topic.name)
        .options(**given)
        .load()
    )


def test_it_reads_what_klogs_own_source_reads(connected: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first = topic.produce(make_messages(400), 0, codec="zstd", batch=37)
    second = topic.produce(
        [Message(b"h", b"v", (("a", b"1"), ("a", None))), Message(None, None), Message(b"", b"x" * 100_000)], 1
    )
    assert first[-1] > len(first) + 100  # addresses, not numbers
    theirs = reading(connected.read, topic, includeHeaders="true")
    options = {"bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "includeHeaders": "true"}
    ours = connected.read.format("klog").options(**options).load()
    assert theirs.columns == ours.columns
    found = contents(theirs)
    assert [one[:2] for one in found] == [(0, at) for at in first] + [(1, at) for at in second]
    assert found == contents(ours)


def contents(frame: Any) -> list[tuple[Any, ...]]:
    """Its rows as values that can be compared, in order."""
    return sorted(
        (
            *(row.partition, row.offset, row.topic, row.key and bytes(row.key), row.value and bytes(row.value)),
            *(row.timestamp, row.timestampType, row.headers and [(one.key, one.value) for one in row.headers]),
        )
        for row in frame.collect()
    )


# --- One secured topic, by the same options of both ---


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
    admin.create_topics([StockTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer(settings)
    for number in range(MESSAGES):
        producer.produce(topic, b"value %d" % number, b"key", partition=number % 2)
    assert producer.flush(30) == 0
    options = {**connecting(doors, listener), "subscribe": topic, "failOnDataLoss": "true"}
    theirs = contents(connected.read.format("kafka").options(includeHeaders="true", **options).load())
    assert len(theirs) == MESSAGES
    assert contents(connected.read.format("klog").options(includeHeaders="true", **options).load()) == theirs
