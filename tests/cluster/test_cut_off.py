"""A leader, or one that is controller too, whom clients and ZooKeeper reach and no other broker does: others take over.

Nobody is refused and nobody's session ends, so that nothing says who is dead. Method: proxies between the brokers, one
topic with ``min.insync.replicas`` of 2, and a stock producer with acks=all that has to be answered during the cut.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.faults.cluster import FaultCluster
from tests.until import until

LAG_MS = 3000
WITHIN_S = 40.0
QUICK = {"socket.timeout.ms": 1500, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


def acknowledged(cluster: FaultCluster, topic: str, how: str) -> None:
    """A message sent now is acknowledged by all, as long as that may take."""
    told: list[object] = []

    def on_delivery(error: object, message: Message) -> None:
        told.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **QUICK})
    producer.produce(topic, b"x", how.encode(), partition=0, on_delivery=on_delivery)
    assert producer.flush(WITHIN_S) == 0, f"not acknowledged {how}"
    assert told[0] is None


@pytest.mark.slow
@pytest.mark.long("unsteady on a busy machine: tests/unsteady.md")
@pytest.mark.parametrize("controls", [True, False])
def test_what_no_follower_reaches_is_led_by_another_and_acks_of_all_go_on(tmp_path: Path, controls: bool) -> None:
    settings = {"replica.lag.time.max.ms": str(LAG_MS), "log.flush.interval.ms": "1000"}
    with FaultCluster(tmp_path, settings=settings) as cluster:
        holder = cluster.controller()
        assert holder is not None
        victim = holder if controls else next(one for one in cluster.nodes if one != holder)
        others = [one for one in cluster.nodes if one != victim]
        topic = f"cut-{secrets.token_hex(3)}"
        cluster.create_topic(topic, [[victim, *others]], {"min.insync.replicas": "2"})
        acknowledged(cluster, topic, "before")
        away = cluster.links([victim], [f"b{one}" for one in others])
        both = [*away, *((there, here) for here, there in away)]
        cluster.network.cut(both)
        acknowledged(cluster, topic, "while it is cut off")

        def is_theirs() -> bool:
            leader, in_sync = cluster.state(topic, 0)[:2]
            return leader in others and set(in_sync) == set(others)

        until(is_theirs, f"{others} lead, and are in sync", WITHIN_S)
        assert cluster.controller() in others
        assert cluster.registered() == set(cluster.nodes)
        cluster.network.heal(both)
        assert cluster.await_whole(topic, 1, WITHIN_S) == []
        acknowledged(cluster, topic, "after")
