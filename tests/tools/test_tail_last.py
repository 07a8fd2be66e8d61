"""``tail -n``: the last messages, where their times are out of order."""

import pytest
from confluent_kafka import Producer

from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, read


@pytest.mark.parametrize(
    ("last", "shown"), [(1, b"b3"), (3, b"a3 a4 b3"), (4, b"a2 a3 a4 b3"), (8, b"b1 b2 a1 a2 a3 a4 b3")]
)
def test_the_last_messages_of_a_partition_keep_its_order(
    broker: RunningBroker, topic: str, last: int, shown: bytes
) -> None:
    make_topic(broker.bootstrap, topic, 2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for partition, value, seconds in [
        *((0, "a1", 50), (0, "a2", 90), (0, "a3", 10), (0, "a4", 20)),
        *((1, "b1", 30), (1, "b2", 25), (1, "b3", 95)),
    ]:
        producer.produce(topic, value, partition=partition, timestamp=10**12 + seconds * 1000)
    assert producer.flush(10) == 0
    found, summary, _ = read(broker.bootstrap, topic, last=last, until_end=True)
    assert found.split() == shown.split()
    assert summary.earlier == 7 - len(shown.split())
    if last > 7:
        assert read(broker.bootstrap, topic, last=7, until_end=True, merge_by_time=True)[0] == found
