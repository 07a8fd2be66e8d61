"""Partitions that a rule of `klog status` finds, by topic, and how a finding names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
