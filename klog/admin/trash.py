"""The trash of topics: what waits there, and until when.

`klog.coordination.trash` has what is written; the brokers say what they have on their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from klog.coordination import entries, trash
from klog.coordination.trash import Entry
from klog.errors import KlogError

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

RETENTION: Final = "klog.trash.retention.ms"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TrashRow:
    """A deleted topic. ``until`` is None while its deletion is under way; ``messages`` and ``bytes`` are None where a
    broker that may have them does not answer."""

    topic: str
    partitions: int | None
    messages: int | None
    bytes: int | None
    deleted_at: datetime
    until: datetime | None
    state: str = field(metadata={"wide": True})
    id: str = field(metadata={"wide": True})
    act: str | None = field(metadata={"wide": True})


class Copy(NamedTuple):
    """A log in the trash of a broker."""

    broker: int
    partition: int
    end_address: int
    messages: int | None
    bytes: int


async def list_trash(cluster: Cluster, zookeeper: ZooKeeper) -> list[TrashRow]:
    """The deleted topics in the trash, the oldest first."""
    found = await asyncio.to_thread(trash.read_all, zookeeper)
    if not found:
        return []
    partitions = await asyncio.to_thread(trash.partition_counts, zookeeper, found)
    retention_ms = await _retention_ms(cluster)
    copies, _ = await copies_of(cluster, [one.topic_id for one in found])
    return [_row(one, partitions.get(one.topic_id), copies.get(one.topic_id, ()), retention_ms) for one in found]


def _row(entry: Entry, partitions: int | None, copies: Iterable[Copy], retention_ms: int | None) -> TrashRow:
    best: dict[int, Copy] = {}
    for one in copies:
        if one.partition not in best or best[one.partition].end_address < one.end_address:
            best[one.partition] = one
    is_all = partitions is not None and len(best) == partitions
    counts = [one.messages for one in best.values()]
    is_whole = entry.state == trash.WHOLE and retention_ms is not None
    return TrashRow(
        entry.name,
        partitions,
        sum(one for one in counts if one is not None) if is_all and None not in counts else None,
        sum(one.bytes for one in best.values()) if is_all else None,
        _time(entry.deleted_ms),
        _time(entry.modified_ms + (retention_ms or 0)) if is_whole else None,
        entry.state,
        entries.uuid_text(entry.topic_id),
        entry.act,
    )


async def copies_of(
    cluster: Cluster, topic_ids: Sequence[UUID]
) -> tuple[Mapping[UUID, list[Copy]], Mapping[int, KlogError]]:
    """What the live brokers have of these topics in their trash, and why some of them do not say it."""
    brokers = [one.broker_id for one in await cluster.brokers()]
    answers = await asyncio.gather(*(_ask(cluster, one, topic_ids) for one in brokers), return_exceptions=True)
    found: dict[UUID, list[Copy]] = {}
    failed: dict[int, KlogError] = {}
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, KlogError):
            failed[broker] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for one in answer.logs:
                messages = int(one.messages)
                found.setdefault(one.topic_id, []).append(
                    Copy(
                        broker,
                        int(one.partition_index),
                        int(one.end_address),
                        None if messages < 0 else messages,
                        int(one.bytes),
                    )
                )
    return found, failed


async def _ask(cluster: Cluster, broker: int, topic_ids: Sequence[UUID]) -> Any:
    from klog.protocol import codec
    from klog.protocol.apis import ApiKey

    channel = await cluster.channel(broker)
    channel.version_for(ApiKey.DESCRIBE_TRASH, 0)
    return await channel.request(codec.request(ApiKey.DESCRIBE_TRASH, 0, topic_ids=list(topic_ids)))


async def _retention_ms(cluster: Cluster) -> int | None:
    """As the controller has it."""
    from klog.admin.settings import describe_broker_settings

    controller = (await cluster.metadata()).controller_id
    if controller is None or controller < 0:
        return None
    for one in await describe_broker_settings(cluster, controller, names=[RETENTION]):
        if one.value is not None:
            return int(one.value)
    return None


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
