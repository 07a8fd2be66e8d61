"""The rules about topics: one finding for the partitions of a topic that have the same trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.admin.health.dead import Away, State, away, blamed, brokers_named, is_nowhere, never_was, never_was_do, start
from klog.admin.health.findings import CRITICAL, WARNING, Finding
from klog.admin.health.snapshot import Snapshot
from klog.client.metadata import PartitionNode, TopicNode
from klog.coordination import paths
from klog.names import TopicPartition, counted
from klog.render.jsonl import rfc3339

SHOWN_MAX: Final = 12
"""Partitions named in a row; more are counted."""
DELETION_PATIENCE_MS: Final = 30_000
"""A deletion takes seconds; one that takes this long waits for a broker."""
UNCOMPACTED_BYTES: Final = 1 << 30
"""From here on what compaction would save is worth a finding."""


class Bad(NamedTuple):
    """The partitions of a topic that have a trouble."""

    topic: TopicNode
    partitions: Sequence[PartitionNode]

    def __str__(self) -> str:
        """``partitions 0,2 (2 of 4)``."""
        bad = self.partitions
        shown = ",".join(str(one.partition) for one in bad[:SHOWN_MAX]) + (",..." if len(bad) > SHOWN_MAX else "")
        return f"partitions {shown} ({len(bad)} of {len(self.topic.partitions)})"

    @property
    def missing(self) -> list[int]:
        """The brokers whose replicas are not in sync."""
        return sorted({broker for one in self.partitions for broker in one.replicas if broker not in one.isr})

    def finding(
        self, severity: str, found: str, expected: str, do: str, kind: str, because: str | None = None
    ) -> Finding:
        """About them; ``found`` follows their names."""
        what, count = f"topic {self.topic.name}", len(self.partitions)
        return Finding(severity, what, f"{self} {found}", expected, do, kind, because, partitions=count)


def bad_ones(snapshot: Snapshot, is_bad: Callable[[TopicNode, PartitionNode], bool]) -> Iterator[Bad]:
    """By topic, those of which that is true."""
    for topic in snapshot.metadata.topics.values():
        bad = [one for one in topic.partitions.values() if is_bad(topic, one)]
        if bad:
            yield Bad(topic, bad)


# --- Leaders and in-sync replicas -------------------------------------------------------------------------------------


def offline(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions without a leader."""
    live = snapshot.metadata.brokers.keys()
    for bad in bad_ones(snapshot, lambda topic, one: one.leader is None):
        in_sync = {broker for one in bad.partitions for broker in one.isr}
        waited_for = sorted(in_sync - live)
        found, do = "have no leader", "see the controller's log for why"
        if waited_for:
            do = f"{start(snapshot, waited_for)}: it was in sync last"
        if all(is_nowhere(snapshot, one) for one in bad.partitions):
            named = sorted({broker for one in bad.partitions for broker in one.replicas})
            found += f": {brokers_named(named)} never registered"
            do = never_was_do(snapshot, named[0])
        if waited_for and in_sync & live:
            was = "was" if len(waited_for) == 1 else "were"
            found += f": waiting for {brokers_named(waited_for)}, which {was} in the in-sync set"
        because = blamed(snapshot, [broker for one in bad.partitions for broker in (*one.isr, *one.replicas)])
        yield bad.finding(CRITICAL, found, "a leader", do, "offline-partitions", because)


def under_min_isr(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions that refuse acks=all."""

    def is_under(topic: TopicNode, one: PartitionNode) -> bool:
        return one.leader is not None and len(one.isr) < snapshot.needed(topic.name, one)

    for bad in bad_ones(snapshot, is_under):
        expected, because = f"{_needed(snapshot, bad)} in sync", blamed(snapshot, bad.missing)
        found, do = "have fewer in sync: acks=all is refused", _bring_back(snapshot, bad.missing)
        yield bad.finding(CRITICAL, found, expected, do, "under-min-isr", because)


def at_min_isr(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions that will refuse acks=all with one replica less, although they have more replicas."""

    def is_at(topic: TopicNode, one: PartitionNode) -> bool:
        is_at = one.leader is not None and len(one.isr) == snapshot.needed(topic.name, one) > 1
        return is_at and one.is_under_replicated and not _is_filled(snapshot, topic, one)

    for bad in bad_ones(snapshot, is_at):
        expected, because = f"more than {_needed(snapshot, bad)} in sync", blamed(snapshot, bad.missing)
        found = "are at min.insync.replicas: without one more, acks=all is refused"
        yield bad.finding(WARNING, found, expected, _bring_back(snapshot, bad.missing), "at-min-isr", because)


def under_replicated(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions with replicas that are not in sync; those that a reassignment fills are a finding of their own."""
    for every in bad_ones(snapshot, lambda topic, one: one.leader is not None and one.is_under_replicated):
        filled = [one for one in every.partitions if _is_filled(snapshot, every.topic, one)]
        behind = Bad(every.topic, [one for one in every.partitions if one not in filled])
        if behind.partitions:
            found, do = f"{brokers_named(behind.missing)} not in sync", _bring_back(snapshot, behind.missing)
            yield _under_replicated(snapshot, behind, found, do)
        if filled:
            moving = Bad(every.topic, filled)
            do = "wait: `klog reassign status --watch` shows how far it is"
            yield _under_replicated(snapshot, moving, f"a reassignment fills {brokers_named(moving.missing)}", do)


def _under_replicated(snapshot: Snapshot, bad: Bad, why: str, do: str) -> Finding:
    found, because = f"are under-replicated: {why}", blamed(snapshot, bad.missing)
    return bad.finding(WARNING, found, "all in sync", do, "under-replicated", because)


def _needed(snapshot: Snapshot, bad: Bad) -> int:
    return max(snapshot.needed(bad.topic.name, one) for one in bad.partitions)


def _is_filled(snapshot: Snapshot, topic: TopicNode, one: PartitionNode) -> bool:
    """All replicas that are not in sync are new: a reassignment fills them."""
    known = snapshot.topics.get(topic.name)
    return known is not None and {*one.replicas} - {*one.isr} <= {*known.adding.get(one.partition, ())}


def _bring_back(snapshot: Snapshot, missing: Sequence[int]) -> str:
    dead = [broker for broker in missing if broker not in snapshot.metadata.brokers]
    if dead:
        return start(snapshot, dead)
    hung = [broker for broker in missing if broker in snapshot.hung]
    if hung:
        return f"bring {brokers_named(hung)} back (`klog status brokers`)"
    return f"wait until {brokers_named(missing)} caught up: --wait 1m"


# --- How topics are made ----------------------------------------------------------------------------------------------


def min_isr_above_factor(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics with fewer replicas than acks=all is to have."""
    for topic in snapshot.metadata.topics.values():
        minimum, factor = snapshot.min_isr.get(topic.name, 1), topic.replication_factor
        if topic.partitions and minimum > factor:
            found = f"min.insync.replicas {minimum}, replicas {factor}: acks=all means {factor}"
            expected = f"at least {counted(minimum, 'replica')}"
            do = f"add replicas, or `klog topic config {topic.name} min.insync.replicas={factor}`"
            yield Finding(WARNING, f"topic {topic.name}", found, expected, do, "min-isr-above-factor")


def crowded(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions of which so many replicas share a host that an acknowledged message may be on fewer hosts than
    ``min.insync.replicas`` says, while another host has none.

    Several brokers may be processes of one host, and die with it. A replica of a broker that is not alive counts as a
    host of its own: where it ran is not known.
    """
    hosts = {broker: node.host for broker, node in snapshot.metadata.brokers.items()}
    every = set(hosts.values())

    def is_crowded(topic: TopicNode, one: PartitionNode) -> bool:
        used = Counter(hosts.get(broker, f"broker {broker}") for broker in one.replicas)
        minimum = snapshot.needed(topic.name, one)
        return used.total() > len(used) and bool(every - used.keys()) and _fewest(used, minimum) < minimum

    for bad in bad_ones(snapshot, is_crowded):
        name = bad.topic.name
        found = f"{bad} have replicas that share a host: what is acknowledged may be on fewer hosts"
        do = f"`klog reassign plan --topics {name} --file plan.json` spreads them"
        yield Finding(WARNING, f"topic {name}", found, f"on {_needed(snapshot, bad)} hosts", do, "shared-hosts")


def _fewest(used: Counter[str], replicas: int) -> int:
    """The fewest hosts that so many of the replicas can be on."""
    left = replicas
    for number, (_, count) in enumerate(used.most_common(), 1):
        left -= count
        if left <= 0:
            return number
    return len(used)


def uneven_factor(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics whose partitions have different numbers of replicas, without those that are being reassigned."""
    for topic in snapshot.metadata.topics.values():
        moving = snapshot.topics[topic.name].adding if topic.name in snapshot.topics else {}
        factors = {len(one.replicas) for one in topic.partitions.values() if one.partition not in moving}
        if len(factors) > 1:
            found = f"partitions with {' and '.join(map(str, sorted(factors)))} replicas"
            factor = min(max(factors), max(1, len(snapshot.metadata.brokers)))
            do = f"`klog reassign plan --topics {topic.name} --replication-factor {factor}`"
            yield Finding(WARNING, f"topic {topic.name}", found, "as many each", do, "uneven-replication-factor")


def colliding_names(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics that are one to metrics."""
    alike: dict[str, list[str]] = {}
    for name in snapshot.metadata.topics:
        alike.setdefault(name.replace(".", "_"), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            found, expected = f"differ only in . and _: {', '.join(names)}", "names that differ in metrics"
            yield Finding(WARNING, f"topic {names[0]}", found, expected, "rename one", "colliding-names")


# --- What becomes of topics -------------------------------------------------------------------------------------------


def reassignments(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions whose new replicas get nothing."""
    for topic in snapshot.topics.values():
        if topic.name in snapshot.deletions:
            continue
        for number, adding in sorted(topic.adding.items()):
            name = TopicPartition(topic.name, number)
            dead = [broker for broker in adding if broker not in snapshot.metadata.brokers]
            still = snapshot.standing_still.get(name, [])
            throttle = topic.throttles.get(number)
            do = "`klog reassign status` tells why, `klog reassign cancel` takes it back"
            if dead:
                found = f"moves to {brokers_named(dead)}, not alive"
                do = f"{start(snapshot, dead)}, or `klog reassign cancel`"
            elif still and throttle:
                seconds = f"{snapshot.watched_s:g} s"
                found = f"{brokers_named(still)} to be filled at {throttle:,} bytes/s: nothing in {seconds}"
                do = f"raise the throttle (`klog reassign execute PLAN --throttle RATE`), or {do}"
            elif still:
                found = f"{brokers_named(still)} to be filled, without progress"
            else:
                continue
            because = blamed(snapshot, dead or still)
            yield Finding(WARNING, f"partition {name}", found, "moving", do, "reassignment-stalls", because)


def deletions(snapshot: Snapshot) -> Iterator[Finding]:
    """Deletions that wait."""
    for name, since_ms in sorted(snapshot.deletions.items()):
        waited_ms = snapshot.now_ms - since_ms
        if waited_ms < DELETION_PATIENCE_MS:
            continue
        awaited = deletion_awaits(snapshot, name)
        found, do = f"marked for deletion {waited_ms // 1000} s ago", "see the controller's log for why"
        if awaited:
            found += f"; it waits for {brokers_named(awaited)}"
            do = f"bring {brokers_named(awaited)} back (`klog status brokers`): the deletion then continues"
            if all((away(snapshot, one) or Away(State.DEAD)).state is State.DEAD for one in awaited):
                do = f"{start(snapshot, awaited)}: the deletion then continues, with an empty log dir too"
        because = blamed(snapshot, awaited)
        yield Finding(WARNING, f"topic {name}", found, "gone within seconds", do, "deletion-stalls", because)


def deletion_awaits(snapshot: Snapshot, name: str) -> list[int]:
    """The brokers that are away and have replicas of a topic that is being deleted."""
    if name not in snapshot.topics or name not in snapshot.deletions:
        return []
    assigned = {broker for ids in snapshot.topics[name].partitions.values() for broker in ids}
    return sorted(one for one in assigned if snapshot.is_away(one) and not never_was(snapshot, one))


def not_served(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics that ZooKeeper has and no broker knows."""
    for name in snapshot.not_served:
        found = "it is registered in ZooKeeper, but unknown to the brokers"
        do = "see the controller's log for why"
        yield Finding(CRITICAL, f"topic {name}", found, "a topic that is served", do, "topic-not-served")


def damaged_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """Entries in ZooKeeper that cannot be read."""
    for path, what in sorted(snapshot.damage.items()):
        do = "write it in the format of klog or of Kafka 0.8's tools"
        if path.startswith(paths.TOPIC_CONFIGS):
            do = f"`klog topic config {path.rpartition('/')[2]} NAME=VALUE` writes it again"
        elif path.startswith(paths.CONFIG_CHANGES):
            do = "remove the node, or wait: notices are kept for 15 minutes"
        elif path.startswith((paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS)):
            do = f"`klog quota set` replaces a value; `klog zk get '{path}'` shows the rest, a user's credentials too"
        yield Finding(CRITICAL, f"zookeeper {path}", what, "a readable entry", do, "damaged-registry")


# --- What is in them --------------------------------------------------------------------------------------------------


def uncompacted(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics that are to be compacted."""
    for name, size in sorted(snapshot.uncompacted.items()):
        if size >= UNCOMPACTED_BYTES:
            found = (
                f"cleanup.policy asks for compaction, and klog compacts nothing yet: its replicas keep {size:,} bytes"
            )
            expected = f"less than {UNCOMPACTED_BYTES:,} bytes"
            do = f"`klog topic config {name} cleanup.policy=compact,delete retention.ms=N`, where old messages may go"
            yield Finding(WARNING, f"topic {name}", found, expected, do, "not-compacted")


def ahead(snapshot: Snapshot) -> Iterator[Finding]:
    """Messages of the future."""
    for bad in bad_ones(snapshot, lambda topic, one: (topic.name, one.partition) in snapshot.ahead):
        name, partition = bad.topic.name, bad.partitions[0].partition
        offset, time_ms = snapshot.ahead[TopicPartition(name, partition)]
        found = f"{bad} have messages from ahead of the clock: {partition}:{offset} is from {rfc3339(time_ms)}"
        expected = f"at most {snapshot.ahead_max_ms[name]} ms ahead (message.timestamp.after.max.ms)"
        do = (
            f"correct the producer's clock; `klog tail {name} -p {partition} -o {offset}:{offset + 1}` shows it."
            " Retention by time uses the file's time there, look-ups by time find it"
        )
        yield Finding(WARNING, f"topic {name}", found, expected, do, "timestamps-ahead")


def set_aside(snapshot: Snapshot) -> Iterator[Finding]:
    """What replicas have cut off, or could not read, and keep."""
    kept: dict[tuple[str, int, int], list[tuple[int | None, str]]] = {}
    for row in snapshot.lost:
        if row.topic is not None and row.partition is not None:
            kept.setdefault((row.topic, row.partition, row.broker), []).append((row.messages, row.file or ""))
    for (topic, partition, broker), files in kept.items():
        is_damage = any(file.endswith(".damaged") for _, file in files)
        messages = [count for count, _ in files]
        total = "unknown" if None in messages else f"{sum(count or 0 for count in messages):,}"
        stretches, how = counted(len(files), "stretch", "stretches"), "damaged" if is_damage else "cut off"
        show = f"`klog lost show {topic} -p {partition} --broker {broker}`"
        do = f"{show} and `klog lost replay`, then remove the files beside the log"
        if is_damage:
            do = _mend(snapshot, topic, partition, broker, show)
        what = f"partition {topic}-{partition} on broker {broker}"
        found = f"{stretches} {how} and kept, messages: {total}"
        yield Finding(WARNING, what, found, "nothing set aside", do, "damage" if is_damage else "lost")


def _mend(snapshot: Snapshot, topic: str, partition: int, broker: int, show: str) -> str:
    """What helps against a hole: a replica that has the messages, if there is one."""
    topics = snapshot.metadata.topics
    known = topics[topic].partitions.get(partition) if topic in topics else None
    if known is None or len(known.replicas) < 2:
        return f"{show} has what can still be read"
    if known.leader == broker:
        return "elect another replica as leader: this one is then repaired from it"
    return "wait: it is repaired from the leader (--wait 1m)"
