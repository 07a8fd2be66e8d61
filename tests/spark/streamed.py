"""What a stream has written to a topic, read by a consumer that knows nothing of streams."""

from __future__ import annotations

from typing import Any

from tests.spark.conftest import TopicOnBroker


def messages_of(topic: TopicOnBroker) -> list[Any]:
    """All messages with their headers, partition by partition, as `klog.record.records.Record`s."""
    from klog.client.raw_fetch import Range, RawCluster
    from klog.names import TopicPartition
    from klog.record.batch import walk
    from klog.record.records import each_record

    found = []
    with RawCluster(topic.bootstrap) as cluster:
        numbers = sorted(cluster.describe([topic.name])[topic.name].partitions)
        partitions = [TopicPartition(topic.name, one) for one in numbers]
        starts, ends = cluster.bounds(partitions)
        for one in partitions:
            for run in cluster.fetch(Range(one.topic, one.partition, starts[one], ends[one])):
                for position, _ in walk(run):
                    found += each_record(run, position)
    return found
