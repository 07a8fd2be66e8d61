"""All brokers die at once, and come back: everything that was acknowledged is there, and it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cluster.load import judge, load, produce, read
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster

Record = Callable[[str, object], None]
PARTITIONS = 3


def test_all_three(three: RunningCluster, topic: str, record_property: Record) -> None:
    three.create(topic, PARTITIONS)
    with load(three.bootstrap, topic, PARTITIONS) as running:
        three.kill(1, 2, 3)
        acked = running.count()
        begun = time.monotonic()
        three.start()
        running.wait_for_more(1)
        record_property("s_from_start_to_first_ack", round(time.monotonic() - begun, 3))
        running.wait_for_more(60)
        assert running.count() > acked
    assert running.failed == []
    judge(running, three.bootstrap)
    three.wait_in_sync(topic)
    assert_identical(three, topic, PARTITIONS)


@pytest.mark.long("test_rolling_restart.py")
def test_one_comes_back_long_before_the_others(three: RunningCluster, topic: str) -> None:
    """Alone it leads what flushes every append (rule R1), and acknowledges nothing below min.insync.replicas."""
    three.create(topic)
    offsets = produce(three.bootstrap, topic, [b"%d" % number for number in range(500)])
    three.kill(1, 2, 3)
    three.start(2)
    three.wait_until(lambda: three.leader_of(topic) == 2, "broker 2 leads alone")
    assert [offset for offset, _ in read(three.brokers[2].bootstrap, topic)[0]] == offsets
    three.start()
    three.wait_in_sync(topic)
    assert [offset for offset, _ in read(three.bootstrap, topic)[0]] == offsets
    assert_identical(three, topic)
