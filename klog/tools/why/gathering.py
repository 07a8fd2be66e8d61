"""What a chain of causes is found in, asked once: the snapshot, and the events of the last week."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from klog.admin import acts, group_lag, groups
from klog.admin.acts import ActRow
from klog.admin.health.rules import judge
from klog.admin.health.snapshot import Snapshot, Where, take_snapshot
from klog.admin.metrics import read_metrics
from klog.admin.settings import topic_values
from klog.client import leader_requests, resolve
from klog.client.cluster import Cluster
from klog.client.positions import parse_position
from klog.coordination import group_slots
from klog.coordination import groups as registry
from klog.coordination.group_states import COORDINATOR
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import GroupIdNotFound, KlogError, NoSuchThing, OffsetOutOfRange, Refused, UsageError
from klog.names import TopicPartition, near_hint
from klog.render.values import moment
from klog.tools.events import (
    SUBJECT_KINDS,
    EventFilter,
    check_subject,
    check_there,
    events_since,
    filter_of,
    in_turn,
    last_addresses,
)
from klog.tools.where import locate
from klog.tools.why.causes import Thing, thing_of, why_gone, why_thing
from klog.tools.why.group_causes import JOINING, GroupFacts, why_group
from klog.tools.why.message_causes import RETENTION_BYTES, RETENTION_MS, MessageFacts, why_message
from klog.tools.why.produce_causes import PATTERNS, Reading, pace, why_slow
from klog.tools.why.refusals import DENIED, THROTTLED, why_denied, why_throttled
from klog.tools.why.steps import EXPECTED, KINDS, SINCE, Known, Step

WATCHED_S: Final = 1.0
"""How long brokers' times are watched for slow produce requests."""
OFFSET_MAX: Final = (1 << 63) - 1
NAMES_MAX: Final = 10_000
"""Compared with one that is not there."""
EVENTS_MAX: Final = 50_000
"""The last ones count."""


class Subject(NamedTuple):
    """What is asked about; ``kind`` None: looked up. With an offset it is a message of a partition."""

    kind: str | None
    name: str
    offset: int | None = None


async def why(
    cluster: Cluster,
    zookeeper: Callable[[], Awaitable[ZooKeeper]],
    where: Where,
    subject: Subject,
) -> list[Step]:
    """The steps from the subject's symptom to its cause; none where nothing is wrong, and without ``do`` where there is
    only something to say."""
    kind, name, offset = subject
    if kind == DENIED:
        return await why_denied(cluster, name or None)
    if kind == THROTTLED:
        return await why_throttled(cluster, name or None)
    snapshot = await take_snapshot(where, ("topics", "brokers"), last_addresses)
    if not snapshot.answers:
        raise NoSuchThing(f"no broker answers: {snapshot.no_brokers}", hint="`klog status`")
    known = await known_of(cluster, zookeeper, snapshot, where.timeout_s)
    there = thing_of(known, kind, name)
    if offset is not None and isinstance(there, TopicPartition):
        return why_message(known, await message_facts(cluster, there, offset))
    if there is not None:
        found = why_thing(known, there)
        if any(one.do is not None for one in found):
            return found
        slow = await _slow(cluster, known, there)
        return slow or [*found, *found_about(known, kind, name)]
    if kind in (None, "group"):
        session = await zookeeper()
        try:
            return why_group(known, await group_facts(cluster, session, name, snapshot.silent))
        except GroupIdNotFound:
            pass
    if kind in (None, "topic"):
        gone = why_gone(known, name)
        if gone:
            return gone
    if kind is not None:
        await check_there(cluster, zookeeper, filter_of([kind, name], ()))
    topics, named = known.metadata.topics, await asyncio.to_thread(registry.names, await zookeeper())
    raise NoSuchThing(
        f"the cluster has no topic, partition, broker or group {name!r}",
        hint=near_hint(
            name, [*topics, *named][:NAMES_MAX], "`klog topic list` and `klog group list` show what there is"
        ),
    )


async def known_of(
    cluster: Cluster,
    zookeeper: Callable[[], Awaitable[ZooKeeper]],
    snapshot: Snapshot,
    timeout_s: float,
) -> Known:
    """The snapshot, with the events and acts that causes are found in."""
    since = parse_position(SINCE)
    events, no_events = await events_since(
        cluster, EventFilter(kinds=KINDS), since, most=EVENTS_MAX, within_s=timeout_s
    )
    about: list[ActRow] = []
    if snapshot.no_zookeeper is None:
        with suppress(KlogError):  # an act is one more step, and no chain needs it
            about = await asyncio.to_thread(acts.list_acts, await zookeeper())
    return Known(snapshot, in_turn(events), no_events, about)


def found_about(known: Known, kind: str | None, name: str) -> list[Step]:
    """What `klog status` finds about a topic or a broker, and a ZooKeeper that is down: nothing fails over then."""
    named = ["zookeeper", *(f"{one} {name}" for one in ("topic", "broker") if kind in (None, one))]
    return [
        known.step(f"{one.what}: {one.found}", f"{EXPECTED}{one.expected}", one.do)
        for one in judge(known.snapshot)
        if one.what.partition(", ")[0] in named
    ]


async def _slow(cluster: Cluster, known: Known, there: Thing) -> list[Step]:
    """Why produce requests to the leaders of what was asked about are slow; nothing for plain Kafka."""
    if not cluster.is_klog:
        return []
    leaders, replicas = _leaders(known, there)
    brokers = (leaders | replicas) - known.snapshot.silent.keys()
    before = await asyncio.gather(*(_reading(cluster, one) for one in brokers))
    await asyncio.sleep(WATCHED_S)
    after = await asyncio.gather(*(_reading(cluster, one) for one in brokers))
    paces = [pace(*one) for one in zip(brokers, before, after, strict=True) if all(one[1:])]
    return why_slow(known, leaders, replicas, paces)


def _leaders(known: Known, there: Thing) -> tuple[set[int], set[int]]:
    topics = known.metadata.topics
    if isinstance(there, str):
        partitions = list(topics[there].partitions.values())
    elif isinstance(there, TopicPartition):
        partitions = [topics[there.topic].partitions[there.partition]]
    else:
        partitions = [one for one in known.metadata.partitions if one.leader == there]
    leaders = {one.leader for one in partitions if one.leader is not None}
    return leaders, {broker for one in partitions for broker in one.isr}


async def _reading(cluster: Cluster, broker: int) -> Reading:
    """Empty where the broker does not answer."""
    try:
        rows = await read_metrics(cluster, PATTERNS, broker=broker)
    except KlogError:  # it has gone
        return {}
    return {
        (row.name, row.labels.get("request") or row.labels.get("delayedOperation") or ""): row.value
        for row in rows
        if row.value is not None and "quantile" not in row.labels
    }


async def group_facts(cluster: Cluster, session: ZooKeeper, name: str, silent: Collection[int]) -> GroupFacts:
    """What is known of a group; ``silent`` brokers are not asked about it. GroupIdNotFound."""
    rows, phases, (group, coordinator) = await asyncio.gather(
        group_lag.lag(cluster, session, [name]),
        groups.phases(cluster, silent),
        asyncio.to_thread(_registered, session, name),
    )
    by_broker = group.state.group_protocol == COORDINATOR
    phase = phases.get(name, group.phase) if by_broker else group.phase
    if not by_broker or coordinator is None:
        return GroupFacts(group, phase, None, rows)
    is_asked = phase in JOINING and coordinator not in silent
    awaited = await groups.heartbeats_ms(cluster, coordinator, name) if is_asked else {}
    return GroupFacts(group, phase, coordinator, rows, awaited)


def _registered(session: ZooKeeper, name: str) -> tuple[registry.Group, int | None]:
    registry.check_known(session, [name])
    holder = group_slots.read_all(session).get(group_slots.slot_of(name))
    return registry.read(session, name), None if holder is None else holder.broker_id


async def message_facts(cluster: Cluster, name: TopicPartition, offset: int) -> MessageFacts:
    """What the leader says of an offset. Refused on plain Kafka."""
    if not cluster.is_klog:
        raise Refused("this is not a klog cluster: only klog shows where a message lies")
    values = (await topic_values(cluster, [name.topic], [RETENTION_MS, RETENTION_BYTES]))[name.topic]
    try:
        bounds = (await resolve.bounds(cluster, [name]))[name]
        times = (await cluster.to_leaders({name: [bounds.start]}, leader_requests.message_times))[name]
        try:
            place = await locate(cluster, name, offset)
        except OffsetOutOfRange:
            place = None
    except KlogError as error:
        return MessageFacts(name, offset, failed=error.message)
    first = times.get(bounds.start) if times is not None and not isinstance(times, KlogError) else None
    when = None if first is None or first < 0 else moment(first)  # text beyond the years that a time can have
    return MessageFacts(
        name, offset, bounds.start, bounds.end, place, values, when if isinstance(when, datetime) else None
    )


def parsed(subject: list[str]) -> Subject:
    """What the words ask about. UsageError."""
    if subject[0] in (DENIED, THROTTLED) and len(subject) <= 2:
        return Subject(subject[0], subject[1] if len(subject) == 2 else "")
    if len(subject) == 1:
        return Subject(None, subject[0])
    if len(subject) == 2 and subject[0] in SUBJECT_KINDS:
        check_subject(*subject)
        return Subject(subject[0], subject[1])
    if len(subject) == 3 and subject[0] == "message":
        text = subject[2]
        check_subject("partition", subject[1])
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= OFFSET_MAX):
            raise UsageError(f"an offset must be between 0 and {OFFSET_MAX}, got {text!r}")
        return Subject("partition", subject[1], int(text))
    found = " ".join(subject)
    raise UsageError(
        f"expected topic T, partition T-P, group G, broker ID, message T-P OFFSET, "
        f"denied [PRINCIPAL], throttled [NAME] or a name, got {found!r}",
        hint="for example `klog status message orders-0 1234`",
    )
