"""The verdict on a cluster: the worst thing that its users feel, and the numbers behind it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from klog.admin.health.dead import State, away, replicas_of_dead
from klog.admin.health.findings import CRITICAL, Finding, causes
from klog.admin.health.snapshot import Snapshot
from klog.admin.log_dirs import LogDirFact
from klog.names import counted

DOWN: Final = "DOWN"
BROKEN: Final = "BROKEN"
AT_RISK: Final = "AT RISK"
WARNED: Final = "WARNING"
WELL: Final = "OK"


class PartitionCounts(NamedTuple):
    """``refusing``: led, with fewer in sync than acks=all needs. ``hanging``: led by a broker that takes connections
    and does not answer."""

    topics: int
    partitions: int
    under_replicated: int
    offline: int
    refusing: int
    hanging: int


class BrokerState(NamedTuple):
    """``state``: up, silent (it does not answer), hangs, dead, or never (no broker of the id was ever there)."""

    broker: int
    state: str
    address: str | None


class Verdict(NamedTuple):
    """``word``: one of those above. ``said``: what it is, in a few words. ``counts``: of partitions, where known."""

    word: str
    said: str
    counts: PartitionCounts | None = None

    def __str__(self) -> str:
        return f"{self.word}: {self.said}" if self.said else self.word


def count_partitions(snapshot: Snapshot, only: str | None = None) -> PartitionCounts:
    """How many partitions, or those of one topic, have which trouble. The one place that counts them."""
    topics = snapshot.metadata.topics
    chosen = topics.values() if only is None else [topics[only]]
    every = [(topic.name, one) for topic in chosen for one in topic.partitions.values()]
    return PartitionCounts(
        len(chosen),
        len(every),
        sum(one.is_under_replicated for _, one in every),
        sum(one.leader is None for _, one in every),
        sum(one.leader is not None and len(one.isr) < snapshot.needed(name, one) for name, one in every),
        sum(one.leader in snapshot.hung for _, one in every),
    )


def broker_states(snapshot: Snapshot) -> list[BrokerState]:
    """Every broker that lives, has replicas, or belongs to the local cluster, by id."""
    live, found = snapshot.metadata.brokers, []
    for broker in sorted(live.keys() | replicas_of_dead(snapshot.metadata).keys() | snapshot.here.keys()):
        node, here, gone = live.get(broker), snapshot.here.get(broker), away(snapshot, broker)
        address = node.address if node is not None else snapshot.located.get(broker, here.address if here else None)
        state = "up" if gone is None else str(State.DEAD if gone.state == State.UNSURE else gone.state)
        found.append(BrokerState(broker, state, address))
    return found


def fullest_dir(snapshot: Snapshot, broker: int) -> LogDirFact | None:
    """The log dir of a broker with the least room, as far as that is known."""
    dirs = [one for one in snapshot.log_dirs if one.broker == broker and one.free_bytes is not None]
    return min(dirs, key=lambda one: one.free_bytes or 0, default=None)


def group_lags(snapshot: Snapshot) -> Counter[str]:
    """Group -> the messages that wait for it, over all its partitions; of every group, by the longest."""
    behind = Counter({look.name: 0 for look in snapshot.group_looks})
    for one in snapshot.groups:
        behind[str(one.group)] += one.lag or 0
    return behind


def verdict(snapshot: Snapshot, findings: Sequence[Finding]) -> Verdict:
    """The worst that users of the cluster feel: no broker, no leader, refused writes, data at risk, anything else."""
    if not snapshot.answers:
        return Verdict(DOWN, "no cluster is there" if snapshot.no_chroot else "no broker answers")
    found = count_partitions(snapshot)
    return Verdict(*_worst(snapshot, found, causes(findings)), found)


def _worst(snapshot: Snapshot, found: PartitionCounts, first: Sequence[Finding]) -> tuple[str, str]:
    of = f"of {counted(found.partitions, 'partition')}"
    if found.offline:
        more = f", {found.refusing:,} refuse acks=all" if found.refusing else ""
        return BROKEN, f"{found.offline:,} {of} without a leader{more}"
    if found.hanging:
        return BROKEN, f"{found.hanging:,} {of} led by a broker that hangs"
    if found.refusing:
        return BROKEN, f"{found.refusing:,} {of} refuse acks=all"
    if snapshot.no_zookeeper is not None:
        return AT_RISK, "no ZooKeeper: nothing fails over"
    if found.under_replicated:
        return AT_RISK, f"{found.under_replicated:,} {of} under-replicated"
    critical = sum(one.severity == CRITICAL for one in first)
    if critical:
        return AT_RISK, counted(critical, "critical finding")
    return (WARNED, counted(len(first), "finding")) if first else (WELL, "")
