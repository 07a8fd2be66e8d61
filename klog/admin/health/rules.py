"""Problems of a cluster, present or near. One finding each, with what to do about it.

Each rule is a function from a `Snapshot` to findings and covers one thing that can be wrong. No rule asks the cluster
anything. A rule may name the finding that it takes for the cause (`in_order`). A finding is ``critical`` where messages
cannot be written or read, or where one more failure loses some; the others are ``warning``. Partitions of one topic
with the same trouble are one finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from klog.admin.health.certificates import ending
from klog.admin.health.dead import (
    brokers_named,
    dead_brokers,
    hangs_do,
    is_nowhere,
    mend_disk,
    never_was,
    never_was_do,
    replicas_of_dead,
    start,
)
from klog.admin.health.findings import CRITICAL, WARNING, Finding, in_order
from klog.admin.health.group_rules import groups as _groups
from klog.admin.health.odds import clocks, rare_flushes, uncompacted
from klog.admin.health.partition_rules import crowded, of_topic, partitions_where
from klog.admin.health.snapshot import SHARED_SETTINGS, Snapshot
from klog.admin.health.zookeeper_rules import of_zookeeper
from klog.client.metadata import Metadata, PartitionNode, TopicNode
from klog.config.topic import effective_min_isr
from klog.coordination import paths
from klog.names import TopicPartition, counted
from klog.render.jsonl import rfc3339

SUBJECTS: Final = ("topics", "groups", "brokers", "zookeeper")
DELETION_PATIENCE_MS: Final = 30_000
"""A deletion takes seconds; one that takes this long waits for a broker."""
SIZES: Final = (
    ("socket.request.max.bytes", CRITICAL, "brokers close the connection that sends such a batch"),
    ("fetch.max.bytes", WARNING, "such a batch is fetched alone, and by consumers of 0.8 not at all"),
    ("replica.fetch.max.bytes", WARNING, "such a batch is replicated alone, which is slow"),
)
"""Settings that a topic's ``max.message.bytes`` must fit, how bad it is where it does not, and what happens then."""

Rule = Callable[[Snapshot, "Metadata"], Iterable[Finding]]


def judge(snapshot: Snapshot, subjects: Sequence[str], max_lag: int | None = None) -> list[Finding]:
    """The findings that a snapshot gives."""
    found: list[Finding] = []
    if snapshot.no_brokers is not None:
        found.append(_no_brokers(snapshot, snapshot.no_brokers))
    if snapshot.no_zookeeper is not None:
        do = snapshot.zookeeper_do or "start ZooKeeper: reads and writes continue without it, changes wait"
        down = next((f"zookeeper {one.address}" for one in snapshot.servers if one.mode is None), None)
        found.append(Finding(CRITICAL, "zookeeper", snapshot.no_zookeeper, "a session", do, "no-zookeeper", down))
    if "zookeeper" in subjects:
        found += of_zookeeper(snapshot)
    if snapshot.metadata is not None:
        for subject, rules in RULES.items():
            if subject in subjects:
                for rule in rules:
                    found += rule(snapshot, snapshot.metadata)
        if "groups" in subjects:
            found += _groups(snapshot, snapshot.metadata, max_lag)
    elif snapshot.here:  # one command starts all of a local cluster
        found = [replace(one, because=None if one.what == "brokers" else "brokers") for one in found]
    return in_order(found)


# --- Topics -----------------------------------------------------------------------------------------------------------


def _no_brokers(snapshot: Snapshot, reason: str) -> Finding:
    dead = [one for one in snapshot.here.values() if not one.runs]
    do = snapshot.brokers_do or "look whether the brokers run, and whether the address is right"
    if snapshot.hung_addresses:
        do = hangs_do(snapshot, snapshot.hung_addresses)
    elif snapshot.here and len(dead) == len(snapshot.here):
        reason, do = "none of them runs", f"start them: `{dead[0].start}`"
    elif dead:
        do = f"start those that do not run: `{dead[0].start}`"
    return Finding(CRITICAL, "brokers", reason, "an answer", do, "no-brokers")


def _offline(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic, bad in partitions_where(metadata, lambda topic, one: one.leader is None):
        waited_for = sorted({broker for one in bad for broker in one.isr if broker not in metadata.brokers})
        do = f"{start(snapshot, waited_for)}: it was in sync last" if waited_for else "see the controller's log for why"
        found = f"{of_topic(bad, topic)} have no leader"
        if all(is_nowhere(snapshot, one) for one in bad):
            named = sorted({broker for one in bad for broker in one.replicas})
            found += f": {brokers_named(named)} never registered"
            do = never_was_do(snapshot, metadata, named[0])
        if any(broker in metadata.brokers for one in bad for broker in one.isr) and waited_for:
            was = "was" if len(waited_for) == 1 else "were"
            found += f": waiting for {brokers_named(waited_for)}, which {was} in the in-sync set"
        because = _blamed(snapshot, metadata, [broker for one in bad for broker in (*one.isr, *one.replicas)])
        yield Finding(
            CRITICAL,
            f"topic {topic.name}",
            found,
            "a leader",
            do,
            "offline-partitions",
            because,
            partitions=len(bad),
        )


def _under_min_isr(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    def is_under(topic: TopicNode, one: PartitionNode) -> bool:
        return one.leader is not None and len(one.isr) < _min_isr(snapshot, topic, one)

    for topic, bad in partitions_where(metadata, is_under):
        minimum = max(_min_isr(snapshot, topic, one) for one in bad)
        found = f"{of_topic(bad, topic)} have fewer in sync: acks=all is refused"
        yield Finding(
            CRITICAL,
            f"topic {topic.name}",
            found,
            f"{minimum} in sync",
            _bring_back(snapshot, bad, metadata),
            "under-min-isr",
            _blamed(snapshot, metadata, _missing(bad)),
            partitions=len(bad),
        )


def _at_min_isr(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    def is_at(topic: TopicNode, one: PartitionNode) -> bool:
        is_at = one.leader is not None and len(one.isr) == _min_isr(snapshot, topic, one) > 1
        return is_at and one.is_under_replicated and not _is_filled(snapshot, topic, one)

    for topic, bad in partitions_where(metadata, is_at):
        minimum = max(_min_isr(snapshot, topic, one) for one in bad)
        found = f"{of_topic(bad, topic)} are at min.insync.replicas: without one more, acks=all is refused"
        expected = f"more than {minimum} in sync"
        because = _blamed(snapshot, metadata, _missing(bad))
        do = _bring_back(snapshot, bad, metadata)
        yield Finding(WARNING, f"topic {topic.name}", found, expected, do, "at-min-isr", because, partitions=len(bad))


def _min_isr(snapshot: Snapshot, topic: TopicNode, one: PartitionNode) -> int:
    return effective_min_isr(snapshot.min_isr.get(topic.name, 1), len(one.replicas))


def _under_replicated(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic, every in partitions_where(
        metadata, lambda topic, one: one.leader is not None and one.is_under_replicated
    ):
        filled = [one for one in every if _is_filled(snapshot, topic, one)]
        for bad in ([one for one in every if one not in filled], filled):
            if not bad:
                continue
            missing = _missing(bad)
            found, do = f"{brokers_named(missing)} not in sync", _bring_back(snapshot, bad, metadata)
            if bad is filled:
                found = f"a reassignment fills {brokers_named(missing)}"
                do = "wait: `klog reassign status --watch` shows how far it is"
            because = _blamed(snapshot, metadata, missing)
            found = f"{of_topic(bad, topic)} are under-replicated: {found}"
            yield Finding(
                WARNING,
                f"topic {topic.name}",
                found,
                "all in sync",
                do,
                "under-replicated",
                because,
                partitions=len(bad),
            )


def _min_isr_above_factor(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic in metadata.topics.values():
        minimum = snapshot.min_isr.get(topic.name, 1)
        if topic.partitions and minimum > topic.replication_factor:
            factor = topic.replication_factor
            yield Finding(
                WARNING,
                f"topic {topic.name}",
                f"min.insync.replicas {minimum}, replicas {factor}: acks=all means {factor}",
                f"at least {counted(minimum, 'replica')}",
                f"add replicas, or `klog topic config {topic.name} min.insync.replicas={factor}`",
                "min-isr-above-factor",
            )


def _uneven_factor(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic in metadata.topics.values():
        moving = snapshot.topics[topic.name].adding if topic.name in snapshot.topics else {}
        factors = {len(one.replicas) for one in topic.partitions.values() if one.partition not in moving}
        if len(factors) > 1:
            yield Finding(
                WARNING,
                f"topic {topic.name}",
                f"partitions with {' and '.join(map(str, sorted(factors)))} replicas",
                "as many each",
                f"`klog reassign plan --topics {topic.name} --replication-factor "
                f"{min(max(factors), max(1, len(metadata.brokers)))}`",
                "uneven-replication-factor",
            )


def _ahead(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic, bad in partitions_where(metadata, lambda topic, one: (topic.name, one.partition) in snapshot.ahead):
        partition = bad[0].partition
        offset, time_ms = snapshot.ahead[TopicPartition(topic.name, partition)]
        yield Finding(
            WARNING,
            f"topic {topic.name}",
            f"{of_topic(bad, topic)} have messages from ahead of the clock: "
            f"{partition}:{offset} is from {rfc3339(time_ms)}",
            f"at most {snapshot.ahead_max_ms[topic.name]} ms ahead (message.timestamp.after.max.ms)",
            f"correct the producer's clock; `klog tail {topic.name} -p {partition} -o {offset}:{offset + 1}` shows it."
            " Retention by time uses the file's time there, look-ups by time find it",
            "timestamps-ahead",
        )


def _deletions(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for name, since_ms in sorted(snapshot.deletions.items()):
        waited_ms = snapshot.now_ms - since_ms
        if waited_ms < DELETION_PATIENCE_MS:
            continue
        topic = snapshot.topics.get(name)
        assigned = {broker for ids in topic.partitions.values() for broker in ids} if topic is not None else set()
        dead = sorted(one for one in assigned - metadata.brokers.keys() if not never_was(snapshot, one))
        found = f"marked for deletion {waited_ms // 1000} s ago" + (
            f"; {brokers_named(dead)} not alive" if dead else ""
        )
        do = (
            f"{start(snapshot, dead)}: the deletion then continues, with an empty log dir too"
            if dead
            else "see the controller's log for why"
        )
        because = _blamed(snapshot, metadata, dead)
        yield Finding(WARNING, f"topic {name}", found, "gone within seconds", do, "deletion-stalls", because)


def _reassignments(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for topic in snapshot.topics.values():
        if topic.name in snapshot.deletions:
            continue
        for number, adding in sorted(topic.adding.items()):
            name = next(one for one in topic.topic_partitions if one.partition == number)
            dead = [broker for broker in adding if broker not in metadata.brokers]
            still = snapshot.standing_still.get(name, [])
            throttle = topic.throttles.get(number)
            do = "`klog reassign status` tells why, `klog reassign cancel` takes it back"
            if dead:
                found = f"moves to {brokers_named(dead)}, not alive"
                do = f"{start(snapshot, dead)}, or `klog reassign cancel`"
            elif still and throttle:
                found = (
                    f"{brokers_named(still)} to be filled at {throttle:,} bytes/s: nothing in {snapshot.watched_s:g} s"
                )
                do = f"raise the throttle (`klog reassign execute PLAN --throttle RATE`), or {do}"
            elif still:
                found = f"{brokers_named(still)} to be filled, without progress"
            else:
                continue
            because = _blamed(snapshot, metadata, dead or still)
            yield Finding(WARNING, f"partition {name}", found, "moving", do, "reassignment-stalls", because)


def _set_aside(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    kept: dict[tuple[str, int, int], list[tuple[int | None, str]]] = {}
    for row in snapshot.lost:
        if row.topic is not None and row.partition is not None:
            kept.setdefault((row.topic, row.partition, row.broker), []).append((row.messages, row.file or ""))
    for (topic, partition, broker), files in kept.items():
        is_damage = any(file.endswith(".damaged") for _, file in files)
        messages = [count for count, _ in files]
        total = "unknown" if None in messages else f"{sum(count or 0 for count in messages):,}"
        show = f"`klog lost show {topic} -p {partition} --broker {broker}`"
        yield Finding(
            WARNING,
            f"partition {topic}-{partition} on broker {broker}",
            f"{counted(len(files), 'stretch', 'stretches')} {'damaged' if is_damage else 'cut off'} and kept, "
            f"messages: {total}",
            "nothing set aside",
            _mend(metadata, topic, partition, broker, show)
            if is_damage
            else f"{show} and `klog lost replay`, then remove the files beside the log",
            "damage" if is_damage else "lost",
        )


def _mend(metadata: Metadata, topic: str, partition: int, broker: int, show: str) -> str:
    """What helps against a hole: a replica that has the messages, if there is one."""
    known = metadata.topics[topic].partitions.get(partition) if topic in metadata.topics else None
    if known is None or len(known.replicas) < 2:
        return f"{show} has what can still be read"
    if known.leader == broker:
        return "elect another replica as leader: this one is then repaired from it"
    return "wait: it is repaired from the leader (--wait 1m)"


def _damaged_nodes(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for path, what in sorted(snapshot.damage.items()):
        do = "write it in the format of klog or of Kafka 0.8's tools"
        if path.startswith(paths.TOPIC_CONFIGS):
            do = f"`klog topic config {path.rpartition('/')[2]} NAME=VALUE` writes it again"
        elif path.startswith(paths.CONFIG_CHANGES):
            do = "remove the node, or wait: notices are kept for 15 minutes"
        elif path.startswith((paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS)):
            do = f"`klog quota set` replaces a value; `klog zk get '{path}'` shows the rest, a user's credentials too"
        yield Finding(CRITICAL, f"zookeeper {path}", what, "a readable entry", do, "damaged-registry")


def _not_served(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for name in snapshot.not_served:
        found = "it is registered in ZooKeeper, but unknown to the brokers"
        do = "see the controller's log for why"
        yield Finding(CRITICAL, f"topic {name}", found, "a topic that is served", do, "topic-not-served")


def _colliding_names(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    alike: dict[str, list[str]] = {}
    for name in metadata.topics:
        alike.setdefault(name.replace(".", "_"), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            found = f"differ only in . and _: {', '.join(names)}"
            yield Finding(
                WARNING, f"topic {names[0]}", found, "names that differ in metrics", "rename one", "colliding-names"
            )


# --- Brokers ----------------------------------------------------------------------------------------------------------


def _no_controller(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    if (
        metadata.controller_id is None
        or metadata.controller_id not in metadata.brokers
        or snapshot.has_controller is False
    ):
        found = "no active controller"
        do = "see the brokers' logs: a broker becomes controller as soon as it reaches ZooKeeper"
        yield Finding(CRITICAL, "controller", found, "one", do, "no-controller", "zookeeper")


def _silent_brokers(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for broker, reason in sorted(snapshot.silent.items()):
        do = "look at its process and its log"
        if broker in snapshot.hung:
            reason = f"hangs: {snapshot.hung[broker]} accepts connections but does not answer"
            if snapshot.registered is not None and broker in snapshot.registered:
                reason += "; its entry in ZooKeeper is there"
            do = hangs_do(snapshot, [snapshot.hung[broker]], broker)
        yield Finding(CRITICAL, f"broker {broker}", reason, "an answer", do, "silent-broker")
    if snapshot.registered is not None:
        for broker in sorted(snapshot.registered - metadata.brokers.keys() - replicas_of_dead(metadata).keys()):
            found = "registered in ZooKeeper, but unknown to the other brokers"
            yield Finding(WARNING, f"broker {broker}", found, "known", "look at the controller's log", "unknown-broker")
        for broker in sorted(metadata.brokers.keys() - snapshot.registered):
            found = "alive to the other brokers, but not registered in ZooKeeper"
            yield Finding(WARNING, f"broker {broker}", found, "registered", "look at its log", "unregistered-broker")


def _unpreferred_leaders(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    able: Counter[int] = Counter()
    """Of those elsewhere, how many the broker may lead now."""
    for one in metadata.partitions:
        if one.replicas and one.replicas[0] in metadata.brokers:
            preferred[one.replicas[0]] += 1
            elsewhere[one.replicas[0]] += one.leader not in (None, one.replicas[0])
            able[one.replicas[0]] += one.leader not in (None, one.replicas[0]) and one.replicas[0] in one.isr
    allowed = {
        one: int(of.get("leader.imbalance.per.broker.percentage") or 10) for one, of in snapshot.settings.items()
    }
    alike: dict[tuple[str | None, bool], list[int]] = {}
    for broker in sorted(preferred):
        if 100 * elsewhere[broker] > allowed.get(broker, 10) * preferred[broker]:
            alike.setdefault((_blamed(snapshot, metadata, [broker]), able[broker] > 0), []).append(broker)
    for (because, may_lead), brokers in alike.items():
        named, count = brokers_named(brokers), sum(preferred[one] for one in brokers)
        found = f"other brokers lead {sum(elsewhere[one] for one in brokers)} of {counted(count, 'partition')}"
        them, are = ("it", "is") if len(brokers) == 1 else ("them", "are")
        found += f" that prefer {them}"
        do = "`klog topic elect`" if may_lead else f"wait until {named} {are} in sync, then `klog topic elect`"
        expected = f"at most {allowed.get(brokers[0], 10)} %"
        yield Finding(WARNING, named, found, expected, do, "unpreferred-leaders", because)


def _log_dirs(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for one in snapshot.log_dirs:
        if one.error is not None:
            yield Finding(
                CRITICAL,
                f"broker {one.broker}, log dir {one.path}",
                one.error,
                "online",
                mend_disk(snapshot, one.broker),
                "log-dir-offline",
            )
        elif one.is_full:
            yield Finding(
                CRITICAL,
                f"broker {one.broker}, log dir {one.path}",
                f"{one.free_bytes:,} bytes free: appends fail, or will fail soon",
                "room for new messages",
                "delete topics, shorten their retention, or give it a larger disk",
                "log-dir-full",
            )


def _default_topics(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    """Topics that producers make by naming them: what they would be like. Dead brokers are expected back."""
    brokers = len(metadata.brokers.keys() | replicas_of_dead(metadata).keys())
    wrong: dict[tuple[str, str, str], list[int]] = {}
    for broker, settings in sorted(snapshot.settings.items()):
        if settings.get("auto.create.topics.enable") != "true":
            continue
        factor = int(settings.get("default.replication.factor") or 1)
        minimum = int(settings.get("min.insync.replicas") or 1)
        if factor > brokers:
            found = f"default.replication.factor {factor}, {counted(brokers, 'broker')}: no topic can be created"
            key = found, f"at most {brokers}", "add brokers, or lower default.replication.factor"
        elif minimum > factor:
            found = f"min.insync.replicas {minimum}, default.replication.factor {factor}: acks=all means {factor}"
            key = found, f"at most {factor}", "raise default.replication.factor on every broker"
        else:
            continue
        wrong.setdefault(key, []).append(broker)
    for (found, expected, do), ids in wrong.items():
        yield Finding(WARNING, f"automatic topic creation, {brokers_named(ids)}", found, expected, do, "auto-create")


def _differing_settings(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for name in SHARED_SETTINGS:
        values: dict[str, list[int]] = {}
        for broker, settings in sorted(snapshot.settings.items()):
            values.setdefault(str(settings.get(name)), []).append(broker)
        if len(values) > 1:
            found = "; ".join(f"{value} on {brokers_named(brokers)}" for value, brokers in values.items())
            do = "set the same value on all brokers"
            yield Finding(WARNING, f"setting {name}", found, "one value", do, "differing-settings")


def _sizes(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    """A batch that a topic takes, and that a request or a fetch is too small for."""
    for name, smallest, found in SIZES:
        limits = {broker: int(value) for broker, some in snapshot.settings.items() if (value := some.get(name))}
        if not limits:
            continue
        broker, limit = min(limits.items(), key=lambda one: one[1])
        large = {topic: most for topic, most in snapshot.max_bytes.items() if most > limit}
        if large:
            topic, most = max(large.items(), key=lambda one: one[1])
            others = f" and {counted(len(large) - 1, 'other topic')}" if len(large) > 1 else ""
            yield Finding(
                smallest,
                f"setting {name}",
                f"{limit:,} on broker {broker}, max.message.bytes of {topic}{others} is {most:,}: {found}",
                f"at least {most:,}",
                f"raise {name} on every broker, or `klog topic config {topic} max.message.bytes={limit}`",
                "sizes-differ",
            )


RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "brokers": (
        _silent_brokers,
        dead_brokers,
        _no_controller,
        _log_dirs,
        clocks,
        lambda snapshot, _: ending(snapshot.certificates),
        _unpreferred_leaders,
        _default_topics,
        rare_flushes,
        _differing_settings,
        _sizes,
    ),
    "topics": (
        _offline,
        _under_min_isr,
        _at_min_isr,
        _min_isr_above_factor,
        lambda snapshot, metadata: crowded(metadata, lambda topic, one: _min_isr(snapshot, topic, one)),
        _under_replicated,
        _uneven_factor,
        _reassignments,
        uncompacted,
        _deletions,
        _ahead,
        _set_aside,
        _colliding_names,
        _damaged_nodes,
        _not_served,
    ),
}
"""Problems of brokers come first: they often cause those of topics."""


# --- In words ---------------------------------------------------------------------------------------------------------


def _is_filled(snapshot: Snapshot, topic: TopicNode, one: PartitionNode) -> bool:
    """All replicas that are not in sync are new: a reassignment fills them."""
    known = snapshot.topics.get(topic.name)
    return known is not None and set(_missing([one])) <= set(known.adding.get(one.partition, ()))


def _missing(bad: Sequence[PartitionNode]) -> list[int]:
    return sorted({broker for one in bad for broker in one.replicas if broker not in one.isr})


def _blamed(snapshot: Snapshot, metadata: Metadata, brokers: Sequence[int]) -> str | None:
    """The finding about the first of these brokers that does not serve, or whose disk does not."""
    for broker in brokers:
        if broker not in metadata.brokers or broker in snapshot.silent:
            return f"broker {broker}"
    for one in snapshot.log_dirs:
        if one.broker in brokers and (one.error is not None or one.is_full):
            return f"broker {one.broker}, log dir {one.path}"
    return None


def _bring_back(snapshot: Snapshot, bad: Sequence[PartitionNode], metadata: Metadata) -> str:
    missing = _missing(bad)
    dead = [broker for broker in missing if broker not in metadata.brokers]
    if dead:
        return start(snapshot, dead)
    hung = [broker for broker in missing if broker in snapshot.hung]
    if hung:
        return f"bring {brokers_named(hung)} back (`klog status brokers`)"
    return f"wait until {brokers_named(missing)} caught up: --wait 1m"
