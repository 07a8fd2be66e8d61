"""`tail --replica`: what one broker has of a topic, led by it, followed by it, or led by nobody."""

from __future__ import annotations

import asyncio
import json

import pytest
from confluent_kafka import Producer

from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.errors import BrokerNotAvailable, ReplicaNotAvailable, UsageError
from klog.tools.options import TailOptions
from klog.tools.tail import tail
from tests.cluster.load import produce
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import Arrivals, read

ALL = parse_range("start:end")


def lines(*numbers: int) -> bytes:
    return b"".join(b"%d\n" % number for number in numbers)


def shown(cluster: RunningCluster, topic: str, replica: int) -> bytes:
    """All that this broker has."""
    return read(cluster.bootstrap, topic, replica=replica, offset=ALL)[0]


def test_a_follower_shows_what_its_leader_does(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2, 3], [2, 1, 3]])
    producer = Producer({"bootstrap.servers": three.bootstrap, "acks": "all"})
    for number in range(400):
        headers = [("n", b"%d" % number), ("none", None)] if number % 2 else None
        producer.produce(topic, b"v%d" % number, b"k" if number % 3 else None, number % 2, headers=headers)
    assert producer.flush(30) == 0
    leaders = read(three.bootstrap, topic, offset=ALL, merge_by_time=True, output="jsonl")[0]
    assert len(leaders.splitlines()) == 400
    for replica in (1, 2, 3):
        # An acknowledgement says that all have flushed it; that they may show it follows with the next answer.
        three.wait_until(lambda replica=replica: len(shown(three, topic, replica).splitlines()) == 400, "all committed")  # type: ignore[misc]
        found = read(three.bootstrap, topic, replica=replica, offset=ALL, merge_by_time=True, output="jsonl")[0]
        assert found == leaders
    some = json.loads(leaders.splitlines()[100])
    offset, partition = some["offset"], some["partition"]
    form = {"output": "format", "format": "%o %e %]\n", "count": 1, "partitions": (partition,)}
    one = [
        read(three.bootstrap, topic, offset=parse_range(str(offset)), replica=replica, **form)[0]
        for replica in (None, 1, 2, 3)
    ]
    assert len(set(one)) == 1
    assert one[0].startswith(b"%d 0 " % offset)
    last = read(three.bootstrap, topic, replica=3, last=3, until_end=True)[0]
    assert last == read(three.bootstrap, topic, last=3, until_end=True)[0]


def test_what_comes_is_followed(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, [b"before"])

    async def follow() -> bytes:
        arrivals = Arrivals()
        async with await Cluster.connect(three.bootstrap, source="the test") as cluster:
            options = TailOptions(replica=2, offset=parse_range("start"), count=101)
            reading = asyncio.ensure_future(tail(cluster, [topic], options, arrivals))
            await arrivals.wait_for(b"before")
            await asyncio.to_thread(produce, three.bootstrap, topic, [b"%d" % number for number in range(100)])
            await asyncio.wait_for(reading, 30)
        return arrivals.getvalue()

    assert asyncio.run(follow()) == b"before\n" + lines(*range(100))


def test_a_broker_without_a_replica_is_told_from_one_that_is_not_there(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2], [2, 3]])
    for number in range(10):
        produce(three.bootstrap, topic, [b"%d" % number], partition=number % 2)
    three.wait_until(lambda: shown(three, topic, 1) == lines(0, 2, 4, 6, 8), "of its own partition alone")
    with pytest.raises(ReplicaNotAvailable, match=rf"broker 1 .*{topic}-1: .*brokers 2, 3"):
        read(three.bootstrap, topic, replica=1, partitions=(0, 1), offset=ALL)
    with pytest.raises(BrokerNotAvailable, match="broker 9"):
        read(three.bootstrap, topic, replica=9, offset=ALL)
    with pytest.raises(UsageError, match="-G"):
        read(three.bootstrap, topic, replica=1, group="g")


def test_what_is_left_of_a_partition_that_nobody_leads(three: RunningCluster, topic: str) -> None:
    """A replica that has missed something may not lead, and shows what it has."""
    three.create(topic, assignment=[[1, 2]], min_insync_replicas="1")
    produce(three.bootstrap, topic, [b"1", b"2"])
    three.wait_until(lambda: shown(three, topic, 2) == lines(1, 2), "the follower knows that they are committed")
    three.stop(2)
    three.wait_until(lambda: three.isr_of(topic) == {1}, "the leader is alone")
    produce(three.bootstrap, topic, [b"3"])
    assert shown(three, topic, 1) == lines(1, 2, 3)
    three.stop(1)
    three.start(2)
    three.wait_until(lambda: three.leader_of(topic) == -1, "nobody leads")
    assert shown(three, topic, 2) == lines(1, 2)
    with pytest.raises(BrokerNotAvailable, match="broker 1"):
        shown(three, topic, 1)
    three.start(1)
    three.wait_in_sync(topic)
    three.wait_until(lambda: shown(three, topic, 2) == lines(1, 2, 3), "it has followed")
