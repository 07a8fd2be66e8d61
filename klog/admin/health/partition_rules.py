"""Partitions that a rule of `klog status` finds, by topic, and how a finding names them; those that share hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klog.admin.health.findings import WARNING, Finding
from klog.client.metadata import Metadata, PartitionNode, TopicNode

SHOWN_MAX: Final = 12
"""Partitions named in a row; more are counted."""


def partitions_where(
    metadata: Metadata, is_bad: Callable[[TopicNode, PartitionNode], bool]
) -> Iterator[tuple[TopicNode, list[PartitionNode]]]:
    """Topics that have such partitions, and these."""
    for topic in metadata.topics.values():
        bad = [one for one in topic.partitions.values() if is_bad(topic, one)]
        if bad:
            yield topic, bad


def of_topic(bad: Sequence[PartitionNode], topic: TopicNode) -> str:
    """``partitions 0,2 (2 of 4)``."""
    shown = ",".join(str(one.partition) for one in bad[:SHOWN_MAX]) + (",..." if len(bad) > SHOWN_MAX else "")
    return f"partitions {shown} ({len(bad)} of {len(topic.partitions)})"


def crowded(metadata: Metadata, min_isr: Callable[[TopicNode, PartitionNode], int]) -> Iterator[Finding]:
    """Partitions of which so many replicas share a host that an acknowledged message may be on fewer hosts than
    ``min.insync.replicas`` says, while another host has none.

    Several brokers may be processes of one host, and die with it. A replica of a broker that is not alive counts as a
    host of its own: where it ran is not known.
    """
    hosts = {broker: node.host for broker, node in metadata.brokers.items()}
    every = set(hosts.values())

    def is_crowded(topic: TopicNode, one: PartitionNode) -> bool:
        used = Counter(hosts.get(broker, f"broker {broker}") for broker in one.replicas)
        minimum = min_isr(topic, one)
        return used.total() > len(used) and bool(every - used.keys()) and _fewest(used, minimum) < minimum

    for topic, bad in partitions_where(metadata, is_crowded):
        minimum = max(min_isr(topic, one) for one in bad)
        found = f"{of_topic(bad, topic)} have replicas that share a host: what is acknowledged may be on fewer hosts"
        do = f"`klog reassign plan --topics {topic.name} --file plan.json` spreads them"
        yield Finding(WARNING, f"topic {topic.name}", found, f"on {minimum} hosts", do, "shared-hosts")


def _fewest(used: Counter[str], replicas: int) -> int:
    """The fewest hosts that so many of the replicas can be on."""
    left = replicas
    for number, (_, count) in enumerate(used.most_common(), 1):
        left -= count
        if left <= 0:
            return number
    return len(used)
