"""The verbs of a topic: make, list, change, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from klog.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic. ``messages`` and ``bytes`` are None where the broker is no klog, or is still counting."""

    topic: str
    partitions: int
    replication_factor: int
    messages: int | None
    bytes: int | None
    under_replicated: int


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """``created`` is False where the topic was there and that was no error (``if_not_exists``)."""

    topic: str
    partitions: int
    replication_factor: int
    created: bool


@dataclass(frozen=True, slots=True)
class TopicAltered:
    """``keyed_warning``: adding partitions sends keys elsewhere than before."""

    topic: str
    partitions_before: int
    partitions: int
    messages: int | None


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """What goes, or went, with a topic; a failed row carries ``error`` (a code) and ``message``."""

    topic: str
    partitions: int | None
    messages: int | None
    bytes: int | None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting as it holds for a topic. ``source``: topic, broker, default."""

    topic: str
    name: str
    value: str | None
    source: str
    default: str | None
    effect: str | None = field(default=None, metadata={"wide": True})
    doc: str | None = field(default=None, metadata={"wide": True})


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] | None = None,
    start_broker: int | None = None,
    if_not_exists: bool = False,
) -> TopicCreated:
    raise NotImplementedError


async def list_topics(cluster: Cluster, pattern: str | None = None, *, regex: bool = False) -> list[TopicSummary]:
    """All topics by name, or those that match: a shell pattern, or with ``regex`` an anchored regular expression."""
    raise NotImplementedError


async def preview_alter(cluster: Cluster, name: str, partitions: int) -> TopicAltered:
    raise NotImplementedError


async def alter_topic(cluster: Cluster, name: str, partitions: int) -> TopicAltered:
    raise NotImplementedError


async def topic_settings(cluster: Cluster, name: str) -> list[TopicSetting]:
    raise NotImplementedError


async def set_topic_settings(
    cluster: Cluster, name: str, given: Mapping[str, str], deleted: Sequence[str] = ()
) -> list[TopicSetting]:
    raise NotImplementedError


async def preview_deletion(cluster: Cluster, names: Sequence[str], *, if_exists: bool = False) -> list[TopicDeletion]:
    """What deleting these would remove; nothing is changed. Missing topics are failed rows unless ``if_exists``."""
    raise NotImplementedError


async def delete_topics(cluster: Cluster, preview: Sequence[TopicDeletion]) -> list[TopicDeletion]:
    """Delete the topics of a preview that exist; the same rows, with what failed."""
    raise NotImplementedError
