"""What a reader of messages needs: the text under an id, from the bootstrap servers alone."""

from __future__ import annotations

import json

import pytest

from klog.client.raw_fetch import RawCluster
from klog.coordination.schemas import AVRO, SchemaRegistry
from klog.protocol.schema_errors import SchemaNotFound
from tests.broker_fixture import RunningBroker


def test_a_schema_is_asked_for_by_its_id(
    broker: RunningBroker, registry_of_broker: SchemaRegistry, subject: str, unique: str
) -> None:
    text = json.dumps({"type": "enum", "name": unique, "symbols": ["ü", "B"]})
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


def test_a_large_schema_arrives_whole(
    broker: RunningBroker, registry_of_broker: SchemaRegistry, subject: str, unique: str
) -> None:
    text = json.dumps({"type": "enum", "name": unique, "doc": "x" * 200_000, "symbols": ["A"]})
    made = registry_of_broker.register(subject, AVRO, text, lambda settings, subject: None)
    with RawCluster(broker.bootstrap) as cluster:
        assert cluster.schema(made.schema_id) == text


def test_a_broker_that_has_gone_is_replaced(
    broker: RunningBroker, registry_of_broker: SchemaRegistry, subject: str, unique: str
) -> None:
    made = registry_of_broker.register(subject, AVRO, f'"{unique}"', lambda settings, subject: None)
    with RawCluster(broker.bootstrap) as cluster:
        cluster._any._socket.shutdown(2)
        assert cluster.schema(made.schema_id) == f'"{unique}"'
