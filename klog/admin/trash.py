"""The trash of topics: what waits there, until when, and how it comes back.

`klog.coordination.trash` has what is written; the brokers say what they have on their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from klog.coordination import entries, topics, trash
from klog.coordination.trash import Entry
from klog.errors import KlogError, NoSuchThing, NotController, Refused, TopicAlreadyExists, UnknownTopicId
from klog.names import check_topic_name, near_hint
from klog.render.counts import Count
from klog.render.timestamps import moment

if TYPE_CHECKING:
    from klog.admin.topics import TopicDeletion
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

RETENTION: Final = "klog.trash.retention.ms"


@dataclass(frozen=True, slots=True)
class TrashRow:
    """A deleted topic. ``until`` is None while its deletion is under way; ``messages`` and ``bytes`` are None where a
    broker that may have them does not answer."""

    topic: str
    partitions: int | None
    messages: int | None
    bytes: int | None
    deleted_at: datetime | str
    until: datetime | str | None
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


async def list_trash(cluster: Cluster, zookeeper: ZooKeeper, damage: dict[str, str]) -> list[TrashRow]:
    """The deleted topics in the trash, the oldest first. What cannot be read is noted in ``damage`` by its path."""
    found = await asyncio.to_thread(trash.read_all, zookeeper, damage)
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
        moment(entry.deleted_ms),
        moment(entry.modified_ms + (retention_ms or 0)) if is_whole else None,
        entry.state,
        entries.uuid_text(entry.topic_id),
        entry.act,
    )


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """A topic that comes back. ``groups``: how many groups have their offsets in it back; ``was``: its name before."""

    topic: str
    partitions: int
    messages: int | None
    bytes: int | None
    deleted_at: datetime | str
    groups: int
    was: str = field(metadata={"wide": True})
    id: str = field(metadata={"wide": True})


class RestorePlan(NamedTuple):
    """What a restore brings back."""

    topic_id: UUID
    row: RestoreRow


async def plan_restore(
    cluster: Cluster, zookeeper: ZooKeeper, name: str, *, other: str | None = None, entry_id: str | None = None
) -> RestorePlan:
    """What restoring the topic brings back: the newest one of that name, or the one with that id, as ``other``.

    NoSuchThing, TopicAlreadyExists; Refused where its deletion is not complete, or where no in-sync replica of a
    partition has its log.
    """
    check_topic_name(name if other is None else other)
    trashed = await asyncio.to_thread(trash.read_all, zookeeper, {})  # what is damaged holds up no other
    found = [one for one in trashed if one.name == name]
    chosen = [one for one in found if entry_id is None or entries.uuid_text(one.topic_id) == entry_id]
    chosen = [one for one in chosen if one.state in (trash.WHOLE, trash.DELETING)]
    if not chosen:
        what = f"topic {name!r}" if entry_id is None else f"topic {name!r} with the id {entry_id}"
        raise NoSuchThing(
            f"{what} is not in the trash of {cluster}",
            hint=near_hint(name, {one.name for one in trashed if not found}, "klog topic list --deleted -o wide"),
        )
    entry = await _when_deleted(cluster, zookeeper, chosen[-1])
    target = other or name
    if await asyncio.to_thread(topics.find, zookeeper, target) is not None:
        raise TopicAlreadyExists(
            f"topic {target!r} exists on {cluster}", hint=f"klog topic restore {name} --as OTHER gives it another name"
        )
    kept = await asyncio.to_thread(trash.contents, zookeeper, entry)
    copies, failed = await _copies_when_settled(cluster, entry.topic_id)
    if failed:
        broker, error = next(iter(failed.items()))
        raise Refused(f"topic {name!r} is not restored: broker {broker} does not say what it has: {error.message}")
    of_topic = copies.get(entry.topic_id, [])
    there = {(one.broker, one.partition) for one in of_topic}
    lacking = {
        number: state.isr
        for number, state in sorted(kept.states.items())
        if not state.new and not any((broker, number) in there for broker in state.isr)
    }
    if lacking:
        listed = ", ".join(f"{name}-{number} (in sync: {list(isr)})" for number, isr in list(lacking.items())[:10])
        raise Refused(
            f"topic {name!r} is not restored: no broker that is alive and was in sync has the log of {listed}",
            hint="start these brokers, and try again",
        )
    partitions = len(kept.topic.partitions)
    counted = _row(entry, partitions, of_topic, None)
    groups = len(kept.offsets) if target == name else 0
    row = RestoreRow(target, partitions, counted.messages, counted.bytes, counted.deleted_at, groups, name, counted.id)
    return RestorePlan(entry.topic_id, row)


async def _copies_when_settled(
    cluster: Cluster, topic_id: UUID
) -> tuple[Mapping[UUID, list[Copy]], Mapping[int, KlogError]]:
    """As ``copies_of``; asked again while a broker does not answer, since one that has just died is listed a while."""
    deadline = asyncio.get_running_loop().time() + cluster.timeout_s
    pause_s = 0.05
    while True:
        copies, failed = await copies_of(cluster, [topic_id])
        if not failed or asyncio.get_running_loop().time() + pause_s > deadline:
            return copies, failed
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)


async def _when_deleted(cluster: Cluster, zookeeper: ZooKeeper, entry: Entry) -> Entry:
    """The entry once its deletion is complete, which takes a moment after the entry is there; Refused where a broker
    holds it up, or where it is not complete in time."""
    deadline = asyncio.get_running_loop().time() + cluster.timeout_s
    pause_s = 0.05
    while True:
        now = await asyncio.to_thread(trash.find, zookeeper, entry.topic_id)
        topic = await asyncio.to_thread(topics.find, zookeeper, entry.name)
        if now is None or now.state not in (trash.WHOLE, trash.DELETING):
            raise NoSuchThing(
                f"topic {entry.name!r} has just left the trash of {cluster}", hint="klog topic list --deleted -o wide"
            )
        is_registered = topic is not None and topic.topic_id == entry.topic_id
        if now.state == trash.WHOLE and not is_registered:
            return now
        live = {one.broker_id for one in await cluster.brokers()}
        away = {one for replicas in (topic.partitions.values() if topic else ()) for one in replicas} - live
        if away or asyncio.get_running_loop().time() + pause_s > deadline:
            raise _refused_half(cluster, entry, away)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)


def _refused_half(cluster: Cluster, entry: Entry, away: Iterable[int]) -> Refused:
    listed = ", ".join(map(str, sorted(away))) or "with its replicas"
    return Refused(
        f"topic {entry.name!r} is still being deleted on {cluster}: brokers {listed} must come back first",
        hint="its deletion is complete then, and it can be restored",
    )


async def restore_topic(cluster: Cluster, plan: RestorePlan, *, led: Count | None = None) -> RestoreRow:
    """Bring it back, and wait until its partitions have leaders, which ``led`` counts."""
    from klog.admin.topics import until_led
    from klog.client.blocking import error_of
    from klog.protocol.apis import ApiKey

    answer = await cluster.to_controller(
        ApiKey.RESTORE_TOPIC,
        0,
        refused=lambda answer: int(answer.error_code) == NotController.wire,
        topic_id=plan.topic_id,
        name=plan.row.topic,
    )
    wire = int(answer.error_code)
    if wire:
        raise error_of(wire, f"cannot restore topic {plan.row.was!r} on {cluster}: {answer.error_message}")
    await until_led(cluster, plan.row.topic, plan.row.partitions, led=led)
    return plan.row


async def purge_topics(
    cluster: Cluster, rows: Sequence[TopicDeletion], ids: Mapping[str, UUID], count: Count | None = None
) -> list[TopicDeletion]:
    """Remove topics that were just deleted from the trash, too, counted by ``count``; the rows, with what failed."""
    from klog.client.blocking import error_of
    from klog.protocol.apis import ApiKey

    purged: list[TopicDeletion] = []
    count = count or Count()
    for row in rows:
        count.done = len(purged)
        if row.error is not None or row.topic not in ids:
            purged.append(row)
            continue
        answer = await cluster.to_controller(
            ApiKey.PURGE_TOPIC,
            0,
            refused=lambda answer: int(answer.error_code) == NotController.wire,
            topic_id=ids[row.topic],
        )
        wire = int(answer.error_code)
        if wire in (0, UnknownTopicId.wire):  # without a trash nothing has to leave it
            purged.append(row)
        else:
            error = error_of(wire, f"{cluster}: the topic is deleted, and still in the trash: {answer.error_message}")
            purged.append(replace(row, error=error.code, message=error.message))
    return purged


async def ids_of(zookeeper: ZooKeeper, names: Sequence[str]) -> dict[str, UUID]:
    """The ids of topics that exist."""
    found = await asyncio.to_thread(topics.read_many, zookeeper, names, {})
    return {one.name: one.topic_id for one in found if one.topic_id is not None}


async def copies_of(
    cluster: Cluster, topic_ids: Sequence[UUID]
) -> tuple[Mapping[UUID, list[Copy]], Mapping[int, KlogError]]:
    """What the live brokers have of these topics in their trash, and why some of them do not say it."""
    brokers = list((await cluster.metadata([], fresh=True)).brokers)
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
