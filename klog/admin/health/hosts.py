"""What `klog status` says of hosts: whether what is acknowledged outlives one of them.

``min.insync.replicas`` counts brokers. Several of them may be processes of one host, and die with it. A replica of a
broker that is not alive counts as a host of its own: where it ran is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from klog.admin.health.findings import WARNING, Finding
from klog.admin.health.partition_texts import of_topic, partitions_where

if TYPE_CHECKING:
    from klog.client.metadata import Metadata, PartitionNode, TopicNode


def crowded(metadata: Metadata, min_isr: Callable[[TopicNode, PartitionNode], int]) -> Iterator[Finding]:
    """Partitions of which so many replicas share a host that an acknowledged message may be on fewer hosts than
    ``min.insync.replicas`` says, while another host has none."""
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
