"""What three replicas promise: what is acknowledged is on all that are in sync, and who returns catches up.

The brokers are real, and die as brokers die.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from tests.chance import noise
from tests.cluster.load import judge, load, produce, read, try_produce
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster


def followers(cluster: RunningCluster, topic: str) -> list[int]:
    leader = cluster.leader_of(topic)
    return [one for one in cluster.brokers if one != leader]


def texts(first: int, count: int) -> list[bytes]:
    return [b"%010d" % number + noise(50, number).hex().encode() for number in range(first, first + count)]


def test_a_follower_that_hangs_leaves_the_isr_and_comes_back(three: RunningCluster, topic: str) -> None:
    """Stopped, not dead: its connections stay open, so it is time that tells."""
    three.create(topic)
    follower = next(one for one in followers(three, topic) if one != three.controller())
    with load(three.bootstrap, topic) as running:
        three.pause(follower)
        three.wait_until(lambda: follower not in three.isr_of(topic), "the paused follower is out of the ISR")
        running.wait_for_more(50)
        three.cont(follower)
        three.wait_in_sync(topic)
    judge(running, three.bootstrap)
    assert_identical(three, topic)


def test_too_few_in_sync(three: RunningCluster, topic: str) -> None:
    """Two of three dead: acks=all is refused by name and not written; acks=1 and reads go on; all is well after."""
    three.create(topic)
    before = produce(three.bootstrap, topic, texts(0, 100))
    dead = followers(three, topic)
    survivor = three.leader_of(topic)
    three.kill(*dead)
    three.wait_until(lambda: three.isr_of(topic) == {survivor}, "the ISR is the leader alone")
    offsets, errors = try_produce(three.bootstrap, topic, [b"refused"], retries=0)
    assert offsets == [] and [one.code() for one in errors] == [KafkaError.NOT_ENOUGH_REPLICAS]
    assert produce(three.bootstrap, topic, [b"one will do"], acks=1)[0] > before[-1]
    assert len(read(three.bootstrap, topic)[0]) >= 100
    three.start(*dead)
    three.wait_in_sync(topic)
    produce(three.bootstrap, topic, texts(200, 50))
    values = [value for _, value in read(three.bootstrap, topic)[0]]
    assert len(values) == 151 and b"refused" not in values
    assert_identical(three, topic)
