"""ProduceAt with followers: what commits it, and what is in the way."""

from __future__ import annotations

from collections.abc import Callable

from klog.errors import EndMoved, NotEnoughReplicas, RequestTimedOut
from tests.cluster_fixture import RunningCluster
from tests.server.asking import error, offsets
from tests.server.test_produce_at import facts, one, produce_at


def test_acknowledged_when_committed_and_the_end_is_the_logs(
    make_cluster: Callable[..., RunningCluster], topic: str
) -> None:
    """What is appended and not committed yet is in the way too, or it could be committed in between."""
    cluster = make_cluster(2, min__insync__replicas="2", replica__lag__time__max__ms="20000").start()
    cluster.create(topic, factor=2)
    leader = cluster.leader_of(topic)
    bootstrap = cluster.brokers[leader].bootstrap
    epoch, _ = facts(bootstrap, topic)
    (first,) = produce_at(bootstrap, one(topic, 0, epoch))
    assert error(first) == 0
    cluster.pause(3 - leader)
    (late,) = produce_at(bootstrap, one(topic, first.end_offset, epoch), timeout_ms=300)
    assert error(late) == RequestTimedOut.wire
    assert late.end_offset > first.end_offset
    assert offsets(bootstrap, topic) == (0, first.end_offset)
    (refused,) = produce_at(bootstrap, one(topic, first.end_offset, epoch))
    assert (error(refused), refused.end_offset) == (EndMoved.wire, late.end_offset)
    cluster.cont(3 - leader)
    cluster.wait_until(lambda: offsets(bootstrap, topic)[1] == late.end_offset, "what was appended is committed")
    cluster.kill(3 - leader)
    cluster.wait_until(lambda: cluster.isr_of(topic) == {leader}, "the dead one is out")
    epoch, _ = facts(bootstrap, topic)
    (refused,) = produce_at(bootstrap, one(topic, late.end_offset, epoch))
    assert error(refused) == NotEnoughReplicas.wire
    assert offsets(bootstrap, topic) == (0, late.end_offset)
