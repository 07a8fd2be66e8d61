"""The writing half of a copy into a cluster that has no ProduceAt (plain Kafka): at least once.

librdkafka's idempotent producer keeps order and doubles nothing while this process lives. A copier that dies has sent
messages that may or may not have arrived; the next one finds the last that did by its header and goes on
behind it. Between the two, or beside a second copier, messages may come twice.

Event loop only; librdkafka's callbacks come from `poll`, which a thread calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from klog.client.servers import librdkafka_servers
from klog.errors import KlogError, TimedOut, UsageError
from klog.names import TopicPartition
from klog.record.batch import walk
from klog.record.provenance_header import Marked, Source
from klog.record.records import each_record
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.target import Mark, TargetLog
from klog.tools.sender import silent_logger

QUEUE_MESSAGES_MAX = 500_000
POLL_S = 0.05


class KafkaTarget:
    """Appends to the partitions of any cluster, at least once."""

    is_exact = False

    def __init__(self, side: ClusterEndpoint, client: Mapping[str, str] | None = None) -> None:
        """``client``: further settings of librdkafka. UsageError for one that it does not take."""
        self.side = side
        self._logs: dict[TopicPartition, TargetLog] = {}
        self._stop = threading.Event()
        settings = {
            **librdkafka_servers(side.bootstrap),
            "client.id": "klog-mirror",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
            "message.max.bytes": 1_000_000_000,  # what is too large is for the broker to say
            "message.timeout.ms": 0,  # brokers may be away for as long as they like
            "logger": silent_logger(),
            **(client or {}),
        }
        try:
            self._producer = Producer(settings)
        except KafkaException as error:
            raise UsageError(f"librdkafka rejects the settings: {error.args[0].str()}") from None
        self._poller = threading.Thread(target=self._poll, name="copy-poll", daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(POLL_S)

    async def close(self) -> None:
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        await asyncio.to_thread(self._producer.flush, 0.3)
        self._stop.set()

    def log(self, partition: TopicPartition) -> TargetLog:
        return self._logs.setdefault(partition, TargetLog(self.side, partition))

    async def find(self, partition: TopicPartition, source: Source, *, below: int | None = None) -> None:
        """See `TargetLog.find`."""
        await self.log(partition).find(source, below)

    async def append(self, partition: TopicPartition, marked: Marked, source: Source) -> bool:
        """Hand the messages to librdkafka and wait until each is acknowledged; always as thought."""
        log = self.log(partition)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        receipt = _Receipt(loop, done, marked.messages)
        for position, _ in walk(marked.records):
            for record in each_record(marked.records, position):
                await self._send(partition, record, receipt)
        await done
        if receipt.error is not None:
            raise KlogError(f"{partition} of the target: {receipt.error.str()}")
        log.ends[source] = receipt.last_offset + 1
        log.marks[source] = Mark(marked.last_offset, receipt.first_offset)
        return True

    async def _send(self, partition: TopicPartition, record: Any, receipt: _Receipt) -> None:
        while True:
            try:
                self._producer.produce(
                    partition.topic,
                    record.value,
                    record.key,
                    partition.partition,
                    on_delivery=receipt.delivered,
                    timestamp=max(record.timestamp_ms, 0),
                    headers=list(record.headers),
                )
            except BufferError:
                await asyncio.sleep(POLL_S)
            except KafkaException as error:
                raise TimedOut(f"the target's producer failed: {error.args[0].str()}") from None
            else:
                return


class _Receipt:
    """Counts the messages of one append as they are acknowledged; in librdkafka's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], messages: int) -> None:
        self._loop = loop
        self._done = done
        self._left = messages
        self.error: Any = None
        self.first_offset = -1
        self.last_offset = -1

    def delivered(self, error: Any, message: Any) -> None:
        self._left -= 1
        if error is not None:
            self.error = self.error or error
        else:
            self.last_offset = message.offset()
            if self.first_offset < 0:
                self.first_offset = self.last_offset
        if self._left == 0:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)
