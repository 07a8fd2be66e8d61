"""The folder of a partition, ``<topic>-<partition>``, and its topic id.

Rule L10: ``partition.metadata`` holds the topic's UUID (Kafka's form: ``version: 0``, ``topic_id: <base64>``). A folder
with another UUID, or none, is set aside by a rename and never served; a deleted one is renamed before it is removed, so
that a crash cannot bring half of it back.
"""

from __future__ import annotations

import uuid
from typing import Final

from klog.names import TopicPartition, parse_uuid, uuid_text
from klog.storage.filesystem import FileSystem, NewFolder
from klog.storage.segment import segment_name

METADATA: Final = "partition.metadata"
ASIDE_SUFFIX: Final = "-aside"
DELETED_SUFFIX: Final = "-delete"
TRASHED_SUFFIX: Final = "-trash"
"""Of deleted replicas that klog 0.2 kept for a while: they stay, and the log names them."""
FILE_NAME_CHARS_MAX: Final = 255


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition of a folder name; None for other names."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return TopicPartition(topic, int(partition))


def renamed(name: TopicPartition, topic_id: uuid.UUID | None, suffix: str) -> str:
    """The name of a folder that is no longer served: its suffix is not possible in a partition's name."""
    end = f"-{name.partition}.{uuid_text(topic_id) if topic_id else 'unknown'}.{uuid.uuid4().hex[:8]}{suffix}"
    return name.topic[: FILE_NAME_CHARS_MAX - len(end)] + end


def read_topic_id(file_system: FileSystem, folder: str) -> uuid.UUID | None:
    """The topic id in the folder; None if the file is missing or invalid."""
    data = file_system.read(f"{folder}/{METADATA}")
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            return parse_uuid(value.strip())
    return None


def new_folder(name: TopicPartition, topic_id: uuid.UUID) -> NewFolder:
    """An empty partition's folder, for ``FileSystem.publish``; the next start removes what a crash leaves."""
    files = {METADATA: f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode(), segment_name(0): b""}
    return NewFolder(renamed(name, topic_id, DELETED_SUFFIX), str(name), files)
