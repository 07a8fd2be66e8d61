"""Deleted topics: what they hold, until when, and how they are restored or purged.

`klog.coordination.topics` has what is written; the brokers say what they have on their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from klog.admin.topics import TopicDeletion, create_topic, until_led
from klog.client.answers import check, error_in
from klog.client.cluster import Cluster
from klog.coordination import committed, topics
from klog.coordination.topics import Deletion, Topic
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, NoSuchThing, TopicAlreadyExists, UnknownTopicId
from klog.metrics import Count
from klog.names import check_topic_name, near_hint, parse_uuid, uuid_text
from klog.protocol.apis import ApiKey
from klog.render.values import moment

HINT_S = 0.5
"""An error does not wait longer for a hint."""


@dataclass(frozen=True, slots=True)
class TrashRow:
    """A deleted topic. ``messages`` and ``bytes`` are None where a broker that may have them does not answer."""

    topic: str
    partitions: int
    messages: int | None
    bytes: int | None
    deleted_at: datetime | str
    until: datetime | str
    id: str = field(metadata={"wide": True})
    act: str = field(metadata={"wide": True})


async def list_trash(cluster: Cluster, zookeeper: ZooKeeper, damage: dict[str, str]) -> list[TrashRow]:
    """The deleted topics, the oldest first. What cannot be read is noted in ``damage`` by its path."""
    found = await asyncio.to_thread(topics.deleted, zookeeper, damage)
    if not found:
        return []
    logs = await _logs(cluster, [topic.topic_id for topic, _ in found.values() if topic.topic_id is not None])
    return [_row(topic, deletion, logs.get(topic.topic_id, ())) for topic, deletion in found.values()]


def _row(topic: Topic, deletion: Deletion, logs: Iterable[Any]) -> TrashRow:
    """``logs``: what brokers have of it (DescribeTrash)."""
    best: dict[int, Any] = {}
    # Of two that reach as far, the one with less: records were deleted while the other's broker was down.
    for one in sorted(logs, key=lambda log: (log.end_address, -log.bytes, -max(log.messages, 0))):
        best[one.partition_index] = one
    is_all = len(best) == len(topic.partitions)
    counts = [int(one.messages) for one in best.values()]
    return TrashRow(
        topic.name,
        len(topic.partitions),
        sum(counts) if is_all and min(counts, default=0) >= 0 else None,  # below 0: the broker does not know
        sum(int(one.bytes) for one in best.values()) if is_all else None,
        moment(deletion.since_ms),
        moment(deletion.until_ms),
        "" if topic.topic_id is None else uuid_text(topic.topic_id),
        deletion.act,
    )


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """A topic that is restored. ``groups``: how many groups have committed in it."""

    topic: str
    partitions: int
    messages: int | None
    bytes: int | None
    deleted_at: datetime | str
    groups: int
    id: str = field(metadata={"wide": True})


async def plan_restore(cluster: Cluster, zookeeper: ZooKeeper, name: str) -> RestoreRow:
    """What restoring the topic brings back. NoSuchThing where no topic of that name is deleted."""
    check_topic_name(name)
    found = await asyncio.to_thread(topics.find_deleted, zookeeper, name)
    if found is None or found[0].topic_id is None:
        known = await asyncio.to_thread(topics.deleted, zookeeper, {})  # what is damaged holds up no other
        raise NoSuchThing(
            f"topic {name!r} is not among the deleted topics",
            hint=near_hint(name, known.keys(), "klog topic list --deleted"),
        )
    (topic, deletion), topic_id = found, found[0].topic_id
    row = _row(topic, deletion, (await _logs(cluster, [topic_id])).get(topic_id, ()))
    groups = await asyncio.to_thread(_groups, zookeeper, name)
    return RestoreRow(name, row.partitions, row.messages, row.bytes, row.deleted_at, groups, row.id)


def _groups(zookeeper: ZooKeeper, topic: str) -> int:
    """In a thread: how many groups have committed in a topic."""
    offsets = committed.names(zookeeper, committed.groups(zookeeper))
    return sum(any(one.topic == topic for one in places) for places in offsets.values())


async def restore_topic(cluster: Cluster, plan: RestoreRow, *, led: Count | None = None) -> None:
    """Bring it back, and wait until its partitions have leaders, which ``led`` counts."""
    answer = await cluster.to_controller(ApiKey.RESTORE_TOPIC, 0, topic_id=parse_uuid(plan.id))
    check(answer, f"cannot restore topic {plan.topic!r}")
    await until_led(cluster, plan.topic, plan.partitions, led=led)


async def purge_topics(
    cluster: Cluster, rows: Sequence[TopicDeletion], ids: Mapping[str, UUID], count: Count
) -> list[TopicDeletion]:
    """Delete topics for good that are deleted, counted by ``count``; the rows, with what failed."""
    purged: list[TopicDeletion] = []
    for row in rows:
        count.done = len(purged)
        if row.error is not None or row.topic not in ids:
            purged.append(row)
            continue
        answer = await cluster.to_controller(ApiKey.PURGE_TOPIC, 0, topic_id=ids[row.topic])
        error = error_in(answer, "the topic is deleted, and not purged yet")
        if isinstance(error, UnknownTopicId):  # where no deletion waits it is purged already
            error = None
        purged.append(row.failed_by(error))
    return purged


async def restore_hint(cluster: Cluster, topic: str) -> str | None:
    """What brings a topic back that does not exist because it is deleted, as the controller says it to those that want
    to create one of its name; None where it does not within `HINT_S`."""
    try:
        async with asyncio.timeout(HINT_S):
            await create_topic(cluster, topic, validate_only=True)
    except TopicAlreadyExists as error:
        return error.message.partition(": ")[2]
    except (KlogError, TimeoutError):
        pass
    return None


async def ids_of(zookeeper: ZooKeeper, names: Sequence[str]) -> dict[str, UUID]:
    """The ids of topics, deleted ones among them."""
    found = await asyncio.to_thread(topics.read_many, zookeeper, names, {})
    return {one.name: one.topic_id for one in found if one.topic_id is not None}


async def _logs(cluster: Cluster, topic_ids: Sequence[UUID]) -> dict[UUID | None, list[Any]]:
    """What the live brokers have of these topics."""
    answers = await cluster.to_each(ApiKey.DESCRIBE_TRASH, 0, topic_ids=list(topic_ids))
    found: dict[UUID | None, list[Any]] = {}
    for answer in answers.values():
        for one in () if isinstance(answer, KlogError) else answer.logs:
            found.setdefault(one.topic_id, []).append(one)
    return found
