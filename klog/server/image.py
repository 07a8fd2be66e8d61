"""What a broker knows of its cluster: brokers, topics, partitions, the controller. Event loop only.

The registries in ZooKeeper are the truth; this is the last known state of them, from which Metadata is answered without
asking anybody (the paper's rule that any broker can route a client).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A live broker at the address that clients are to use."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """``leader`` is -1 while nobody leads."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: UUID
    partitions: dict[int, PartitionImage]
    """Replaced as a whole when something changes, never changed in place."""
    overrides: dict[str, str]
    """The topic's own settings, by their topic-level names."""


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str = ""
    controller_id: int = -1
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
