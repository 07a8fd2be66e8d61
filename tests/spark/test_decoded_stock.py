"""What stock Avro serializers send, with klog's registry behind them, through an export into typed columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from klog.coordination.schemas import SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.export import run as export_run
from klog.export.verify import verify
from klog.net.http_server import HttpServer
from klog.schemas.http import HttpRegistry
from klog.schemas.registry import ZooKeeperRegistry
from klog.spark.export import Decode, LocalWriter
from tests.broker_fixture import RunningBroker
from tests.spark.conftest import Message, TopicOnBroker

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}, {"name": "gone", "type": "int"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "state", "type": "string"},
        {"name": "number", "type": "double", "aliases": ["id"]},
        {"name": "paid", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
    ],
}


def time_of(number: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + number, UTC)


@pytest.fixture
def registry_url(broker: RunningBroker) -> Iterator[str]:
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        registry = HttpRegistry(ZooKeeperRegistry(SchemaRegistry(session)))
        server = HttpServer.open(registry, "127.0.0.1", 0, what="the registry", flag="--port")
        yield f"http://{server.address}"
        server.close()


def test_orders_of_two_versions_and_what_is_none(
    registry_url: str, new_topic: Callable[..., TopicOnBroker], tmp_path: Path
) -> None:
    topic = new_topic(2)
    client = SchemaRegistryClient({"url": registry_url})
    context = SerializationContext(topic.name, MessageField.VALUE)

    def serialize(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        sent = AvroSerializer(client, json.dumps(schema))(value, context)
        assert sent is not None
        return bytes(sent)

    old = [serialize(FIRST, {"id": n, "state": "NEW", "gone": n}) for n in range(60)]
    new = [serialize(SECOND, {"number": n, "state": "PAID", "paid": time_of(n) if n % 2 else None}) for n in range(60)]
    damaged = [value[:-1] for value in new[:5]] + [value + b"!" for value in new[:5]] + [b"no frame", b""]
    topic.produce([Message(b"k", value) for value in [*new, None, *damaged]], 0)
    topic.produce([Message(b"k", value) for value in old], 1)

    root = tmp_path / "root"
    rows = export_run.run(topic.bootstrap, [topic.name], str(root), LocalWriter(), decode=Decode("avro").plan)
    assert sum(row.messages or 0 for row in rows) == 60 + 60 + 1 + len(damaged)
    files = list(root.rglob("*.parquet"))
    typed = [row for path in files if "_undecodable" not in path.parts for row in pq.read_table(path).to_pylist()]
    aside = [row for path in files if "_undecodable" in path.parts for row in pq.read_table(path).to_pylist()]
    orders = [row["record"] for row in sorted(typed, key=lambda row: (row["partition"], row["offset"]))]
    paid = [
        {"state": "PAID", "number": float(n), "paid": time_of(n) if n % 2 else None, "gone": None} for n in range(60)
    ]
    assert orders == [*paid, None] + [{"state": "NEW", "number": float(n), "paid": None, "gone": n} for n in range(60)]
    assert [row["value"] for row in sorted(aside, key=lambda row: row["offset"])] == damaged
    assert all(row["error"] and row["key"] == b"k" for row in aside)
    assert {row.state for row in verify(topic.bootstrap, str(root))} == {"ok"}
