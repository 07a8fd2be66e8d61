"""Ranges of partitions, read by librdkafka once from begin to end, for what counts and does not show."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Assigned

from klog.client.servers import librdkafka_servers
from klog.errors import KlogError, TimedOut
from klog.names import TopicPartition
from klog.tools.librdkafka import made

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

RUN_MESSAGES = 10_000
WAIT_S = 0.1

Take = Callable[[Any], None]
"""What is done with each of confluent-kafka's messages; called in the reading thread."""


async def read_ranges(cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], take: Take) -> None:
    """Every message with begin <= offset < end of each partition, in the order of its log.

    What retention removes meanwhile is skipped. TimedOut where nothing comes within the cluster's time-out although
    an end was not reached.
    """
    wanted = {one: span for one, span in ranges.items() if span[0] < span[1]}
    if not wanted:
        return
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(_read, cluster.bootstrap, wanted, take, stop, cluster.timeout_s))
    try:
        await asyncio.shield(work)
    finally:
        stop.set()
        if not work.done():
            await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # seen: where this was cancelled no other task asks, and asyncio would complain


def _read(
    bootstrap: str,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    take: Take,
    stop: threading.Event,
    timeout_s: float,
) -> None:
    consumer = made(Consumer, _settings(bootstrap))
    open_ = {(one.topic, one.partition): end for one, (_, end) in ranges.items()}
    try:
        consumer.assign([Assigned(one.topic, one.partition, begin) for one, (begin, _) in ranges.items()])
        heard = time.monotonic()
        while open_ and not stop.is_set():
            run = consumer.consume(RUN_MESSAGES, WAIT_S)
            if run:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout_s:
                topic, partition = min(open_)
                raise TimedOut(f"no message came for {timeout_s:g} s before the end of {topic}-{partition}")
            before = set(open_)
            for message in run:
                _one(message, open_, take)
            if done := before - open_.keys():
                consumer.pause([Assigned(*key) for key in done])
    finally:
        consumer.close()


def _one(message: Any, open_: dict[tuple[str, int], int], take: Take) -> None:
    key = message.topic(), message.partition()
    end = open_.get(key)
    error = message.error()
    if error is None:
        if end is None or message.offset() >= end:
            open_.pop(key, None)
            return
        take(message)
        if message.offset() == end - 1:
            del open_[key]
    elif error.code() == KafkaError._PARTITION_EOF:
        # Also where the last messages before the end are gone.
        if end is not None and message.offset() >= end:
            del open_[key]
    elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        raise KlogError(f"{key[0]}-{key[1]}: {error.str()}")


def _settings(bootstrap: str) -> dict[str, Any]:
    return {
        **librdkafka_servers(bootstrap),
        "client.id": "klog-audit",
        "group.id": "klog-audit",  # asked for, and never used: partitions are assigned, nothing is committed
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 64 * 1024,
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 20,  # report soon that nothing comes behind the end
        "fetch.message.max.bytes": 4 * 1024 * 1024,
    }
