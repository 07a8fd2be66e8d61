"""Fetch requests of very many partitions: threads decode, read and encode them (rule P1); answers are as ever."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from klog.net.turns import ConnectionEnded
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.handlers.fetch import LONG_REQUEST_BYTES
from klog.server.replicas import local_replicas
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import create, produce, values
from tests.server.wire import RawConnection, bystander, fetch_request

THERE = 3
"""Partitions that the topic has."""
ASKED = 5_000
UNKNOWN_TOPIC_OR_PARTITION = 3


def asked_for(topic: str, partitions: Iterable[int], version: int, offset: int = 0, **more: int) -> bytes:
    """A Fetch request on the wire."""
    return codec.encode_request(fetch_request(topic, offset, version=version, partition=partitions, **more), 7, "test")


def answered(connection: RawConnection, version: int) -> dict[int, Any]:
    (topic,) = codec.decode_response(connection.answer(), ApiKey.FETCH, version)[1].responses
    return {one.partition_index: one for one in topic.partitions}


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    create(broker.bootstrap, topic, THERE)
    for partition in range(THERE):
        produce(broker.bootstrap, topic, [values(5), values(3)], partition)
    return topic


@pytest.mark.slow
@each("replica_id", [-1, -2], ids=["a consumer", "this broker's replica"])
@each("version", [4, 11, 12])
def test_the_answer_is_that_of_a_short_request(
    broker: RunningBroker, filled: str, version: int, replica_id: int
) -> None:
    long = asked_for(filled, range(ASKED), version, replica_id=replica_id)
    assert len(long) > LONG_REQUEST_BYTES
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(long + asked_for(filled, range(THERE + 1), version, replica_id=replica_id))
        found, short = answered(connection, version), answered(connection, version)
    assert sorted(found) == list(range(ASKED))
    assert {number: found[number] for number in short} == short
    assert all(short[number].records for number in range(THERE))
    assert {int(found[number].error_code) for number in range(THERE, ASKED)} == {UNKNOWN_TOPIC_OR_PARTITION}


def test_a_long_poll_ends_when_a_message_comes(broker: RunningBroker, filled: str) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(asked_for(filled, range(THERE), 11))
        end = answered(connection, 11)[0].high_watermark
        long = asked_for(filled, [0] * ASKED, 11, end, max_wait_ms=60_000)
        assert len(long) > LONG_REQUEST_BYTES
        connection.send(long)
        connection.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1, socket.MSG_PEEK)
        connection.socket.settimeout(30)
        produce(broker.bootstrap, filled, [values(1)])
        found = answered(connection, 11)
    assert list(found) == [0] and found[0].records and found[0].high_watermark > end


def test_one_that_does_not_parse_ends_its_connection(broker: RunningBroker, filled: str) -> None:
    long = bytearray(asked_for(filled, range(ASKED), 4)[:-1])
    struct.pack_into(">i", long, 0, len(long) - 4)
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(bytes(long) + asked_for(filled, range(THERE), 4))
        assert connection.is_closed_by_broker()
        broker.wait_for_log(connection.name)


@each("is_closed", [False, True], ids=["it ends meanwhile", "it has ended"])
async def test_a_fetch_of_a_replica_waits_no_longer_than_its_connection_lives(is_closed: bool) -> None:
    """Its client may ask it to wait for 24 days."""
    connection: Any = SimpleNamespace(at_end=set(), closed=is_closed)
    waiting = asyncio.create_task(local_replicas._wait(connection, 2**31 / 1000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for act in list(connection.at_end) if not is_closed else ():
        act()
    with pytest.raises(ConnectionEnded):
        await asyncio.wait_for(waiting, 10)
    assert not connection.at_end
    await local_replicas._wait(SimpleNamespace(at_end=set(), closed=False), 0.01)  # type: ignore[arg-type]
