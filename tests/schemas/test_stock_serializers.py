"""Serializers as everybody has them, against a broker's HTTP port; and what they wrote, after a restart of all."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.processes import free_port
from klog.client.raw_fetch import RawCluster
from klog.record.avro_framing import unframed
from tests.broker_fixture import RunningBroker
from tests.server.asking import create
from tests.tools.verbs import held


def user(*more: dict[str, Any]) -> str:
    fields = [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}, *more]
    return json.dumps({"type": "record", "name": "User", "namespace": "shop", "fields": fields})


V1 = user()
V2 = user({"name": "mail", "type": ["null", "string"], "default": None})
V3 = user({"name": "phone", "type": "string"})


@pytest.fixture(scope="module")
def serving(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, str]]:
    """A broker with a registry's port, shared by the tests of this file; and the registry's URL."""
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    chroot = f"{zookeeper.address}/registry-{secrets.token_hex(4)}"
    with RunningBroker(folder, chroot, schema__registry__port=str(port)).running() as broker:
        yield broker, f"http://127.0.0.1:{port}"


def produce(broker: RunningBroker, url: str, topic: str, schema: str, values: list[dict[str, Any]]) -> None:
    serialize = AvroSerializer(SchemaRegistryClient({"url": url}), schema)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, serialize(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(20) == 0


def test_messages_are_written_read_and_their_schema_evolves(serving: tuple[RunningBroker, str], topic: str) -> None:
    broker, url = serving
    create(broker.bootstrap, topic)
    ada, bob = {"name": "ada", "age": 36}, {"name": "bob", "age": 7, "mail": "b@x"}
    produce(broker, url, topic, V1, [ada])
    produce(broker, url, topic, V2, [bob])
    payloads = [one.value() for one in held(broker.bootstrap, topic)]

    client = SchemaRegistryClient({"url": url})
    context = SerializationContext(topic, MessageField.VALUE)
    assert [AvroDeserializer(client)(one, context) for one in payloads] == [ada, bob]
    assert [AvroDeserializer(client, V2)(one, context) for one in payloads] == [{**ada, "mail": None}, bob]
    assert [AvroDeserializer(client, V1)(one, context) for one in payloads] == [ada, {"name": "bob", "age": 7}]

    subject = f"{topic}-value"
    assert client.get_versions(subject) == [1, 2]
    ids = [unframed(one)[0] for one in payloads]
    assert ids == [client.get_version(subject, number).schema_id for number in (1, 2)]
    with RawCluster(broker.bootstrap) as cluster:  # what a task of Spark does
        assert [json.loads(cluster.schema(one)) for one in ids] == [json.loads(V1), json.loads(V2)]

    with pytest.raises(SchemaRegistryError) as refused:
        produce(broker, url, topic, V3, [{"name": "eve", "age": 1, "phone": "1"}])
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "/phone" in refused.value.error_message


def test_the_stock_client_finds_all_that_it_asks_for(serving: tuple[RunningBroker, str], subject: str) -> None:
    client = SchemaRegistryClient({"url": serving[1]})
    name = f"{subject}/a b"
    schema = Schema(V1, "AVRO")
    schema_id = client.register_schema(name, schema)
    assert client.get_schema(schema_id).schema_str == json.dumps(json.loads(V1), separators=(",", ":"))
    assert client.lookup_schema(name, schema).version == 1
    assert name in client.get_subjects()
    assert client.get_latest_version(name).schema_id == schema_id
    assert client.test_compatibility(name, Schema(V2, "AVRO"))
    assert not client.test_compatibility(name, Schema(V3, "AVRO"))
    client.set_compatibility(name, "NONE")
    assert client.get_compatibility(name) == "NONE"
    assert client.register_schema(name, Schema(V3, "AVRO")) != schema_id
    assert client.delete_version(name, 1) == 1
    assert client.delete_subject(name) == [2]
    assert client.delete_subject(name, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as gone:
        SchemaRegistryClient({"url": serving[1]}).get_latest_version(name)
    assert (gone.value.http_status_code, gone.value.error_code) == (404, 40401)
    assert SchemaRegistryClient({"url": serving[1]}).get_schema(schema_id).schema_str
