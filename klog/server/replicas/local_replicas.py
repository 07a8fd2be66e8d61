"""This broker's replicas, led or not, for clients that ask for them by replica id -2.

Kafka's "debugging consumer" (0.8's SimpleConsumerShell --replica). It sees a replica up to the high watermark that the
replica knows, on a follower a slightly old one, and never beyond what is flushed here.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from klog.errors import KlogError, ReplicaNotAvailable, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.net.connection import Connection
from klog.net.turns import ConnectionEnded, Share
from klog.protocol.fetch import AskedPartition, FetchedPartition, FetchRequest
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Runtime
from klog.storage.log import FileRange, Log, LogEnd
from klog.storage.log_dir import LogDirs

DEBUGGING_REPLICA: Final = -2
"""Replica id of a consumer that reads this broker's replica, not the leader's."""


class LocalReplica(NamedTuple):
    log: Log
    high_watermark: LogEnd
    leader_epoch: int


class LocalReplicas:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage, log_dirs: LogDirs, replicas: Replicas) -> None:
        self._runtime = runtime
        self._image = image
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._fetch_bytes_max = runtime.config.integer("fetch.max.bytes")

    async def find(self, topic: str, partition: int) -> LocalReplica:
        """The replica. Raises UnknownTopicOrPartition, or ReplicaNotAvailable if this broker has none."""
        name = TopicPartition(topic, partition)
        known = self._image.topics.get(topic)
        if known is None or partition not in known.partitions:
            if not self._image.known.is_set():
                raise ReplicaNotAvailable(
                    f"broker {self._runtime.broker_id} has just started and does not know {name} yet"
                )
            raise UnknownTopicOrPartition(f"partition {name} does not exist")
        epoch = known.partitions[partition].leader_epoch
        led, follower = self._replicas.partitions.get(name), self._replicas.followed.get(name)
        if led is not None:
            return LocalReplica(led.log, led.high_watermark, led.leader_epoch)
        if follower is not None:
            return LocalReplica(follower.log, follower.high_watermark, follower.leader_epoch)
        log = self._log_dirs.log(name)
        if log is None or self._log_dirs.topic_id(name) != known.topic_id:
            raise ReplicaNotAvailable(f"broker {self._runtime.broker_id} has no replica of {name}")
        return LocalReplica(
            log,
            await self._runtime.executors.run_at(log.log_dir.path, Purpose.LOOK_UPS, self._replicas.committed_end, log),
            epoch,
        )

    async def fetch(self, request: FetchRequest, connection: Connection) -> list[FetchedPartition[FileRange]]:
        """The batches of each replica in the request. If there are none, it tries once more after max_wait.

        A follower has no event for new batches, so it waits for the whole time, up to 24 days by the client's choice.
        Raises ConnectionEnded if the connection ends before.
        """
        fetched = await self._read(request, connection)
        if request.max_wait_ms > 0 and not any(one.ranges or one.error_code for one in fetched):
            await _wait(connection, request.max_wait_ms / 1000)
            fetched = await self._read(request, connection)
        return fetched

    async def _read(self, request: FetchRequest, connection: Connection) -> list[FetchedPartition[FileRange]]:
        left = min(max(request.max_bytes, 0), self._fetch_bytes_max)
        found: list[FetchedPartition[FileRange]] = []
        nothing_yet = True
        share = Share(connection.turns, connection.address)
        for asked in request.partitions:
            await share.yield_if_due()
            high, start, ranges, code = -1, -1, list[FileRange](), 0
            try:
                replica = await self.find(asked.topic, asked.partition)
                start = replica.log.start_offset
                if left > 0 or nothing_yet:
                    ranges = await self._runtime.executors.run_in_turn(
                        connection.address,
                        replica.log.log_dir.path,
                        Purpose.COLD_READS,
                        _ranges,
                        replica,
                        asked,
                        min(left, asked.max_bytes),
                        nothing_yet,
                    )
                high = replica.high_watermark.offset
            except KlogError as error:
                code = error.wire
            size = sum(one.size for one in ranges)
            left -= size
            nothing_yet = nothing_yet and not ranges
            found.append(FetchedPartition(asked.topic, asked.partition, code, high, start, ranges, size))
        return found


async def _wait(connection: Connection, seconds: float) -> None:
    ended = asyncio.Event()
    connection.at_end.add(ended.set)
    try:
        async with asyncio.timeout(seconds):
            if not connection.closed:
                await ended.wait()
    except TimeoutError:
        return
    finally:
        connection.at_end.discard(ended.set)
    raise ConnectionEnded("the client ended the connection before there was anything to fetch")


def _ranges(replica: LocalReplica, asked: AskedPartition, max_bytes: int, at_least_one: bool) -> list[FileRange]:
    """In a thread, which reads the ranges ahead."""
    log, high = replica.log, replica.high_watermark
    log.check_offset(asked.offset)
    if asked.offset >= high.offset:
        return []
    ranges = log.read(asked.offset, max_bytes, high.address, at_least_one=at_least_one)
    log.warm(ranges)
    return ranges
