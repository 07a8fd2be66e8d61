"""Problems of a cluster, present or near. One finding each, with what to do about it.

Each rule is a function from a `Snapshot` to findings and covers one thing that can be wrong. No rule asks the cluster
anything. A rule may name the finding that it takes for the cause (`in_order`). A finding is ``critical`` where messages
cannot be written or read, or where one more failure loses some; the others are ``warning``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from klog.admin.health import broker_rules, dead, topic_rules, zookeeper_rules
from klog.admin.health.findings import CRITICAL, Finding, in_order
from klog.admin.health.group_rules import groups
from klog.admin.health.snapshot import Snapshot

SUBJECTS: Final = ("topics", "groups", "brokers", "zookeeper")

Rule = Callable[[Snapshot], Iterable[Finding]]

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "brokers": (
        broker_rules.silent_brokers,
        dead.dead_brokers,
        broker_rules.no_controller,
        broker_rules.log_dirs,
        broker_rules.clocks,
        broker_rules.certificates,
        broker_rules.unpreferred_leaders,
        broker_rules.default_topics,
        broker_rules.rare_flushes,
        broker_rules.differing_settings,
        broker_rules.sizes,
    ),
    "topics": (
        topic_rules.offline,
        topic_rules.under_min_isr,
        topic_rules.at_min_isr,
        topic_rules.min_isr_above_factor,
        topic_rules.crowded,
        topic_rules.under_replicated,
        topic_rules.uneven_factor,
        topic_rules.reassignments,
        topic_rules.uncompacted,
        topic_rules.deletions,
        topic_rules.ahead,
        topic_rules.set_aside,
        topic_rules.colliding_names,
        topic_rules.damaged_nodes,
        topic_rules.not_served,
    ),
}
"""Problems of brokers come first: they often cause those of topics."""


def judge(snapshot: Snapshot, max_lag: int | None = None) -> list[Finding]:
    """The findings that a snapshot gives, about what was asked."""
    found = [*_unreached(snapshot)]
    if "zookeeper" in snapshot.asked:
        found += zookeeper_rules.of_zookeeper(snapshot)
    if snapshot.answers:
        for subject, rules in RULES.items():
            if subject in snapshot.asked:
                found += [one for rule in rules for one in rule(snapshot)]
        if "groups" in snapshot.asked:
            found += groups(snapshot, max_lag)
    elif snapshot.here:  # one command starts all of a local cluster
        found = [replace(one, because=None if one.what == "brokers" else "brokers") for one in found]
    return in_order(found)


def _unreached(snapshot: Snapshot) -> Iterator[Finding]:
    """Brokers, or a ZooKeeper, that could not be asked at all."""
    if snapshot.no_brokers is not None:
        ended = [one for one in snapshot.here.values() if not one.runs]
        found, do = snapshot.no_brokers, snapshot.brokers_do
        if snapshot.hung_addresses:
            do = dead.hangs_do(snapshot, snapshot.hung_addresses)
        elif snapshot.here and len(ended) == len(snapshot.here):
            found, do = "none of them runs", f"start them: `{ended[0].start}`"
        elif ended:
            do = f"start those that do not run: `{ended[0].start}`"
        do = do or "look whether the brokers run, and whether the address is right"
        yield Finding(CRITICAL, "brokers", found, "an answer", do, "no-brokers")
    if snapshot.no_zookeeper is not None:
        do = snapshot.zookeeper_do or "start ZooKeeper: reads and writes continue without it, changes wait"
        down = next((f"zookeeper {one.address}" for one in snapshot.servers if one.mode is None), None)
        yield Finding(CRITICAL, "zookeeper", snapshot.no_zookeeper, "a session", do, "no-zookeeper", down)
