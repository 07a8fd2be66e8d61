"""The rules about brokers: those that do not serve, their disks, clocks, certificates and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Final

from klog.admin.health.dead import blamed, brokers_named, hangs_do, mend_disk, replicas_of_dead
from klog.admin.health.findings import CRITICAL, WARNING, Finding
from klog.admin.health.snapshot import SHARED_SETTINGS, WARNING_DAYS, Snapshot
from klog.config.topic import LogConfig
from klog.errors import InvalidConfig
from klog.names import counted
from klog.render.value_texts import clock_text
from klog.replication.isr import check_flush_rule

CLOCKS_APART_MS: Final = 60_000
"""What brokers take for a wrong clock, too."""
FLUSH_SETTINGS: Final = ("log.flush.interval.messages", "log.flush.interval.ms", "replica.lag.time.max.ms")
SIZES: Final = (
    ("socket.request.max.bytes", CRITICAL, "brokers close the connection that sends such a batch"),
    ("fetch.max.bytes", WARNING, "such a batch is fetched alone, and by consumers of 0.8 not at all"),
    ("replica.fetch.max.bytes", WARNING, "such a batch is replicated alone, which is slow"),
)
"""Settings that a topic's ``max.message.bytes`` must fit, how bad it is where it does not, and what happens then."""


def silent_brokers(snapshot: Snapshot) -> Iterator[Finding]:
    """Brokers that do not answer, and those that ZooKeeper or the other brokers do not know."""
    live = snapshot.metadata.brokers.keys()
    for broker, reason in sorted(snapshot.silent.items()):
        do = "look at its process and its log"
        if broker in snapshot.hung:
            reason = f"hangs: {snapshot.hung[broker]} accepts connections but does not answer"
            if snapshot.registered is not None and broker in snapshot.registered:
                reason += "; its entry in ZooKeeper is there"
            do = hangs_do(snapshot, [snapshot.hung[broker]], broker)
        yield Finding(CRITICAL, f"broker {broker}", reason, "an answer", do, "silent-broker")
    if snapshot.registered is not None:
        for broker in sorted(snapshot.registered - live - replicas_of_dead(snapshot.metadata).keys()):
            found = "registered in ZooKeeper, but unknown to the other brokers"
            yield Finding(WARNING, f"broker {broker}", found, "known", "look at the controller's log", "unknown-broker")
        for broker in sorted(live - snapshot.registered):
            found = "alive to the other brokers, but not registered in ZooKeeper"
            yield Finding(WARNING, f"broker {broker}", found, "registered", "look at its log", "unregistered-broker")


def no_controller(snapshot: Snapshot) -> Iterator[Finding]:
    """A cluster that changes nothing."""
    if snapshot.metadata.controller_id not in snapshot.metadata.brokers or snapshot.has_controller is False:
        found = "no active controller"
        do = "see the brokers' logs: a broker becomes controller as soon as it reaches ZooKeeper"
        yield Finding(CRITICAL, "controller", found, "one", do, "no-controller", "zookeeper")


def log_dirs(snapshot: Snapshot) -> Iterator[Finding]:
    """Log dirs that are offline, or full."""
    for one in snapshot.log_dirs:
        what = f"broker {one.broker}, log dir {one.path}"
        if one.error is not None:
            yield Finding(CRITICAL, what, one.error, "online", mend_disk(snapshot, one.broker), "log-dir-offline")
        elif one.is_full:
            found, expected = f"{one.free_bytes:,} bytes free: appends fail, or will fail soon", "room for new messages"
            do = "delete topics, shorten their retention, or give it a larger disk"
            yield Finding(CRITICAL, what, found, expected, do, "log-dir-full")


def clocks(snapshot: Snapshot) -> Iterator[Finding]:
    """Of two brokers either may be right: one finding each."""
    middle_ms = median(snapshot.clocks.values()) if snapshot.clocks else 0
    for broker, clock_ms in sorted(snapshot.clocks.items()):
        ahead_ms = clock_ms - middle_ms
        if abs(ahead_ms) > CLOCKS_APART_MS:
            found = f"its clock is {clock_text(ahead_ms)} the brokers' middle"
            do = (
                "set the clock on its host (NTP): by it the broker refuses messages of the future "
                "(message.timestamp.after.max.ms), and deletes old ones (retention.ms)"
            )
            expected = f"at most {CLOCKS_APART_MS // 1000} s from the others"
            yield Finding(CRITICAL, f"broker {broker}", found, expected, do, "clock-skew")


def certificates(snapshot: Snapshot) -> Iterator[Finding]:
    """Certificates that have ended, or end soon: one finding for a listener of a broker."""
    for one in snapshot.certificates:
        if one.days_left >= one.warning_days:
            continue
        has_ended = one.days_left < 0
        ends = f"ended {-one.days_left:,.0f} days ago" if has_ended else f"ends in {one.days_left:,.0f} days"
        what = f"broker {one.broker}, listener {one.listener}"
        found = f"its certificate {ends}: clients {'refuse' if has_ended else 'will refuse'} to connect"
        expected = f"at least {one.warning_days} days ({WARNING_DAYS})"
        do = "replace the file at ssl.keystore.location: the broker takes it in within seconds"
        yield Finding(CRITICAL if has_ended else WARNING, what, found, expected, do, "certificate-ends")


def unpreferred_leaders(snapshot: Snapshot) -> Iterator[Finding]:
    """Brokers that lead less than assignments give them."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    able: Counter[int] = Counter()
    """Of those elsewhere, how many the broker may lead now."""
    for one in snapshot.metadata.partitions:
        first = one.replicas[0] if one.replicas else None
        if first is not None and first in snapshot.metadata.brokers:
            preferred[first] += 1
            elsewhere[first] += one.leader not in (None, first)
            able[first] += one.leader not in (None, first) and first in one.isr
    allowed = {
        one: int(of.get("leader.imbalance.per.broker.percentage") or 10) for one, of in snapshot.settings.items()
    }
    alike: dict[tuple[str | None, bool], list[int]] = {}
    for broker in sorted(preferred):
        if 100 * elsewhere[broker] > allowed.get(broker, 10) * preferred[broker]:
            alike.setdefault((blamed(snapshot, [broker]), able[broker] > 0), []).append(broker)
    for (because, may_lead), brokers in alike.items():
        named, count = brokers_named(brokers), sum(preferred[one] for one in brokers)
        them, are = ("it", "is") if len(brokers) == 1 else ("them", "are")
        away = sum(elsewhere[one] for one in brokers)
        found = f"other brokers lead {away} of {counted(count, 'partition')} that prefer {them}"
        do = "`klog topic elect`" if may_lead else f"wait until {named} {are} in sync, then `klog topic elect`"
        expected = f"at most {allowed.get(brokers[0], 10)} %"
        yield Finding(WARNING, named, found, expected, do, "unpreferred-leaders", because)


# --- Settings ---------------------------------------------------------------------------------------------------------


def default_topics(snapshot: Snapshot) -> Iterator[Finding]:
    """Topics that producers make by naming them: what they would be like. Dead brokers are expected back."""
    brokers = len(snapshot.metadata.brokers.keys() | replicas_of_dead(snapshot.metadata).keys())
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


def rare_flushes(snapshot: Snapshot) -> Iterator[Finding]:
    """Brokers that would refuse topics with replicas."""
    wrong: dict[str, list[int]] = {}
    for broker, settings in sorted(snapshot.settings.items()):
        given = [settings.get(name) for name in FLUSH_SETTINGS]
        messages, due_ms, lag_ms = [int(one or 1) for one in given]
        try:
            if None not in given:
                check_flush_rule(LogConfig(flush_messages=messages, flush_ms=due_ms), lag_ms)
        except InvalidConfig as error:
            wrong.setdefault(error.message, []).append(broker)
    for found, ids in wrong.items():
        do = "lower log.flush.interval.ms on every broker, or leave out log.flush.interval.messages"
        subject = f"flushes of new topics, {brokers_named(ids)}"
        yield Finding(WARNING, subject, found, "topics with replicas can be created", do, "rare-flushes")


def differing_settings(snapshot: Snapshot) -> Iterator[Finding]:
    """What brokers should go by alike, and do not."""
    for name in SHARED_SETTINGS:
        values: dict[str, list[int]] = {}
        for broker, settings in sorted(snapshot.settings.items()):
            values.setdefault(str(settings.get(name)), []).append(broker)
        if len(values) > 1:
            found = "; ".join(f"{value} on {brokers_named(brokers)}" for value, brokers in values.items())
            do = "set the same value on all brokers"
            yield Finding(WARNING, f"setting {name}", found, "one value", do, "differing-settings")


def sizes(snapshot: Snapshot) -> Iterator[Finding]:
    """A batch that a topic takes, and that a request or a fetch is too small for."""
    for name, severity, happens in SIZES:
        limits = {broker: int(value) for broker, some in snapshot.settings.items() if (value := some.get(name))}
        if not limits:
            continue
        broker, limit = min(limits.items(), key=lambda one: one[1])
        large = {topic: most for topic, most in snapshot.max_bytes.items() if most > limit}
        if large:
            topic, most = max(large.items(), key=lambda one: one[1])
            others = f" and {counted(len(large) - 1, 'other topic')}" if len(large) > 1 else ""
            found = f"{limit:,} on broker {broker}, max.message.bytes of {topic}{others} is {most:,}: {happens}"
            do = f"raise {name} on every broker, or `klog topic config {topic} max.message.bytes={limit}`"
            yield Finding(severity, f"setting {name}", found, f"at least {most:,}", do, "sizes-differ")
