"""kafka-python 3: idempotent unless told otherwise, and opens with ApiVersions v4."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import NewTopic  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from klog.record.codec import Codec
from tests.interop.kit import PATIENCE_S, Consumed, From, Where


class KafkaPython:
    name = "kafka-python"
    has_admin = True

    def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec is Codec.NONE else codec.label,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=100,
        )
        try:
            sent = [producer.send(topic, value, partition=0) for value in values]
            producer.flush(PATIENCE_S)
            for one in sent:
                one.get(PATIENCE_S)
        finally:
            producer.close()

    def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", check_crcs=True)
        partition = TopicPartition(topic, 0)
        try:
            consumer.assign([partition])
            match where.kind:
                case From.START:
                    consumer.seek_to_beginning(partition)
                case From.END:
                    consumer.seek_to_end(partition)
                case From.OFFSET:
                    consumer.seek(partition, where.at)
                case From.TIME:
                    found = consumer.offsets_for_times({partition: where.at})[partition]
                    consumer.seek(partition, found.offset)
            consumer.position(partition)
            if when_there is not None:
                when_there()
            records = _read(consumer, count)
            return Consumed(records, consumer.position(partition), consumer.end_offsets([partition])[partition])
        finally:
            consumer.close()

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            records = _read(consumer, count)
            consumer.commit()
            return records
        finally:
            consumer.close()

    def transact(self, bootstrap: str) -> str:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id="mine", max_block_ms=int(PATIENCE_S * 1000)
        )
        try:
            with pytest.raises(KafkaError) as refused:
                producer.init_transactions()
        finally:
            producer.close()
        return repr(refused.value)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            admin.delete_topics([topic])


def _read(consumer: KafkaConsumer, count: int) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for some in consumer.poll(500, max_records=count - len(records)).values():
            records += [(one.offset, one.value) for one in some]
    return records
