"""What a topic's log has and what an export of it has, message for message: two readers that share nothing.

The log is read by a stock client (librdkafka), the export from its files by pyarrow. A message is its offset and a
checksum of all it carries.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]
PATIENCE_S = 60.0
LOOK_S = 0.05

Sums = dict[int, dict[int, int]]
"""Partition to offset to checksum."""


def checksum(timestamp_ms: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    """Of one message; null and empty differ."""
    parts = [struct.pack(">q", timestamp_ms)]
    for one in (key, value, *(part for name, data in headers for part in (name.encode(), data))):
        parts.append(b"-" if one is None else struct.pack(">i", len(one)) + one)
    return zlib.crc32(b"".join(parts))


class Log:
    """A topic as a stock consumer reads it; `read` goes on where it was."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.sums: Sums = {partition: {} for partition in range(partitions)}
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "faults",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # where retention has passed what was read
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._at = dict.fromkeys(range(partitions), OFFSET_BEGINNING)

    def read(self) -> Sums:
        """All of it, up to the ends of now."""
        self._consumer.assign([TopicPartition(self._topic, one, at) for one, at in self._at.items()])
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < len(self._at):
            assert time.monotonic() < deadline, f"{self._topic}: not read within {PATIENCE_S:g} s; ended: {ended}"
            for one in self._consumer.consume(5000, LOOK_S):  # it waits so long wherever fewer are there
                if (error := one.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(one.partition())
                    continue
                headers = [(name, data) for name, data in one.headers() or ()]
                found = checksum(one.timestamp()[1], one.key(), one.value(), headers)
                self.sums[one.partition()][one.offset()] = found
                self._at[one.partition()] = one.offset() + 1
        return self.sums

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Exported:
    """The files of a root. What was committed does not change, so a batch is read once."""

    root: Path
    _batches: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def read(self) -> list[tuple[int, int, int]]:
        """(partition, offset, checksum) of every row, doubled ones too."""
        for folder in sorted(self.root.glob("data/batch=*")):
            if folder.name not in self._batches:
                self._batches[folder.name] = [row for path in sorted(folder.rglob("*.parquet")) for row in _rows(path)]
        return [row for rows in self._batches.values() for row in rows]


def _rows(path: Path) -> list[tuple[int, int, int]]:
    table = pq.read_table(path, columns=COLUMNS)
    times = (table["timestamp"].cast("int64").to_numpy() // 1000).tolist()
    names = ("partition", "offset", "key", "value", "headers")
    columns = [table[name].to_pylist() for name in names]
    return [
        (partition, offset, checksum(time_ms, key, value, [(one["key"], one["value"]) for one in headers or ()]))
        for time_ms, partition, offset, key, value, headers in zip(times, *columns, strict=True)
    ]


@dataclass(frozen=True)
class Difference:
    """Of an export to its log, in messages. ``holes``: missing although later ones of the partition are there."""

    messages: int
    missing: int
    holes: int
    doubled: int
    changed: int
    """Also those that the log does not have at all."""

    @property
    def is_whole(self) -> bool:
        return not (self.missing or self.doubled or self.changed)

    @property
    def is_a_beginning(self) -> bool:
        """What is there is right, and the rest is still to come."""
        return not (self.holes or self.doubled or self.changed)


def compare(log: Sums, exported: list[tuple[int, int, int]]) -> Difference:
    there: Counter[tuple[int, int]] = Counter((partition, offset) for partition, offset, _ in exported)
    last = dict.fromkeys(log, -1)
    for partition, offset, _ in exported:
        last[partition] = max(last.get(partition, -1), offset)
    missing = [(one, at) for one, sums in log.items() for at in sums if (one, at) not in there]
    return Difference(
        messages=sum(map(len, log.values())),
        missing=len(missing),
        holes=sum(at < last[one] for one, at in missing),
        doubled=sum(there.values()) - len(there),
        changed=sum(log.get(one, {}).get(at) != found for one, at, found in exported),
    )
