"""What `klog why` looks at, asked once: the facts of `klog check`, and the events of the last week."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from klog.admin import acts, group_lag, groups
from klog.admin.check_facts import gather
from klog.coordination import group_slots
from klog.coordination import groups as registry
from klog.coordination.group_states import COORDINATOR
from klog.errors import GroupIdNotFound, KlogError, NoSuchThing, UsageError
from klog.names import TopicPartition
from klog.protocol.consumer_protocol import subscribed_topics
from klog.tools.events import Event, EventFilter, read_events
from klog.tools.why.causes import knows_broker, why_broker, why_gone, why_partition, why_topic
from klog.tools.why.group_causes import GroupFacts, why_group
from klog.tools.why.steps import KINDS, Known, Step

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.positions import Position
    from klog.coordination.zookeeper import ZooKeeper

KIND_WORDS: Final = ("topic", "partition", "group", "broker")
EVENTS_MAX: Final = 50_000
"""The last ones count."""


async def why(
    cluster: Cluster,
    zookeeper: Callable[[], Awaitable[ZooKeeper]],
    addresses: tuple[str | None, str | None],
    subject: list[str],
    since: Position,
    timeout_s: float,
) -> list[Step]:
    """The steps from the subject's symptom to its cause; none where nothing is wrong, and without ``do`` where there is
    only something to say. ``addresses``: of brokers and of ZooKeeper, as they were given."""
    kind, name = _parsed(subject)
    facts = await gather(*addresses, ("topics", "brokers"), timeout_s=timeout_s)
    if facts.metadata is None:
        raise NoSuchThing(f"no broker answers: {facts.no_brokers}", hint="`klog check`")
    events, no_events = await _events(cluster, since, timeout_s)
    known = Known(facts, facts.metadata, events, no_events)
    if kind != "group":
        found = find(known, kind, name)
        if found is not None:
            return found
    if kind in (None, "group"):
        session = await zookeeper()
        try:
            return why_group(known, await group_facts(cluster, session, name))
        except GroupIdNotFound:
            pass
    if kind in (None, "topic"):
        session = await zookeeper()
        about = await asyncio.to_thread(acts.list_acts, session, topic=name)
        gone = why_gone(Known(facts, facts.metadata, events, no_events, about), name)
        if gone:
            return gone
    raise NoSuchThing(
        f"the cluster has no {kind or 'topic, partition, broker or group'} {name!r}",
        hint="`klog topic list`, `klog partition list`, `klog broker list` and `klog group list` show what there is",
    )


def find(known: Known, kind: str | None, name: str) -> list[Step] | None:
    """Look a topic, partition or broker up, and find its cause; None where there is no such subject."""
    topics = known.metadata.topics
    topic, _, number = name.rpartition("-")
    if kind in (None, "topic") and name in topics:
        return why_topic(known, name)
    partition = _number(number)
    if kind in (None, "partition") and topic in topics and partition in topics[topic].partitions:
        return why_partition(known, TopicPartition(topic, partition))
    broker = _number(name)
    if kind in (None, "broker") and broker >= 0 and knows_broker(known, broker):
        return why_broker(known, broker)
    return None


async def group_facts(cluster: Cluster, session: ZooKeeper, name: str) -> GroupFacts:
    """What is known of a group. GroupIdNotFound."""
    rows, phases, (group, coordinator) = await asyncio.gather(
        group_lag.lag(cluster, session, [name]), groups.phases(cluster), asyncio.to_thread(_registered, session, name)
    )
    by_broker = group.state.group_protocol == COORDINATOR
    phase = phases.get(name, group.phase) if by_broker else group.phase
    return GroupFacts(group, phase, coordinator if by_broker else None, rows, topics_of(group))


def topics_of(group: registry.Group) -> frozenset[str]:
    """The topics that a group's members subscribe to; of consumers that coordinate through ZooKeeper, those that they
    own partitions of."""
    found = {name.topic for name in group.readers}
    if group.state.group_protocol == COORDINATOR and group.state.protocol_type == "consumer":
        for one in group.state.members:
            try:
                found |= set(subscribed_topics(one.metadata))
            except KlogError:
                continue  # a format that only its members understand
    return frozenset(found)


def _registered(session: ZooKeeper, name: str) -> tuple[registry.Group, int | None]:
    registry.check_known(session, [name])
    holder = group_slots.read_all(session).get(group_slots.slot_of(name))
    return registry.read(session, name), None if holder is None else holder.broker_id


async def _events(cluster: Cluster, since: Position, timeout_s: float) -> tuple[list[Event], str | None]:
    """The events that causes are found in, by their time; and why there are none."""
    events: deque[Event] = deque(maxlen=EVENTS_MAX)
    no_events: str | None = None
    try:
        async with asyncio.timeout(timeout_s):
            await read_events(
                cluster, EventFilter(kinds=KINDS), since, events.append, follow=False, note=lambda text: None
            )
    except KlogError as error:
        no_events = error.message
    except TimeoutError:
        no_events = f"no end after {timeout_s:g} s"
    return sorted(events, key=lambda event: str(event.get("ts"))), no_events


def _number(text: str) -> int:
    """-1 where it is not a number that ids and partitions can have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _parsed(subject: list[str]) -> tuple[str | None, str]:
    if len(subject) == 1:
        return None, subject[0]
    if len(subject) == 2 and subject[0] in KIND_WORDS:
        return subject[0], subject[1]
    raise UsageError(f"expected topic T, partition T-P, group G, broker ID or a name, got {' '.join(subject)!r}")
