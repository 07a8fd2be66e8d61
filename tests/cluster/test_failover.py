"""Who leads and who controls dies, or hangs: another takes over, and nothing that was acknowledged is lost or doubled.

How long nothing was acknowledged is recorded with each test, not judged: a busy machine is no fault. That a refused
connection tells sooner than the session's end is judged in `test_groups_placed.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.runner import klog
from tests.cluster.load import judge, load
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster

Record = Callable[[str, object], None]


def test_the_leader_hangs(three: RunningCluster, topic: str, record_property: Record) -> None:
    """No connection is refused, so the session's end tells; the old leader finds out when it runs again.

    The producer gives a broker that does not answer up after a second: by default it takes longer than the cluster.
    """
    three.create(topic)
    with load(three.bootstrap, topic, **{"socket.timeout.ms": 1000, "request.timeout.ms": 1000}) as running:
        leader = three.leader_of(topic)
        three.pause(leader)
        three.wait_for_leader(topic, other_than=leader)
        running.wait_for_more(50)
        said = klog("status", "-B", three.bootstrap, "-o", "json")
        assert said.code == 1 and f"kill -CONT {three.brokers[leader].pid}" in said.stdout
        three.cont(leader)
        three.wait_in_sync(topic)
        running.wait_for_more(30)
    record_property("longest_s_without_ack", round(running.longest_gap_s(), 3))
    judge(running, three.bootstrap)
    assert_identical(three, topic)
