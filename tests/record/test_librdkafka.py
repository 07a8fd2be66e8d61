"""Batches that librdkafka itself wrote, kept and served by the mock broker inside it, so that no klog code is asked."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.admission import check_headers
from klog.record.batch import read_header, walk
from klog.record.codec import Codec
from klog.record.records import Record, decode_batch
from tests.record.batches import CODECS

MESSAGES = 300


@pytest.fixture(params=CODECS, ids=[name.label for name in CODECS])
def produced(request: pytest.FixtureRequest) -> Iterator[tuple[Codec, memoryview]]:
    """A codec, and the log of 300 messages that were produced with it in several batches."""
    name: Codec = request.param
    producer = Producer(
        {
            "bootstrap.servers": "",
            "test.mock.num.brokers": 1,
            "compression.type": name.label,
            "enable.idempotence": True,
            "batch.num.messages": 100,
            "linger.ms": 50,
        }
    )
    broker = next(iter(producer.list_topics("rows", timeout=10).brokers.values()))
    for i in range(MESSAGES):
        producer.produce(
            "rows",
            key=None if i % 5 == 0 else b"key %d" % i,
            value=None if i % 7 == 0 else b"value %d " % i * 10,
            headers=[("h", b"x"), ("h", None)] if i % 11 == 0 else None,
            timestamp=1_700_000_000_000 + (i * 37) % 1000,
            partition=0,
        )
    assert producer.flush(20) == 0
    yield name, log_of(broker.host, broker.port)


def log_of(host: str, port: int) -> memoryview:
    """All of partition 0: the mock hands out one batch a request."""
    log = bytearray()
    offset = 0
    with socket.create_connection((host, port), timeout=10) as connection, connection.makefile("rb") as stream:
        while offset < MESSAGES:
            connection.sendall(codec.encode_request(fetch(offset), 7, "tests"))
            (size,) = struct.unpack(">i", stream.read(4))
            _, answer = codec.decode_response(stream.read(size), ApiKey.FETCH, 4)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == 0
            offset = read_header(partition.records).last_offset + 1
            log += partition.records
    return memoryview(log)


def fetch(offset: int) -> Any:
    whole = 1 << 24
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": whole}
    return codec.request(
        ApiKey.FETCH,
        4,
        replica_id=-1,
        max_wait=100,
        min_bytes=1,
        max_bytes=whole,
        isolation_level=0,
        topics=[{"topic": "rows", "partitions": [wanted]}],
    )


@pytest.mark.slow
def test_batches_of_librdkafka(produced: tuple[Codec, memoryview]) -> None:
    name, log = produced
    headers = check_headers(log, 1 << 20)
    assert len(headers) > 1
    assert {header.codec for header in headers} == {name}
    assert all(header.has_producer for header in headers)
    expected = [
        Record(
            i,
            1_700_000_000_000 + (i * 37) % 1000,
            None if i % 5 == 0 else b"key %d" % i,
            None if i % 7 == 0 else b"value %d " % i * 10,
            (("h", b"x"), ("h", None)) if i % 11 == 0 else (),
        )
        for i in range(MESSAGES)
    ]
    assert [record for position, _ in walk(log) for record in decode_batch(log, position)] == expected
