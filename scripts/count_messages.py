"""Counts a topic's messages with a stock Kafka client: librdkafka by confluent-kafka, nothing of klog.

python scripts/count_messages.py BOOTSTRAP TOPIC
"""

from __future__ import annotations

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def main(bootstrap: str, topic: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "count",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    metadata = consumer.list_topics(topic, timeout=10)
    left = set(metadata.topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
    count = 0
    while left:
        for message in consumer.consume(10_000, timeout=10):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == -191:  # _PARTITION_EOF: this client's word for the end
                left.discard(message.partition())
            else:
                raise SystemExit(f"{topic}-{message.partition()}: {error.str()}")
    consumer.close()
    return count


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(main(sys.argv[1], sys.argv[2]))
