"""A member of a group as a process of its own, to be killed and paused: a stock client that reads, and then commits.

``python -m tests.cluster.group_member '{"client": "confluent", "bootstrap": .., "group": .., "topic": .., ...}'`` says
on stdout what happens to it, a JSON object a line, each with the machine's monotonic clock as ``at``:

    {"is": "subscribed"}                                        the client is made, and begins
    {"is": "owner", "generation": 3, "partitions": [0, 2]}      what it may read, whenever that changes
    {"is": "read", "offsets": {"0": [17, 23]}}                  always before they are committed
    {"is": "committed", "offsets": {"0": 24}}
    {"is": "refused", "why": ".."}                              a commit
    {"is": "fatal", "why": ".."}                                it can go on no more, and ends

SIGTERM: it leaves the group in order. SIGUSR1: it stops (SIGSTOP) when it has next read something and before it commits
that, so that with SIGCONT a commit goes out that is as old as its sleep was long.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import time
from typing import Any

BATCH = 500
POLL_MS = 50


class Member:
    """What all clients have in common: what they are told, and what they tell."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.bootstrap: str = settings["bootstrap"]
        self.group: str = settings["group"]
        self.topic: str = settings["topic"]
        self.session_ms: int = settings["session_ms"]
        self.strategy: str = settings["strategy"]
        self.is_stopping = False
        self._is_to_hang = False
        self._owned: tuple[int, list[int]] = (-1, [])
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._hang)

    @property
    def heartbeat_ms(self) -> int:
        return self.session_ms // 10

    def _stop(self, number: int, frame: object) -> None:
        self.is_stopping = True

    def _hang(self, number: int, frame: object) -> None:
        self._is_to_hang = True

    def tell(self, what: str, **facts: Any) -> None:
        line = json.dumps({"is": what, "at": time.monotonic(), **facts})
        print(line, flush=True)

    def owns(self, generation: int, partitions: list[int]) -> None:
        """Told when it is news; without a generation nobody owns anything."""
        now = (generation, sorted(partitions))
        if generation >= 0 and now != self._owned:
            self._owned = now
            self.tell("owner", generation=generation, partitions=now[1])

    def has_read(self, offsets: dict[int, list[int]]) -> dict[int, int]:
        """Partition -> what to commit."""
        self.tell("read", offsets=offsets)
        if self._is_to_hang:
            self._is_to_hang = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return {partition: some[-1] + 1 for partition, some in offsets.items()}


def confluent(member: Member) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": member.bootstrap,
            "group.id": member.group,
            "partition.assignment.strategy": member.strategy,
            "session.timeout.ms": member.session_ms,
            "heartbeat.interval.ms": member.heartbeat_ms,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    member.tell("subscribed")
    consumer.subscribe([member.topic])

    def generation() -> int:
        found: int
        (found,) = struct.unpack_from("=i", consumer.consumer_group_metadata(), len(b"CGMDv2:"))
        return found

    while not member.is_stopping:
        offsets: dict[int, list[int]] = {}
        for message in consumer.consume(BATCH, POLL_MS / 1000):
            problem = message.error()
            if problem is None:
                offsets.setdefault(message.partition(), []).append(message.offset())
            elif problem.fatal() or problem.code() == KafkaError._FATAL:
                member.tell("fatal", why=problem.str())
                return
        now, owned = generation(), [one.partition for one in consumer.assignment()]
        if now == generation():  # librdkafka's own thread has not begun another between the two
            member.owns(now, owned)
        if offsets:
            wanted = [TopicPartition(member.topic, *one) for one in member.has_read(offsets).items()]
            try:
                done = consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException as error:
                member.tell("refused", why=error.args[0].name())
            else:
                member.tell("committed", offsets={one.partition: one.offset for one in done if one.error is None})
    consumer.close()


async def aio_kafka(member: Member) -> None:
    from aiokafka import (  # type: ignore[import-untyped]
        AIOKafkaConsumer,
        ConsumerRebalanceListener,
        OffsetAndMetadata,
        TopicPartition,
    )
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

    consumer = AIOKafkaConsumer(
        bootstrap_servers=member.bootstrap.split(","),
        group_id=member.group,
        partition_assignment_strategy=[{"range": RangePartitionAssignor}[member.strategy]],
        session_timeout_ms=member.session_ms,
        rebalance_timeout_ms=member.session_ms * 2,
        heartbeat_interval_ms=member.heartbeat_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        request_timeout_ms=5000,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            return

        async def on_partitions_assigned(self, assigned: Any) -> None:
            member.owns(consumer._coordinator.generation, [one.partition for one in assigned])

    member.tell("subscribed")
    consumer.subscribe([member.topic], listener=Listener())
    await consumer.start()
    while not member.is_stopping:
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        if not found:
            continue
        offsets = {one.partition: [record.offset for record in some] for one, some in found.items()}
        wanted = {
            TopicPartition(member.topic, partition): OffsetAndMetadata(offset, "")
            for partition, offset in member.has_read(offsets).items()
        }
        try:
            await consumer.commit(wanted)
        except KafkaError as error:
            member.tell("refused", why=type(error).__name__)
        else:
            member.tell("committed", offsets={one.partition: what.offset for one, what in wanted.items()})
    await consumer.stop()


def main() -> None:
    settings = json.loads(sys.argv[1])
    member = Member(settings)
    match settings["client"]:
        case "confluent":
            confluent(member)
        case "aiokafka":
            asyncio.run(aio_kafka(member))


if __name__ == "__main__":
    main()
