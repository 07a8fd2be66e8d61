"""aiokafka: the versions that are not flexible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from klog.record.codec import Codec
from tests.interop.kit import PATIENCE_S, Consumed, From, Where

A = ParamSpec("A")
R = TypeVar("R")


def blocking(act: Callable[A, Coroutine[Any, Any, R]]) -> Callable[A, R]:
    """Run on an event loop of its own."""

    @wraps(act)
    def run(*arguments: A.args, **keywords: A.kwargs) -> R:
        return asyncio.run(act(*arguments, **keywords))

    return run


class AioKafka:
    name = "aiokafka"
    has_admin = True

    @blocking
    async def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec is Codec.NONE else codec.label,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=100,
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()

    @blocking
    async def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", check_crcs=True)
        partition = TopicPartition(topic, 0)
        await consumer.start()
        try:
            consumer.assign([partition])
            match where.kind:
                case From.START:
                    await consumer.seek_to_beginning(partition)
                case From.END:
                    await consumer.seek_to_end(partition)
                case From.OFFSET:
                    consumer.seek(partition, where.at)
                case From.TIME:
                    found = (await consumer.offsets_for_times({partition: where.at}))[partition]
                    consumer.seek(partition, found.offset)
            await consumer.position(partition)
            if when_there is not None:
                await asyncio.to_thread(when_there)
            records = await _read(consumer, count)
            position = await consumer.position(partition)
            return Consumed(records, position, (await consumer.end_offsets([partition]))[partition])
        finally:
            await consumer.stop()

    @blocking
    async def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            records = await _read(consumer, count)
            await consumer.commit()
            return records
        finally:
            await consumer.stop()

    @blocking
    async def transact(self, bootstrap: str) -> str:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="mine")
        try:
            with pytest.raises(KafkaError) as refused:
                async with asyncio.timeout(PATIENCE_S):
                    await producer.start()
        finally:
            await producer.stop()
        return repr(refused.value)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=settings)
        answer = self._administer(bootstrap, lambda admin: admin.create_topics([new]))
        _check(answer.topic_errors)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        answer = self._administer(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes)

    @blocking
    async def _administer(self, bootstrap: str, act: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await act(admin)
        finally:
            await admin.close()


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            got = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
            for some in got.values():
                records += [(one.offset, one.value) for one in some]
    return records


def _check(results: list[tuple[object, ...]]) -> None:
    """aiokafka hands on the answer as it is, errors and all."""
    assert all(result[1] == 0 for result in results), results
