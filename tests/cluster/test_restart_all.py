"""All brokers die at once, and come back: everything that was acknowledged is there, and it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.load import judge, load
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
    judge(running, three.bootstrap)
    three.wait_in_sync(topic)
    assert_identical(three, topic, PARTITIONS)
