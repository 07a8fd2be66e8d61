"""What a broker says of a partition that it does not lead, or does not know."""

from __future__ import annotations

from uuid import UUID

import pytest

from klog.errors import LeaderNotAvailable, NotLeader, UnknownTopicOrPartition
from klog.server.image import ClusterImage, PartitionImage, TopicImage
from klog.server.replicas.led_partitions import LedPartitions


def test_before_the_controller_has_described_the_cluster_no_partition_is_unknown() -> None:
    """A stock consumer that asks for a partition's start and hears that it does not exist resets its position."""
    image = ClusterImage()
    partitions = LedPartitions(1, image)
    with pytest.raises(NotLeader):
        partitions.leader_of("t", 0)
    image.known.set()
    with pytest.raises(UnknownTopicOrPartition):
        partitions.leader_of("t", 0)
    led = {0: PartitionImage(2, 0, (1, 2), (2,)), 1: PartitionImage(-1, 3, (1, 2), (2,))}
    image.topics["t"] = TopicImage("t", UUID(int=1), led, {})
    with pytest.raises(NotLeader):
        partitions.leader_of("t", 0)
    with pytest.raises(LeaderNotAvailable):
        partitions.leader_of("t", 1)
    with pytest.raises(UnknownTopicOrPartition):
        partitions.leader_of("t", 2)
