"""The controller's knowledge of its cluster, and decisions from it. No I/O; event loop only.

It comes from ZooKeeper and from the brokers' answers. Every decision of `klog.replication.leader_election` is called
here, so that one place defines which brokers count as alive.

A registered broker is *refused* when its connection was lost and its address refuses connections: it counts as dead. If
it answers after all, that was wrong, and from then on only the end of its session makes that incarnation dead (rule
R6).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from klog.config import BrokerConfig, LogConfig
from klog.config.topic import may_be_led_uncleanly
from klog.coordination.brokers import Registration
from klog.coordination.group_slots import SlotHolder
from klog.coordination.partition_states import NO_LEADER, UNKNOWN_INCARNATION, PartitionState
from klog.coordination.topics import Topic
from klog.names import TopicPartition
from klog.protocol.interbroker import ReplicaFacts
from klog.replication import leader_election
from klog.replication.leader_election import Decision, ElectionInput, NoLeader, Waiting
from klog.replication.placement import Site

log = logging.getLogger(__name__)


class TopicTable(dict[str, Topic]):
    """Name -> topic. Change it by assignment, ``del`` and ``pop`` only, which also update `hosted`.

    With 200,000 partitions a search through all takes 20 ms, and each of 1,000 brokers that comes, goes or answers
    needs one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hosted: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
        """Broker id -> topic -> partitions of which the broker has a replica."""

    def hosted(self, broker_id: int) -> set[TopicPartition]:
        """The partitions of which the broker has a replica."""
        there = self._hosted.get(broker_id, {})
        return {TopicPartition(topic, number) for topic, numbers in there.items() for number in numbers}

    def __setitem__(self, name: str, topic: Topic) -> None:
        known = self.get(name)
        if known is None or known.partitions != topic.partitions:
            self._forget(name)
            for number, replicas in topic.partitions.items():
                for broker_id in replicas:
                    self._hosted[broker_id].setdefault(name, []).append(number)
        super().__setitem__(name, topic)

    def __delitem__(self, name: str) -> None:
        self._forget(name)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        """As a dict's."""
        self._forget(name)
        return super().pop(name, *default)

    def _forget(self, name: str) -> None:
        known = self.get(name)
        if known is None:
            return
        for broker_id in {one for replicas in known.partitions.values() for one in replicas}:
            del self._hosted[broker_id][name]
            if not self._hosted[broker_id]:
                del self._hosted[broker_id]

    def update(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("topics are assigned one by one")

    setdefault = popitem = clear = __ior__ = update


@dataclass(slots=True)
class KnownBroker:
    """A registered incarnation of a broker, and what is known of it."""

    registration: Registration
    is_heard: bool = False
    """It has answered over a connection that is still open, and so is alive. A registration alone proves nothing, as it
    outlives its broker."""
    is_refused: bool = False
    """It counts as dead, though its session lives."""
    is_trusted: bool = False
    """It was refused once, and answered later."""
    answered_ms: int | None = None
    """When it last answered a request."""
    facts: dict[TopicPartition, ReplicaFacts] | None = None
    """The replicas on its disks; None until it has answered."""
    lost: set[TopicPartition] = field(default_factory=set)
    """Its replicas that cannot serve: their disk is offline, or their log lost."""

    @property
    def incarnation(self) -> int:
        return self.registration.incarnation


@dataclass
class Context:
    """``now_s``: a monotonic clock."""

    config: BrokerConfig
    now_s: Callable[[], float]
    brokers: dict[int, KnownBroker] = field(default_factory=dict)
    """The registered brokers."""
    ever_registered: set[int] = field(default_factory=set)
    """Brokers that were ever registered. Any other broker id has never had a log of this cluster."""
    leaving: set[int] = field(default_factory=set)
    """Brokers that are shutting down."""
    left: set[int] = field(default_factory=set)
    """Brokers that had shut down before this term."""
    how_lost: dict[int, str] = field(default_factory=dict)
    """Broker id -> how it was last lost, and when; for the reasons of decisions."""
    topics: TopicTable = field(default_factory=TopicTable)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    first_epochs: dict[str, int] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    reread: set[str] = field(default_factory=set)
    """Topics with new states since the last look of `MetadataUpdates`, which empties it."""
    deleting: dict[str, set[tuple[TopicPartition, int]]] = field(default_factory=dict)
    """Topics marked for deletion, which have no leaders -> their replicas that are not deleted yet: (partition,
    broker)."""
    deleted: dict[str, Topic] = field(default_factory=dict)
    """Topics with a delayed deletion: not among ``topics``."""
    leaderless: dict[TopicPartition, str] = field(default_factory=dict)
    """Why a partition has no leader, by the last decision."""
    waits: dict[TopicPartition, float] = field(default_factory=dict)
    """Since when the controller waits for members of an ISR that crashed as a whole."""
    wait_again: Callable[[TopicPartition, float], None] | None = None
    """Called with a partition to decide again, and the seconds until then."""
    stray: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Partition -> brokers with a log of it and no replica."""
    group_slots: dict[int, SlotHolder] = field(default_factory=dict)
    """The coordinator of each slot; without slots that never had one."""

    # --- live brokers ---

    @property
    def live(self) -> dict[int, Registration]:
        return {one: known.registration for one, known in self.brokers.items() if not known.is_refused}

    def is_live(self, broker_id: int) -> bool:
        known = self.brokers.get(broker_id)
        return known is not None and not known.is_refused

    def known(self, registration: Registration) -> KnownBroker | None:
        """What is known of that incarnation; None if it is not registered. Two reads may differ in the version of its
        fence, which is read first."""
        known = self.brokers.get(registration.broker.broker_id)
        return known if known is not None and known.incarnation == registration.incarnation else None

    def facts_of(self, broker_id: int) -> Mapping[TopicPartition, ReplicaFacts]:
        """The known replicas on a broker's disks."""
        known = self.brokers.get(broker_id)
        return {} if known is None or known.facts is None else known.facts

    @property
    def sites(self) -> dict[int, Site]:
        """Live broker id -> its rack and host; without brokers that shut down."""
        found = {one: self.brokers[one].registration.broker for one in self.staying}
        return {one: Site(broker.rack, broker.host) for one, broker in found.items()}

    @property
    def staying(self) -> dict[int, int]:
        """Live broker id -> incarnation; without brokers that shut down."""
        return {one: found.incarnation for one, found in self.live.items() if one not in self.leaving}

    # --- partitions ---

    def partitions(self) -> Iterable[TopicPartition]:
        return (one for topic in self.topics.values() for one in topic.topic_partitions)

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        """In preferred order; during a reassignment the new and the old ones."""
        return self.topics[name.topic].partitions[name.partition]

    def knows(self, name: TopicPartition) -> bool:
        topic = self.topics.get(name.topic)
        return topic is not None and name.partition in topic.partitions

    def hosted(self, broker_id: int) -> set[TopicPartition]:
        """The partitions of which a broker has a replica."""
        return self.topics.hosted(broker_id)

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig.of(self.config.of_topic(topic), self.overrides.get(topic, {}))

    def take_states(self, found: Mapping[TopicPartition, PartitionState | None]) -> None:
        """Store states that were read or written; older ones than the known are ignored."""
        for name, state in found.items():
            known = self.states.get(name)
            if state is None or (known is not None and known.version > state.version):
                continue
            if len(state.incarnations) != len(state.isr):
                state = replace(state, incarnations=(UNKNOWN_INCARNATION,) * len(state.isr))
            self.states[name] = state
            self.reread.add(name.topic)

    def add_topic(self, topic: Topic, settings: dict[str, str], first_epoch: int) -> None:
        """A topic is created, restored or found. ``first_epoch``: of its leaders (rule L10)."""
        self.deleted.pop(topic.name, None)
        self.topics[topic.name] = topic
        self.overrides[topic.name] = settings
        self.first_epochs[topic.name] = first_epoch

    def hide_topic(self, topic: str) -> None:
        """Hide a topic until it is restored or purged."""
        self.topics.pop(topic, None)
        for known in (self.overrides, self.first_epochs):
            known.pop(topic, None)
        for partitions in (self.states, self.leaderless, self.waits):
            for name in [name for name in partitions if name.topic == topic]:
                del partitions[name]

    def begin_deletion(self, topic: Topic) -> None:
        """The topic is marked for deletion. Brokers that were never registered have no replica, though a topic written
        into ZooKeeper may name them."""
        self.topics[topic.name] = topic
        self.deleting[topic.name] = {
            (name, broker_id)
            for name in topic.topic_partitions
            for broker_id in topic.partitions[name.partition]
            if broker_id in self.ever_registered
        }

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic; another of the same name may be created."""
        self.hide_topic(topic)
        self.deleting.pop(topic, None)
        for known in self.brokers.values():
            known.lost.difference_update([name for name in known.lost if name.topic == topic])

    def offline_replicas(self, name: TopicPartition) -> tuple[int, ...]:
        return tuple(one for one in self.replicas(name) if not self.is_live(one) or name in self.brokers[one].lost)

    def find_stray_logs(self, broker_id: int) -> set[TopicPartition]:
        """A broker has described its disks: the partitions of which it has a log and no replica."""
        for brokers in self.stray.values():
            brokers.discard(broker_id)
        found = {name for name in self.facts_of(broker_id) if self.is_stray(broker_id, name)}
        for name in found:
            self.stray[name].add(broker_id)
        return found

    def is_stray(self, broker_id: int, name: TopicPartition) -> bool:
        """Whether the broker's log belongs to this very topic, and the broker has no replica of the partition."""
        if not self.knows(name) or name.topic in self.deleting or broker_id in self.replicas(name):
            return False
        facts = self.facts_of(broker_id).get(name)
        return facts is not None and facts.topic_id == self.topics[name.topic].topic_id

    # --- decisions ---

    def election_input(self, name: TopicPartition) -> ElectionInput:
        replicas = self.replicas(name)
        topic_id = self.topics[name.topic].topic_id
        members = {*replicas, *(self.states[name].isr if name in self.states else ())}
        live: dict[int, int] = {}
        facts: dict[int, ReplicaFacts | None] = {}
        offline: set[int] = set()
        leaving: set[int] = set()
        heard: set[int] = set()
        for one in members:  # one loop: a broker's death asks this of each of its thousands of partitions
            known = self.brokers.get(one)
            if known is None:
                continue
            if not known.is_refused:
                live[one] = known.incarnation
            if one in self.leaving:
                leaving.add(one)
            if known.is_heard:
                heard.add(one)
            if known.facts is not None:
                there = known.facts.get(name)
                facts[one] = there if there is not None and there.topic_id == topic_id else None
            if name in known.lost:
                offline.add(one)
        waited = name in self.waits and self.now_s() - self.waits[name] >= self.restart_wait_s
        return ElectionInput(live, facts, offline, leaving, heard, waited, self.how_lost)

    @property
    def restart_wait_s(self) -> float:
        return self.config.integer("unclean.restart.wait.ms") / 1000

    def _begin_to_wait(self, name: TopicPartition, found: Waiting) -> None:
        """The wait begins when the first of them is back; another one does not restart it."""
        if self.leaderless.get(name) != found.reason:
            log.warning("%s has no leader yet: %s", name, found.reason)
        if name not in self.waits:
            self.waits[name] = self.now_s()
            if self.wait_again is not None:
                self.wait_again(name, self.restart_wait_s)

    def decide(self, name: TopicPartition) -> Decision | None:
        """The state that the partition must get; None if it is right."""
        state = self.states.get(name)
        if state is not None and not self.leaving and self._is_served(name, state):
            self.leaderless.pop(name, None)
            return None
        known, replicas = self.election_input(name), self.replicas(name)
        first_epoch = self.first_epochs.get(name.topic, 0)
        found: Decision | NoLeader | None
        if state is None:
            found = leader_election.new(replicas, known, first_epoch=first_epoch)
        else:
            allowed = may_be_led_uncleanly(self.overrides.get(name.topic, {}))
            found = leader_election.reconcile(state, replicas, known, unclean_allowed=allowed, first_epoch=first_epoch)
            if found is None:  # nobody is dead: those that shut down are next
                found = _without_leaving(state, replicas, known)
        if isinstance(found, Waiting):
            self._begin_to_wait(name, found)
        elif isinstance(found, Decision) and found.leader != NO_LEADER:
            self.waits.pop(name, None)
        if isinstance(found, NoLeader):
            self.leaderless[name] = found.reason
            return None
        if found is None or found.leader != NO_LEADER:
            self.leaderless.pop(name, None)
        else:
            self.leaderless[name] = found.reason
        return found

    def _is_served(self, name: TopicPartition, state: PartitionState) -> bool:
        """Whether the leader and the whole ISR have run since the state was written, with no disk known to be offline:
        `leader_election.reconcile` leaves such a partition unchanged.

        Nearly all are like that when a broker answers, and again after a write; this check takes a fifth of the time.
        """
        if state.leader not in state.isr:
            return False
        for one, incarnation in zip(state.isr, state.incarnations, strict=True):
            known = self.brokers.get(one)
            if known is None or known.incarnation != incarnation or known.is_refused or name in known.lost:
                return False
            there = None if known.facts is None else known.facts.get(name)
            if there is not None and not there.is_online:
                return False
        return True


def _without_leaving(state: PartitionState, replicas: tuple[int, ...], known: ElectionInput) -> Decision | None:
    """The state without a member that shuts down; one that cannot be replaced leads until it stops."""
    for broker_id in known.leaving & set(state.isr):
        found = leader_election.leaving(state, replicas, broker_id, known)
        if isinstance(found, Decision):
            return found
    return None
