"""The partitions that this broker leads, by name."""

from __future__ import annotations

from klog.errors import LeaderNotAvailable, NotLeader, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.replication.led_partition import LedPartition
from klog.server.image import ClusterImage


class LedPartitions(dict[TopicPartition, LedPartition]):
    """Event loop only. Only `Replicas` adds and removes partitions."""

    def __init__(self, broker_id: int, image: ClusterImage) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._image = image

    def leader_of(self, topic: str, partition: int) -> LedPartition:
        """The partition, if this broker leads it.

        Raises UnknownTopicOrPartition; LeaderNotAvailable if it has no leader; NotLeader if another broker leads, or
        this one has just started and knows no partition: librdkafka takes UnknownTopicOrPartition for an answer about
        its offset, and resets a consumer that has not begun as its settings say.
        """
        found = self.get(TopicPartition(topic, partition))
        if found is not None:
            return found
        known = self._image.topics.get(topic)
        if known is None or partition not in known.partitions:
            if not self._image.known.is_set():
                raise NotLeader(f"broker {self._broker_id} has just started and does not know {topic}-{partition} yet")
            raise UnknownTopicOrPartition(f"partition {topic}-{partition} does not exist")
        if known.partitions[partition].leader < 0:
            raise LeaderNotAvailable(f"{topic}-{partition} has no leader")
        raise NotLeader(f"broker {self._broker_id} does not lead {topic}-{partition}")
