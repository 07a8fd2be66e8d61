"""Rounds of stock clients at a listener: what they produce they consume."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer

from tests.security.broker_doors import Doors, unique

SENT = [b"%d" % number for number in range(20)]


def by_kafka_python(doors: Doors, listener: str, **login: Any) -> None:
    settings = {
        "bootstrap_servers": doors.address(listener),
        "security_protocol": listener,
        "ssl_cafile": str(doors.authority.path),
        **login,
    }
    topic = unique("t")
    producer = KafkaProducer(**settings)
    for value in SENT:
        producer.send(topic, value)
    producer.flush(10)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    try:
        assert [message.value for _, message in zip(SENT, consumer, strict=False)] == SENT
    finally:
        consumer.close()


async def by_aiokafka(doors: Doors, listener: str, **login: Any) -> None:
    settings = {
        "bootstrap_servers": doors.address(listener),
        "security_protocol": listener,
        "ssl_context": create_ssl_context(cafile=str(doors.authority.path)),
        **login,
    }
    topic = unique("t")
    async with AIOKafkaProducer(**settings) as producer:
        for value in SENT:
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(20):
            assert [(await consumer.getone()).value for _ in SENT] == SENT


def consumed(settings: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    """The first messages of a topic, by librdkafka."""
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        got: list[bytes | None] = []
        while len(got) < count:
            message = consumer.poll(20)
            assert message is not None and message.error() is None
            got.append(message.value())
        return got
    finally:
        consumer.close()
