"""confluent-kafka: librdkafka of today."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klog.record.codec import Codec
from tests.interop.kit import PATIENCE_S, Consumed, From, Where


class ConfluentKafka:
    name = "confluent-kafka"
    has_admin = True

    def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        failures: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec.label,
                "enable.idempotence": idempotent,
                "linger.ms": 100,
                "acks": "all",
            }
        )

        def delivered(problem: KafkaError | None, message: Any) -> None:
            if problem is not None:
                failures.append(problem)

        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
        assert not failures, failures[0]

    def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        partition = TopicPartition(topic, 0)
        try:
            low, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
            if where.kind is From.TIME:
                (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, where.at)], timeout=PATIENCE_S)
                offset = found.offset
            else:
                offset = {From.START: low, From.END: end, From.OFFSET: where.at}[where.kind]
            consumer.assign([TopicPartition(topic, 0, offset)])
            if when_there is not None:
                when_there()
            records: list[tuple[int, bytes]] = []
            deadline = time.monotonic() + PATIENCE_S
            is_at_end = False
            while len(records) < count or not is_at_end:
                assert time.monotonic() < deadline, f"{len(records)} of {count} records"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                problem = message.error()
                if problem is None:
                    records.append((message.offset(), message.value()))
                elif problem.code() == KafkaError._PARTITION_EOF:
                    is_at_end = True
                else:
                    raise KafkaException(problem)
                if len(records) >= count and not self._may_reach_end(records, end, when_there):
                    break
            (position,) = consumer.position([partition])
            _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
            return Consumed(records, position.offset if position.offset >= 0 else offset, end)
        finally:
            consumer.close()

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([topic])
            records: list[tuple[int, bytes]] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(records) < count:
                assert time.monotonic() < deadline, f"{len(records)} of {count} records"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                records.append((message.offset(), message.value()))
                consumer.store_offsets(message)
            consumer.commit(asynchronous=False)
            return records
        finally:
            consumer.close()

    @staticmethod
    def _may_reach_end(records: list[tuple[int, bytes]], end: int, when_there: object) -> bool:
        return when_there is None and (not records or records[-1][0] == end - 1)

    def transact(self, bootstrap: str) -> str:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mine"})
        with pytest.raises(KafkaException) as refused:
            producer.init_transactions(PATIENCE_S)
        problem = refused.value.args[0]
        assert problem.fatal(), problem
        return str(problem)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)], operation_timeout=PATIENCE_S)
        made[topic].result(PATIENCE_S)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
