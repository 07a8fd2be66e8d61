"""From facts to the steps that lead to a cause. Nothing here asks the cluster anything.

The first step is the symptom, the last one the cause with what helps. Without steps nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from klog.coordination import paths
from klog.names import TopicPartition
from klog.tools.events import Event, EventFilter, row

if TYPE_CHECKING:
    from klog.admin.check_facts import Facts
    from klog.client.metadata import Metadata, PartitionNode

HANGS_DO: Final = (
    "its process lives: read its log; `kill -CONT PID` if it was stopped, otherwise `kill -9 PID` and start it"
)
LEADER_KINDS: Final = ("leader-elected", "unclean-election", "partition-offline")
ISR_KINDS: Final = ("isr-changed", "isr-expanded", "isr-shrunk")
BROKER_KINDS: Final = ("broker-up", "broker-down")
KINDS: Final = (*LEADER_KINDS, *ISR_KINDS, *BROKER_KINDS)
"""The events that causes are found in."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from the symptom to the cause. ``do`` is what helps; only the last step has it."""

    step: int
    time: datetime | None
    what: str
    evidence: str
    do: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class Known:
    """What was gathered; ``events`` in the order of their time. ``no_events``: why they could not be read."""

    facts: Facts
    metadata: Metadata
    events: Sequence[Event] = ()
    no_events: str | None = None


def why_partition(known: Known, name: TopicPartition) -> list[Step]:
    """Why the partition has no leader, or fewer in-sync replicas than replicas."""
    one = known.metadata.topics[name.topic].partitions[name.partition]
    return _numbered([] if _is_well(one) else list(_partition(known, name, one)))


def why_topic(known: Known, topic: str) -> list[Step]:
    """The worst of its partitions; the first step says how many have the trouble."""
    bad = [one for one in known.metadata.topics[topic].partitions.values() if not _is_well(one)]
    if not bad:
        return []
    worst = min(bad, key=lambda one: (one.leader is not None, len(one.isr) - len(one.replicas), one.partition))
    return why_partition(known, TopicPartition(topic, worst.partition))


def why_broker(known: Known, broker: int) -> list[Step]:
    """Why the broker does not serve."""
    if broker in known.metadata.brokers and broker not in known.facts.silent:
        return []
    return _numbered(list(_broker(known, broker)))


def knows_broker(known: Known, broker: int) -> bool:
    """Whether the cluster has, or had, a broker of this id."""
    topics = known.metadata.topics.values()
    return (
        broker in known.metadata.brokers
        or any(broker in one.replicas for topic in topics for one in topic.partitions.values())
        or any(event.get("id") == broker for event in known.events)
    )


def _is_well(one: PartitionNode) -> bool:
    return one.leader is not None and not one.is_under_replicated


def _numbered(steps: Sequence[Step]) -> list[Step]:
    return [Step(number, one.time, one.what, one.evidence, one.do) for number, one in enumerate(steps, 1)]


def _partition(known: Known, name: TopicPartition, one: PartitionNode) -> Iterator[Step]:
    at = datetime.fromtimestamp(known.facts.now_ms / 1000, UTC)
    offline = one.leader is None
    what = "has no leader" if offline else f"has {len(one.isr)} of {len(one.replicas)} replicas in sync"
    evidence = f"metadata: replicas {_listed(one.replicas)}, in-sync {_listed(one.isr)}"
    yield Step(0, at, f"{name.topic}-{name.partition} {what}", evidence)
    event = _last(known, EventFilter(name.topic, name.partition, kinds=LEADER_KINDS if offline else ISR_KINDS))
    if event is not None:
        yield _told(event)
    suspects = one.isr if offline else [broker for broker in one.replicas if broker not in one.isr]
    down = [broker for broker in suspects if broker not in known.metadata.brokers or broker in known.facts.silent]
    if down:
        yield from _broker(known, down[0])
    elif offline:
        do = "read the controller's log: `klog broker list` shows which broker that is"
        yield Step(0, None, "the cause is not known: every in-sync replica's broker answers", "metadata", do)
    else:
        do = f"wait until it caught up; `klog partition list {name.topic} --under-replicated` shows it"
        yield Step(0, None, f"broker {_listed(suspects)} answers, and is behind the leader", "metadata", do)


def _broker(known: Known, broker: int) -> Iterator[Step]:
    facts = known.facts
    if facts.registered is not None and broker not in facts.registered:
        yield Step(0, None, f"broker {broker} is not registered", f"ZooKeeper: no {paths.broker(broker)}")
    event = _last(known, EventFilter(broker=broker, kinds=BROKER_KINDS))
    reason = None
    if event is not None and event.get("kind") == "broker-down":
        reason = _told(event)
        yield Step(0, reason.time, f"broker {broker} went down", reason.evidence)
    elif known.no_events is not None:
        yield Step(0, None, "when it went down is not known", f"events could not be read: {known.no_events}")
    time = reason.time if reason is not None else None
    address = facts.hung.get(broker) or _address(known, broker)
    if broker in facts.hung or address in facts.hung_addresses:
        evidence = f"{address} takes connections and does not answer"
        yield Step(0, time, f"broker {broker} hangs", evidence, HANGS_DO)
    elif broker in facts.silent:
        do = "`klog check brokers`"
        yield Step(0, time, f"broker {broker} does not answer", facts.silent[broker], do)
    else:
        do = f"start broker {broker}"
        yield Step(0, time, f"broker {broker} is dead", "metadata: not among the live brokers", do)


def _address(known: Known, broker: int) -> str | None:
    """Where the broker was last registered, by its event."""
    events = [one for one in known.events if one.get("kind") == "broker-up" and one.get("id") == broker]
    return f"{events[-1].get('host')}:{events[-1].get('port')}" if events else None


def _last(known: Known, chosen: EventFilter) -> Event | None:
    return next((event for event in reversed(known.events) if chosen.takes(event)), None)


def _told(event: Event) -> Step:
    shown = row(event)
    return Step(0, shown.time, shown.what, f"event {shown.kind}" + (f": {shown.reason}" if shown.reason else ""))


def _listed(numbers: Sequence[Any]) -> str:
    return ",".join(str(one) for one in numbers) or "none"
