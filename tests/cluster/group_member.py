"""A member of a group as a process of its own, to be killed and paused: a stock client that reads, and then commits.

``python -m tests.cluster.group_member '{"bootstrap": .., "group": .., "topic": .., ...}'`` says on stdout what happens
to it, a JSON object a line, each with the machine's monotonic clock as ``at``:

    {"is": "subscribed"}                                        the client is made, and begins
    {"is": "owner", "generation": 3, "partitions": [0, 2]}      what it may read, whenever that changes
    {"is": "read", "offsets": {"0": [17, 23]}}                  always before they are committed
    {"is": "committed", "offsets": {"0": 24}}
    {"is": "refused", "why": ".."}                              a commit
    {"is": "fatal", "why": ".."}                                it can go on no more, and ends

SIGUSR1: it stops (SIGSTOP) when it has next read something and before it commits that, so that with SIGCONT a commit
goes out that is as old as its sleep was long.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

BATCH = 500
POLL_S = 0.05


def tell(what: str, **facts: Any) -> None:
    print(json.dumps({"is": what, "at": time.monotonic(), **facts}), flush=True)


class Member:
    def __init__(self, bootstrap: str, group: str, topic: str, session_ms: int, strategy: str) -> None:
        self._topic = topic
        self._is_to_hang = False
        signal.signal(signal.SIGUSR1, self._hang)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": session_ms // 10,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        tell("subscribed")
        self._consumer.subscribe([topic])

    def _hang(self, number: int, frame: object) -> None:
        self._is_to_hang = True

    def _generation(self) -> int:
        found: int
        (found,) = struct.unpack_from("=i", self._consumer.consumer_group_metadata(), len(b"CGMDv2:"))
        return found

    def run(self) -> None:
        """Until it is killed, or can go on no more."""
        told: tuple[int, list[int]] = (-1, [])
        while True:
            offsets: dict[int, list[int]] = {}
            for message in self._consumer.consume(BATCH, POLL_S):
                problem = message.error()
                if problem is None:
                    offsets.setdefault(message.partition(), []).append(message.offset())
                elif problem.fatal() or problem.code() == KafkaError._FATAL:
                    tell("fatal", why=problem.str())
                    return
            owned = (self._generation(), sorted(one.partition for one in self._consumer.assignment()))
            # Without a generation nobody owns anything, and librdkafka's own thread may have begun another between.
            if owned[0] >= 0 and owned[0] == self._generation() and owned != told:
                told = owned
                tell("owner", generation=owned[0], partitions=owned[1])
            if offsets:
                tell("read", offsets=offsets)
                if self._is_to_hang:
                    self._is_to_hang = False
                    os.kill(os.getpid(), signal.SIGSTOP)
                self._commit({partition: some[-1] + 1 for partition, some in offsets.items()})

    def _commit(self, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, *one) for one in offsets.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            tell("refused", why=error.args[0].name())
        else:
            tell("committed", offsets={one.partition: one.offset for one in done if one.error is None})


if __name__ == "__main__":
    Member(**json.loads(sys.argv[1])).run()
