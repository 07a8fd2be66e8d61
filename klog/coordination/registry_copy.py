"""A copy of the cluster's registries beside the logs: ``registry-checkpoint`` in each log dir.

ZooKeeper has the truth; the copy is some seconds old at most. Only `klog zookeeper rebuild` reads it, after ZooKeeper's
data were lost. Without it a disk tells its partitions and their topics, but not which other brokers have them, nor the
topic's settings.

Format: one JSON object::

    {"version": 1, "cluster_id": "...", "broker_id": 1, "written_ms": ..., "controller_epoch": 4,
     "producer_ids_below": 2000,
     "topics": [{"name": "t", "topic_id": "<22 characters>", "settings": {"retention.ms": "1000"},
                 "partitions": {"0": {"replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 7}}}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from klog.errors import CorruptLog
from klog.names import parse_uuid, uuid_text

FILE: Final = "registry-checkpoint"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """A partition's assignment, the preferred leader first, and its state. ``leader``: -1 for none."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicCopy:
    name: str
    topic_id: UUID
    settings: Mapping[str, str]
    partitions: Mapping[int, PartitionCopy]


@dataclass(frozen=True, slots=True)
class RegistryCopy:
    """The registries as one broker knew them at ``written_ms``."""

    cluster_id: str
    broker_id: int
    written_ms: int
    controller_epoch: int
    producer_ids_below: int
    """A bound above every producer id that this broker may have given out."""
    topics: Mapping[str, TopicCopy] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        topics = [topic for _, topic in sorted(self.topics.items())]
        fields = {"version": VERSION, **_fields(self), "topics": topics}
        return json.dumps(fields, separators=(",", ":"), default=_fields).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> RegistryCopy:
        """Raises CorruptLog with ``path`` if the data are not such a copy."""
        try:
            fields = json.loads(data)
            if fields["version"] != VERSION:
                raise CorruptLog(f"{path} has version {fields['version']!r}, expected {VERSION}")
            topics = [_topic(one) for one in fields["topics"]]
            return cls(
                cluster_id=str(fields["cluster_id"]),
                broker_id=int(fields["broker_id"]),
                written_ms=int(fields["written_ms"]),
                controller_epoch=int(fields["controller_epoch"]),
                producer_ids_below=int(fields["producer_ids_below"]),
                topics={topic.name: topic for topic in topics},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptLog(f"{path} is not a copy of the registries: {error!r}") from None


def _fields(value: Any) -> Any:
    """What JSON has of a part of the copy."""
    return uuid_text(value) if isinstance(value, UUID) else {name: getattr(value, name) for name in value.__slots__}


def _topic(fields: Any) -> TopicCopy:
    topic_id = parse_uuid(fields["topic_id"])
    if topic_id is None:
        raise ValueError(f"topic id {fields['topic_id']!r}")
    partitions = {
        int(number): PartitionCopy(
            tuple(map(int, one["replicas"])), tuple(map(int, one["isr"])), int(one["leader"]), int(one["leader_epoch"])
        )
        for number, one in fields["partitions"].items()
    }
    settings = {str(name): str(value) for name, value in fields["settings"].items()}
    return TopicCopy(str(fields["name"]), topic_id, settings, partitions)
