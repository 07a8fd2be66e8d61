"""`klog client list`: the connections of real clients, by what each calls itself and does."""

from __future__ import annotations

import struct

import confluent_kafka
from confluent_kafka import Consumer, Producer

from klog.coordination.acts import CLIENT_CHARS_MAX
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.server.wire import RawConnection, framed, head
from tests.tools.verbs import make_topic


def test_who_reads_and_who_writes(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    at = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**at, "client.id": f"writer-{topic}"})
    consumer = Consumer(
        {
            **at,
            "client.id": f"reader-{topic}",
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        producer.produce(topic, b"one")
        assert producer.flush(20) == 0
        consumer.subscribe([topic])
        while (message := consumer.poll(1)) is None:
            pass
        assert message.value() == b"one"
        ran = klog("client", "list", "-t", topic, "-o", "json", "-B", broker.bootstrap)
    finally:
        consumer.close()
    assert ran.code == 0
    found = {row["client"]: row for row in ran.rows}
    assert found.keys() == {f"writer-{topic}", f"reader-{topic}"}
    writer, reader = found[f"writer-{topic}"], found[f"reader-{topic}"]
    assert (writer["writes"], writer["reads"]) == (topic, [])
    assert (reader["writes"], reader["reads"]) == (None, [topic])
    for row in found.values():
        assert row["broker"] == broker.broker_id
        assert row["address"].startswith("127.0.0.1:")
        assert row["principal"] == "User:ANONYMOUS"
        assert row["library"].startswith("confluent-kafka-python") and confluent_kafka.version() in row["library"]
        assert 0 <= row["idle_ms"] < 60_000
    assert klog("client", "list", "-t", f"{topic}-no", "-o", "json", "-B", broker.bootstrap).rows == []
    own = klog("client", "list", "-o", "json", "-B", broker.bootstrap).rows
    assert any(row["client"] == "klog" for row in own)


def test_nothing_that_a_stranger_makes_up_is_kept(broker: RunningBroker, topic: str) -> None:
    """Neither topics that there are not, nor names without an end; what it may have of a connection is bounded."""
    asked = struct.pack(">h", 9_000) + b"n" * 9_000 + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    fetch = struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 1) + asked
    name = f"stranger-{topic}-".encode() + b"x" * 20_000
    with RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(ApiKey.FETCH, 4, client_id=name) + fetch))
        connection.answer()
        rows = klog("client", "list", "-o", "json", "-B", broker.bootstrap).rows
        (row,) = [row for row in rows if row["address"] == connection.name]
    assert row["client"] == name.decode()[:CLIENT_CHARS_MAX]
    assert (row["reads"], row["writes"], row["library"]) == ([], None, None)
