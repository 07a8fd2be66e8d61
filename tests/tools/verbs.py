"""Run verbs against a broker of the tests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, TopicPartition

from klog.admin.health.findings import Finding
from klog.admin.health.snapshot import Where
from klog.admin.settings import describe_settings
from klog.admin.topics import create_topic, delete_topics, preview_deletion
from klog.client.cluster import Cluster
from klog.protocol.apis import ApiKey
from klog.tools.options import ProduceOptions, TailOptions
from klog.tools.produce import Receipt, produce
from klog.tools.status import look
from klog.tools.tail import tail

T = TypeVar("T")


def run(bootstrap: str, verb: Callable[[Cluster], Awaitable[T]], *, timeout_s: float = 10.0) -> T:
    """The result of a verb over a connection of its own."""

    async def connected() -> T:
        async with await Cluster.connect(
            bootstrap, source="the test", timeout_s=timeout_s, client_id="test"
        ) as cluster:
            return await verb(cluster)

    return asyncio.run(connected())


def make_topic(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> None:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    run(bootstrap, lambda cluster: create_topic(cluster, name, partitions=partitions, settings=given))


def delete_topic(bootstrap: str, name: str) -> None:
    async def delete(cluster: Cluster) -> None:
        await delete_topics(cluster, await preview_deletion(cluster, [name]))

    run(bootstrap, delete)


def own_settings(bootstrap: str, topic: str) -> dict[str, str | None]:
    """Those that are the topic's own."""
    found = run(bootstrap, lambda cluster: describe_settings(cluster, [topic]))[topic]
    return {one.name: one.value for one in found if one.source == "topic"}


def delete_before(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """DeleteRecords, on a cluster of one broker; -1: all that is committed."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    answer = run(bootstrap, lambda cluster: cluster.to_any(ApiKey.DELETE_RECORDS, 2, 0, topics=topics, timeout=10_000))
    assert answer.topics[0].partitions[0].error_code == 0


def send(bootstrap: str, topic: str, *inputs: bytes, **options: Any) -> Receipt:
    sources = [io.BytesIO(one) for one in inputs]
    return run(bootstrap, lambda cluster: produce(cluster, topic, sources, ProduceOptions(**options)))


def send_at(bootstrap: str, topic: str, times_ms: Sequence[int], *, in_batches_of: int) -> Receipt:
    """``m0``, ``m1`` ... of these times to partition 0."""
    lines = [f'{{"value": "m{number}", "timestamp": {when}}}'.encode() for number, when in enumerate(times_ms)]
    batches = {"batch.num.messages": str(in_batches_of), "linger.ms": "100"}
    return send(bootstrap, topic, b"\n".join(lines), input="jsonl", partition=0, librdkafka=batches)


def read(bootstrap: str, topic: str | list[str], **options: Any) -> tuple[bytes, list[str]]:
    """What tail writes, and its notes."""
    sink, notes = io.BytesIO(), list[str]()
    topics = [topic] if isinstance(topic, str) else topic
    run(bootstrap, lambda cluster: tail(cluster, topics, TailOptions(**options), sink, note=notes.append))
    return sink.getvalue(), notes


def held(bootstrap: str, topic: str, partitions: int = 1) -> list[Any]:
    """Every message as a stock client gets it, partition by partition, in the order of the log."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    )
    found, ends = [], 0
    consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
    try:
        while ends < partitions:
            message = consumer.poll(10)
            assert message is not None, "the broker does not answer"
            if message.error():
                ends += 1
            else:
                found.append(message)
    finally:
        consumer.close()
    return sorted(found, key=lambda one: (one.partition(), one.offset()))


class Arrivals(io.BytesIO):
    """A sink whose reader, on the loop that makes it, waits for what it wants to see."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()

    def flush(self) -> None:
        self._loop.call_soon_threadsafe(self._came.set)

    async def wait_for(self, content: bytes) -> None:
        while content not in self.getvalue():
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 30)


async def check(
    bootstrap: str | None,
    zookeeper: str | None,
    subjects: Sequence[str] = (),
    *,
    timeout_s: float = 10.0,
    home: Path | None = None,
    **options: Any,
) -> list[Finding]:
    """What `klog status` finds, by these addresses; ``options`` of `klog.tools.status.look`."""
    nowhere = home or Path("/nowhere")
    where = Where(bootstrap, zookeeper, "the test", nowhere, timeout_s=timeout_s)
    return (await look(where, subjects, **options)).findings
