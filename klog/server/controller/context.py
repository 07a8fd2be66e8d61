"""What the controller knows of its cluster, and what follows from it. No I/O; event loop only.

Written from what is read in ZooKeeper and what brokers answer; every decision of `klog.replication.election` is asked
for here, so that one place says who counts as alive.

A registered broker is *refused* when its connection was lost and nobody listens where it did: it counts as dead. When
it answers after all, that verdict was false, and from then on only the end of its session counts against that very
incarnation (rule R6).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from klog.config import BrokerConfig, LogConfig
from klog.coordination.brokers import Registration
from klog.coordination.group_slots import SlotHolder
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.topics import Topic
from klog.names import TopicPartition
from klog.protocol.interbroker import ReplicaFacts
from klog.replication import election
from klog.replication.election import Decision, Nobody, Situation, Waiting

log = logging.getLogger(__name__)

UNKNOWN_INCARNATION = -1
"""Of a member of an ISR that was written without incarnations: it cannot have run without interruption."""


@dataclass
class Context:
    config: BrokerConfig
    registered: dict[int, Registration] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)
    """Broker id -> the incarnation that counts as dead, though its session lives."""
    trusted: set[int] = field(default_factory=set)
    """Incarnations that were refused once, falsely."""
    heard: dict[int, int] = field(default_factory=dict)
    """Broker id -> the incarnation with which a connection stands over which it has answered: it lives, now. A
    registration alone does not say so, as it outlives its broker."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Broker id -> the incarnation that is shutting down."""
    topics: dict[str, Topic] = field(default_factory=dict)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    first_epochs: dict[str, int] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    """Topics marked for deletion: nobody leads them any more."""
    facts: dict[int, dict[TopicPartition, ReplicaFacts]] = field(default_factory=dict)
    """Broker id -> what it has on its disks; no key for one that has not answered yet."""
    lost: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """Broker id -> its replicas that cannot be served: their disk is lost, or their log."""
    nobody: dict[TopicPartition, str] = field(default_factory=dict)
    """Why nobody may lead a partition, as it was last decided."""
    waits: dict[TopicPartition, float] = field(default_factory=dict)
    """Since when members of an in-sync set that crashed as a whole are waited for."""
    wait_again: Callable[[TopicPartition, float], None] | None = None
    """Told of a partition that has to be looked at again after so many seconds."""
    group_slots: dict[int, SlotHolder] = field(default_factory=dict)
    """Who coordinates the groups of each slot; without those that nobody has held yet."""

    # --- Who lives ---

    @property
    def live(self) -> dict[int, Registration]:
        return {one: found for one, found in self.registered.items() if self.is_live(one)}

    def is_live(self, broker_id: int) -> bool:
        found = self.registered.get(broker_id)
        return found is not None and self.refused.get(broker_id) != found.incarnation

    def is_registered(self, registration: Registration) -> bool:
        """Whether that incarnation is. Two reads of one may differ in the version of its fence, which is read first."""
        return self._now(registration.broker.broker_id) == registration.incarnation

    def incarnation(self, broker_id: int) -> int:
        return self.registered[broker_id].incarnation

    @property
    def racks(self) -> dict[int, str]:
        """Live broker id -> rack, "" without one: what placement asks for. Those that shut down are left out."""
        return {one: self.registered[one].broker.rack for one in self.staying}

    @property
    def staying(self) -> dict[int, int]:
        """Broker id -> incarnation of those that live and do not shut down."""
        return {
            one: found.incarnation for one, found in self.live.items() if self.leaving.get(one) != found.incarnation
        }

    # --- Partitions ---

    def partitions(self) -> Iterable[TopicPartition]:
        return (one for topic in self.topics.values() for one in topic.topic_partitions)

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        """In preferred order; while it is reassigned, those that come and those that go too."""
        return self.topics[name.topic].partitions[name.partition]

    def knows(self, name: TopicPartition) -> bool:
        topic = self.topics.get(name.topic)
        return topic is not None and name.partition in topic.partitions

    def hosted(self, broker_id: int) -> set[TopicPartition]:
        """The partitions that a broker has a replica of."""
        return {
            TopicPartition(topic.name, number)
            for topic in self.topics.values()
            for number, replicas in topic.partitions.items()
            if broker_id in replicas
        }

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig.of(self.config, self.overrides.get(topic, {}))

    def take_states(self, found: Mapping[TopicPartition, PartitionState | None]) -> None:
        """What was read of these partitions, or written; what is older than what is known is passed over."""
        for name, state in found.items():
            known = self.states.get(name)
            if state is None or (known is not None and known.version > state.version):
                continue
            if len(state.incarnations) != len(state.isr):
                state = replace(state, incarnations=(UNKNOWN_INCARNATION,) * len(state.isr))
            self.states[name] = state

    def forget_topic(self, topic: str) -> None:
        """It is deleted; one of the same name may be made."""
        for known in (self.topics, self.overrides, self.first_epochs):
            known.pop(topic, None)
        self.deleting.discard(topic)
        for partitions in (self.states, self.nobody, self.waits):
            for name in [name for name in partitions if name.topic == topic]:
                del partitions[name]
        for replicas in self.lost.values():
            replicas.difference_update([name for name in replicas if name.topic == topic])

    def offline_replicas(self, name: TopicPartition) -> tuple[int, ...]:
        return tuple(one for one in self.replicas(name) if not self.is_live(one) or name in self.lost.get(one, ()))

    # --- Decisions ---

    def situation(self, name: TopicPartition) -> Situation:
        replicas = self.replicas(name)
        topic_id = self.topics[name.topic].topic_id
        members = {*replicas, *(self.states[name].isr if name in self.states else ())}
        facts: dict[int, ReplicaFacts | None] = {}
        for one in members & self.facts.keys():
            there = self.facts[one].get(name)
            facts[one] = there if there is not None and there.topic_id == topic_id else None
        return Situation(
            live={one: self.incarnation(one) for one in members if self.is_live(one)},
            facts=facts,
            offline={one for one in members if name in self.lost.get(one, ())},
            leaving={one for one in members if one in self.leaving and self.leaving[one] == self._now(one)},
            heard={one for one in members if one in self.heard and self.heard[one] == self._now(one)},
            waited=name in self.waits and time.monotonic() - self.waits[name] >= self.restart_wait_s,
        )

    @property
    def restart_wait_s(self) -> float:
        return self.config.integer("unclean.restart.wait.ms") / 1000

    def _begin_to_wait(self, name: TopicPartition, found: Waiting) -> None:
        """From when the first of them is back; not anew when another one comes."""
        if self.nobody.get(name) != found.reason:
            log.warning("%s: nobody leads it yet: %s", name, found.reason)
        if name not in self.waits:
            self.waits[name] = time.monotonic()
            if self.wait_again is not None:
                self.wait_again(name, self.restart_wait_s)

    def _now(self, broker_id: int) -> int | None:
        found = self.registered.get(broker_id)
        return None if found is None else found.incarnation

    def decide(self, name: TopicPartition) -> Decision | None:
        """What the partition's state has to become, now that this is known; None: it is right as it is."""
        situation, state, replicas = self.situation(name), self.states.get(name), self.replicas(name)
        first_epoch = self.first_epochs.get(name.topic, 0)
        found: Decision | Nobody | None
        if state is None:
            found = election.new(replicas, situation, first_epoch=first_epoch)
        elif state.leader in situation.leaving or situation.leaving & set(state.isr):
            found = self._leaving(state, replicas, situation, name, first_epoch)
        else:
            found = self._settle(state, replicas, situation, name, first_epoch)
        if isinstance(found, Waiting):
            self._begin_to_wait(name, found)
        elif isinstance(found, Decision) and found.leader != NO_LEADER:
            self.waits.pop(name, None)
        if isinstance(found, Nobody):
            self.nobody[name] = found.reason
            return None
        if found is None or found.leader != NO_LEADER:
            self.nobody.pop(name, None)
        else:
            self.nobody[name] = found.reason
        return found

    def _settle(
        self, state: PartitionState, replicas: tuple[int, ...], situation: Situation, name: TopicPartition, first: int
    ) -> Decision | Nobody | None:
        allowed = self.log_config(name.topic).unclean_leader_election
        return election.settle(state, replicas, situation, unclean_allowed=allowed, first_epoch=first)

    def _leaving(
        self, state: PartitionState, replicas: tuple[int, ...], situation: Situation, name: TopicPartition, first: int
    ) -> Decision | Nobody | None:
        """First whatever is due to the dead, then to those who leave: one that cannot be replaced leads to its end."""
        settled = self._settle(state, replicas, situation, name, first)
        if settled is not None:
            return settled
        for broker_id in situation.leaving & set(state.isr):
            found = election.leaving(state, replicas, broker_id, situation)
            if isinstance(found, Decision):
                return found
        return None
