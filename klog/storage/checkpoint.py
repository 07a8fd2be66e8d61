"""Small files beside the logs, replaced atomically; each can be rebuilt from the logs, or rejected.

* ``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``, ``replication-offset-checkpoint``: Kafka's text
  form, a line with the version (0), a line with the count, then one line ``topic partition number`` each.
* ``log-summary-checkpoint``: what 10 GB of small batches do not tell quickly. The same head, then one line ``topic
  partition crc json`` each; ``crc`` is the CRC-32C of the json in hex. An invalid line is ignored and its log read
  again: an unknown count is better than a wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

import crc32c

from klog.errors import CorruptLog
from klog.names import TopicPartition
from klog.storage.epochs import EpochStart
from klog.storage.producers import Producer, Producers, WrittenBatch

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
SUMMARIES: Final = "log-summary-checkpoint"
_VERSION: Final = "0"


class SegmentSummary(NamedTuple):
    """A segment up to ``end_address``; of a closed one, all of it."""

    base_address: int
    end_address: int
    end_offset: int
    size: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which klog never calls
    max_timestamp_ms: int
    max_timestamp_address: int
    has_holes: bool
    created_ms: int


class LogSummary(NamedTuple):
    """A log up to a flushed address: the end of the last of ``segments``, which is the recovery point."""

    segments: tuple[SegmentSummary, ...]
    epochs: tuple[EpochStart, ...]
    producers: Mapping[int, Producer]

    @property
    def recovery_point(self) -> int:
        return self.segments[-1].end_address

    def below(self, address: int) -> LogSummary | None:
        """The part that holds after a truncation at ``address``; None if nothing does."""
        rows = tuple(row for row in self.segments if row.end_address <= address)
        if not rows:
            return None
        producers = Producers(dict(self.producers))
        producers.truncate(rows[-1].end_address)
        starts = tuple(start for start in self.epochs if start.address < rows[-1].end_address)
        return LogSummary(rows, starts, producers.snapshot())

    def to_json(self) -> str:
        """Lists in the order of the fields: for 10,000 segments 1 MB instead of 3."""
        producers = [
            [producer_id, state.epoch, state.timestamp_ms, [list(batch) for batch in state.batches]]
            for producer_id, state in self.producers.items()
        ]
        value = [[list(row) for row in self.segments], [list(row) for row in self.epochs], producers]
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LogSummary:
        """Raises CorruptLog if the text is not a summary."""
        try:
            segments, epochs, producers = json.loads(text)
            summary = cls(
                tuple(SegmentSummary(*row) for row in segments),
                tuple(EpochStart(*row) for row in epochs),
                {
                    producer_id: Producer(epoch, tuple(WrittenBatch(*row) for row in batches), timestamp_ms)
                    for producer_id, epoch, timestamp_ms, batches in producers
                },
            )
        except (ValueError, TypeError) as error:
            raise CorruptLog(f"{SUMMARIES}: a line that is not a summary: {error}") from error
        if not summary.segments:
            raise CorruptLog(f"{SUMMARIES}: a summary without segments")
        return summary


def render_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A file in Kafka's text form."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{name.topic} {name.partition} {offset}" for name, offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The numbers in Kafka's text form. Raises CorruptLog."""
    offsets: dict[TopicPartition, int] = {}
    try:
        lines = data.decode("ascii").splitlines()
        if lines[0] != _VERSION:
            raise CorruptLog(f"{path}: found version {lines[0]!r}, expected {_VERSION}")
        for line in lines[2:]:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        if len(offsets) != int(lines[1]):
            raise CorruptLog(f"{path}: found {len(offsets)} lines, expected {lines[1]}")
    except (ValueError, IndexError) as error:
        raise CorruptLog(f"{path}: no checkpoint: {error}") from error
    return offsets


def render_summary(name: TopicPartition, summary: LogSummary) -> str:
    """A line of ``log-summary-checkpoint``."""
    text = summary.to_json()
    return f"{name.topic} {name.partition} {crc32c.crc32c(text.encode()):08x} {text}"


def render_summaries(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def parse_summary(line: str) -> tuple[TopicPartition, LogSummary]:
    """Parse a line of ``log-summary-checkpoint``. Raises CorruptLog if it is not valid."""
    try:
        topic, partition, crc, text = line.split(" ", 3)
        if int(crc, 16) != crc32c.crc32c(text.encode()):
            raise CorruptLog(f"{SUMMARIES}: a line whose CRC is wrong")
        return TopicPartition(topic, int(partition)), LogSummary.from_json(text)
    except ValueError as error:
        raise CorruptLog(f"{SUMMARIES}: a line that is not a summary: {error}") from error


class Summaries(NamedTuple):
    """A parsed ``log-summary-checkpoint``: summaries, their lines, and the number of invalid lines."""

    known: dict[TopicPartition, LogSummary]
    lines: dict[TopicPartition, str]
    rejected: int


def parse_summaries(data: bytes) -> Summaries:
    """Parse all valid lines."""
    found = Summaries({}, {}, 0)
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != _VERSION:
        return found._replace(rejected=1)
    rejected = 0
    for line in lines[2:]:
        try:
            name, summary = parse_summary(line)
        except CorruptLog:
            rejected += 1
        else:
            found.known[name], found.lines[name] = summary, line
    return found._replace(rejected=rejected)
