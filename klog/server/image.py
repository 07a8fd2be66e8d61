"""A broker's image of its cluster: brokers, topics, partitions, coordinators, the controller. Event loop only.

The registries in ZooKeeper are the truth. This is their last known state, from which any broker answers Metadata
without a request to another one (the paper's rule that any broker can route a client). `apply` updates it by the
controller's UpdateMetadata, on the controller's own broker too. `learn` updates it by what a leader reads in ZooKeeper
about its own partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from klog.coordination.group_slots import SlotHolder, slot_of
from klog.names import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A live broker, with its address for clients."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    incarnation: int = -1
    inter_host: str = ""
    inter_port: int = -1
    """The port for other brokers."""
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Listener -> its address for clients."""

    @property
    def inter_address(self) -> tuple[str, int]:
        """The advertised address for other brokers."""
        return (self.inter_host, self.inter_port) if self.inter_port > 0 else (self.host, self.port)

    def address_of(self, listener: str) -> tuple[str, int] | None:
        """The address for clients of that listener; None if it has no such listener.

        "" is for requests without a listener. A broker without endpoints is an older one, and has one address.
        """
        if not listener or not self.endpoints:
            return self.host, self.port
        return self.endpoints.get(listener)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """``leader``: -1 for none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas whose broker is dead, or whose disk is offline."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


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
    group_slots: dict[int, SlotHolder] = field(default_factory=dict)
    """Replaced as a whole; empty until the controller has assigned the slots."""
    known: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)
    """Set after the controller's first update."""
    news: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)
    """Set at the next update of the controller, and then replaced by a new event."""

    def coordinator(self, group: str) -> BrokerImage | None:
        """The live coordinator of this group; None while its slot has none."""
        holder = self.group_slots.get(slot_of(group))
        if holder is None:
            return None
        found = self.brokers.get(holder.broker_id)
        return found if found is not None and found.incarnation == holder.incarnation else None


def learn(image: ClusterImage, name: TopicPartition, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> None:
    """Note a later epoch than the controller's last update has, so that clients are not sent back to this broker."""
    topic = image.topics.get(name.topic)
    known = None if topic is None else topic.partitions.get(name.partition)
    if topic is not None and known is not None and leader_epoch > known.leader_epoch:
        later = replace(known, leader=leader, leader_epoch=leader_epoch, isr=isr)
        image.topics[name.topic] = replace(topic, partitions={**topic.partitions, name.partition: later})


def apply(image: ClusterImage, update: Any) -> set[str]:
    """Apply an UpdateMetadata request; returns the topics whose own settings it may have changed.

    A topic under another UUID replaces the known one; partitions that are not named stay unchanged.
    """
    image.controller_id = update.controller_id
    image.brokers = {
        one.broker_id: BrokerImage(
            one.broker_id,
            one.host,
            one.port,
            one.rack,
            one.incarnation,
            one.inter_host,
            one.inter_port,
            {each.listener: (each.host, each.port) for each in one.endpoints},
        )
        for one in update.brokers
    }
    if update.slots:
        image.group_slots = {
            one.slot: SlotHolder(one.slot, one.broker_id, one.incarnation, one.term, one.version)
            for one in update.slots
        }
    if update.is_full:
        for name in image.topics.keys() - {topic.name for topic in update.topics}:
            del image.topics[name]
    changed = set()
    for topic in update.topics:
        known = image.topics.get(topic.name)
        if topic.is_deleted:
            image.topics.pop(topic.name, None)
            continue
        partitions = {
            one.partition_index: PartitionImage(
                one.leader, one.leader_epoch, one.replicas, one.isr, one.offline, one.adding, one.removing
            )
            for one in topic.partitions
        }
        settings = {one.name: one.value for one in topic.settings}
        if known is None or known.topic_id != topic.topic_id or known.overrides != settings:
            changed.add(topic.name)
        if known is not None and known.topic_id == topic.topic_id:
            partitions = {**known.partitions, **partitions}
        image.topics[topic.name] = TopicImage(topic.name, topic.topic_id, partitions, settings)
    image.news.set()
    image.news = asyncio.Event()
    return changed
