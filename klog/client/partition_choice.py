"""The choice of a message's partition, if it is not left to librdkafka."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException

from klog.client.send_errors import error_from
from klog.errors import UnknownTopicOrPartition, UsageError

ANY_PARTITION = -1

Partitioner = Callable[[bytes | None, int], int]
"""From a message's key and the number of partitions to a partition; 0.8's ``partition(key, numPartitions)``."""

LOOK_EVERY_S = 0.02
"""Between requests while our metadata request creates a topic."""


class PartitionChoice:
    """The choices of one producer. Any thread: if two threads need metadata at once, both request it."""

    def __init__(self, rdkafka: Any, partitioner: Partitioner | None, *, age_s: float, answer_s: float) -> None:
        """``age_s``: how long the number of partitions is used; ``answer_s``: how long an answer may take."""
        self._rdkafka = rdkafka
        self._partitioner = partitioner
        self._age_s = age_s
        self._answer_s = answer_s
        self._partitions: dict[str, tuple[float, list[int], int]] = {}

    def of_one(self, topic: str, key: bytes | None) -> int:
        """As `of`, for one message."""
        if self._partitioner is None:
            return ANY_PARTITION
        return self._chosen(topic, key, self._partitions_of(topic)[1])

    def of(self, topic: str, keys: Sequence[bytes | None], partition: int | None) -> list[int]:
        """A partition for each message of a set, by its key; `ANY_PARTITION` leaves it to librdkafka's partitioner."""
        if partition is not None:
            return [partition] * len(keys)
        if self._partitioner is not None:
            count = self._partitions_of(topic)[1]
            return [self._chosen(topic, key, count) for key in keys]
        if len(keys) > 1 and None in keys:
            led, _ = self._partitions_of(topic)
            one = random.choice(led)  # a set without keys stays together
            return [one if key is None else ANY_PARTITION for key in keys]
        return [ANY_PARTITION] * len(keys)

    def _chosen(self, topic: str, key: bytes | None, count: int) -> int:
        assert self._partitioner is not None
        chosen = self._partitioner(key, count)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < count:
            raise UsageError(
                f"the partitioner says {chosen!r} for key {key!r}; {topic} has partitions 0 to {count - 1}"
            )
        return chosen

    def _partitions_of(self, topic: str) -> tuple[list[int], int]:
        """The partitions with a leader (all, if none has one), and their total number; read again after ``age_s``."""
        known = self._partitions.get(topic)
        now = time.monotonic()
        if known is not None and now < known[0]:
            return known[1], known[2]
        deadline = now + self._answer_s
        while True:
            try:
                found = self._rdkafka.list_topics(topic, max(deadline - time.monotonic(), 0.1)).topics[topic]
            except KafkaException as error:
                raise error_from(error.args[0], f"partitions of {topic}") from None
            if found.error is None and found.partitions:
                led = sorted(one for one, about in found.partitions.items() if about.leader >= 0)
                count = len(found.partitions)
                self._partitions[topic] = now + self._age_s, led or list(range(count)), count
                return self._partitions[topic][1:]
            failure = error_from(found.error, topic) if found.error else None
            if time.monotonic() > deadline or (failure is not None and not failure.retriable):
                raise failure or UnknownTopicOrPartition(f"no topic {topic!r}")
            time.sleep(LOOK_EVERY_S)
