"""A replica whose disk has lost something in the middle takes it from its leader again, and loses nothing else (L2)."""

from __future__ import annotations

from collections.abc import Callable

from klog.record.batch import walk
from tests.chance import noise
from tests.cluster.load import load, produce, read
from tests.cluster.replica_bytes import assert_identical, flip, folder_of, segments
from tests.cluster_fixture import RunningCluster


def texts(count: int) -> list[bytes]:
    return [b"%010d" % number + noise(40, number).hex().encode() for number in range(count)]


def flip_a_bit_in_the_middle(cluster: RunningCluster, broker_id: int, topic: str) -> tuple[int, int]:
    """In the records of a batch half-way; the batch's addresses."""
    path = folder_of(cluster, broker_id, topic) / f"{0:020d}.log"
    batches = list(walk(path.read_bytes()))
    address, header = batches[len(batches) // 2]
    flip(path, address + 70)
    return address, header.next_address


def test_what_a_kill_and_a_bad_disk_have_left_is_filled_under_load(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    wrote = texts(1500)
    produce(three.bootstrap, topic, wrote, **{"batch.num.messages": 50})
    leader = three.leader_of(topic)
    victim = next(one for one in three.brokers if one != leader)
    with load(three.bootstrap, topic) as running:
        three.kill(victim)
        first, end = flip_a_bit_in_the_middle(three, victim, topic)
        for checkpoint in (three.brokers[victim].folder / "data").glob("*checkpoint"):
            if "high" not in checkpoint.name and "replication" not in checkpoint.name:
                checkpoint.unlink()  # or the files are believed up to the recovery point, as they should be
        three.start(victim)
        three.wait_in_sync(topic)
        running.wait_for_more(30)
    assert running.failed == []
    three.brokers[victim].wait_for_log(f" {first} to {end} ", "from broker")
    assert assert_identical(three, topic) > 0
    assert not list(folder_of(three, victim, topic).glob("*.damaged"))
    assert len(segments(folder_of(three, victim, topic))) == 3


def test_rot_that_the_scrubber_finds_is_repaired(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(2, log__scrubber__interval__ms="500")
    cluster.start()
    cluster.create(topic, factor=2)
    produce(cluster.bootstrap, topic, texts(1000), **{"batch.num.messages": 50})
    leader = cluster.leader_of(topic)
    victim = next(one for one in cluster.brokers if one != leader)
    first, end = flip_a_bit_in_the_middle(cluster, victim, topic)
    cluster.brokers[victim].wait_for_log(f" {first} to {end} ", "from broker")
    assert assert_identical(cluster, topic) > 0
    assert len(read(cluster.bootstrap, topic)[0]) == 1000
