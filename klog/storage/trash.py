"""The folders of deleted replicas that wait in the trash: ``<topic>-<partition>.<topic id>.<8 hex digits>-trash``.

``trash.metadata`` in such a folder has what the log dir's checkpoints knew of the log, since they forget a log that is
gone: the start shown (rule L4), the high watermark and whether a crash may have taken anything (rule R1), the recovery
point and the summary. It is written when the log has been flushed and closed, before the folder is renamed.

The file is two lines: the CRC-32C of the second in hex, then JSON.
"""

from __future__ import annotations

import json
import logging
from typing import Final, NamedTuple
from uuid import UUID

import crc32c

from klog.errors import CorruptLog
from klog.names import TopicPartition
from klog.storage import partition_folder
from klog.storage.checkpoint import LogSummary
from klog.storage.filesystem import FileSystem
from klog.storage.log import Log
from klog.storage.lookup import count

_log = logging.getLogger(__name__)

METADATA: Final = "trash.metadata"
UNKNOWN: Final = -1


class Trashed(NamedTuple):
    """What ``trash.metadata`` has. ``messages`` is `UNKNOWN` where they were not counted yet."""

    name: TopicPartition
    topic_id: UUID
    trashed_ms: int
    start_offset: int
    end_address: int
    recovery_point: int
    high_watermark: int
    nothing_lost: bool
    messages: int
    size_bytes: int
    summary: LogSummary | None

    def render(self) -> bytes:
        fields = {
            "version": 1,
            "topic": self.name.topic,
            "partition": self.name.partition,
            "topic_id": partition_folder.uuid_text(self.topic_id),
            "time": self.trashed_ms,
            "start_offset": self.start_offset,
            "end_address": self.end_address,
            "recovery_point": self.recovery_point,
            "high_watermark": self.high_watermark,
            "nothing_lost": self.nothing_lost,
            "messages": self.messages,
            "bytes": self.size_bytes,
            "summary": None if self.summary is None else self.summary.to_json(),
        }
        text = json.dumps(fields, separators=(",", ":"))
        return f"{crc32c.crc32c(text.encode()):08x}\n{text}\n".encode()


def describe(log: Log, topic_id: UUID, high_watermark: int, now_ms: int) -> Trashed:
    """A log that is flushed and closed."""
    summary = log.summary()
    messages = count(log.segments, log.start_offset, log.end.offset)
    return Trashed(
        log.topic_partition,
        topic_id,
        now_ms,
        log.start_offset,
        log.end.address,
        log.durable_end.address if summary is None else summary.recovery_point,
        min(high_watermark, log.end.address),
        log.nothing_lost,
        UNKNOWN if messages is None else messages,
        log.size_bytes,
        summary,
    )


def parse(data: bytes) -> Trashed | None:
    """None where the file does not check."""
    crc, _, text = data.decode("utf-8", "replace").partition("\n")
    text = text.rstrip("\n")
    try:
        if int(crc, 16) != crc32c.crc32c(text.encode()):
            return None
        fields = json.loads(text)
        topic_id = partition_folder.parse_uuid(fields["topic_id"])
        if topic_id is None or fields["version"] != 1:
            return None
        return Trashed(
            TopicPartition(str(fields["topic"]), int(fields["partition"])),
            topic_id,
            int(fields["time"]),
            int(fields["start_offset"]),
            int(fields["end_address"]),
            int(fields["recovery_point"]),
            int(fields["high_watermark"]),
            fields["nothing_lost"] is True,
            int(fields["messages"]),
            int(fields["bytes"]),
            None if fields["summary"] is None else LogSummary.from_json(fields["summary"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, CorruptLog):
        return None


def read(file_system: FileSystem, folder: str) -> Trashed | None:
    """What a folder's ``trash.metadata`` has; None where there is none, or none that checks."""
    data = file_system.read(f"{folder}/{METADATA}")
    if data is None:
        return None
    found = parse(data)
    if found is None or found.topic_id != partition_folder.read_topic_id(file_system, folder):
        _log.error("%s/%s cannot be read: the folder stays as it is", folder, METADATA)
        return None
    return found
