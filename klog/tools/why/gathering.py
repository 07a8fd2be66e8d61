"""What `klog why` looks at, asked once: the facts of `klog check`, and the events of the last week."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klog.admin.check_facts import gather
from klog.errors import KlogError, NoSuchThing, UsageError
from klog.names import TopicPartition
from klog.tools.events import Event, EventFilter, read_events
from klog.tools.why.causes import KINDS, Known, Step, knows_broker, why_broker, why_partition, why_topic

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.positions import Position

KIND_WORDS = ("topic", "partition", "broker")


async def why(
    cluster: Cluster,
    bootstrap: str | None,
    zookeeper: str | None,
    subject: list[str],
    since: Position,
    timeout_s: float,
) -> list[Step]:
    """The steps from the subject's symptom to its cause; none where nothing is wrong."""
    kind, name = _parsed(subject)
    facts = await gather(bootstrap, zookeeper, ("topics", "brokers"), timeout_s=timeout_s)
    if facts.metadata is None:
        raise NoSuchThing(f"no broker answers: {facts.no_brokers}", hint="`klog check`")
    events: list[Event] = []
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
    events.sort(key=lambda event: str(event.get("ts")))
    return answer(Known(facts, facts.metadata, events, no_events), kind, name)


def answer(known: Known, kind: str | None, name: str) -> list[Step]:
    """Look the subject up, and find its cause. NoSuchThing where there is no such subject."""
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
    raise NoSuchThing(
        f"the cluster has no {kind or 'topic, partition or broker'} {name!r}",
        hint="`klog topic list`, `klog partition list` and `klog broker list` show what there is",
    )


def _number(text: str) -> int:
    """-1 where it is not a number that ids and partitions can have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _parsed(subject: list[str]) -> tuple[str | None, str]:
    if len(subject) == 1:
        return None, subject[0]
    if len(subject) == 2 and subject[0] in KIND_WORDS:
        return subject[0], subject[1]
    raise UsageError(
        f"expected topic T, partition T-P, broker ID or a name, got {' '.join(subject)!r}",
        hint="for groups: `klog group describe` and `klog group lag`",
    )
