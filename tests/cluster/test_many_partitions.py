"""A thousand partitions with three replicas each: one broker dies, and every partition is led again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.load import produce
from tests.cluster_fixture import RunningCluster

PARTITIONS = 1000


@pytest.mark.long("a thousand partitions with three replicas each")
def test_a_broker_with_a_third_of_a_thousand_leaders_is_killed(
    make_cluster: Callable[..., RunningCluster], topic: str, record_property: Callable[[str, object], None]
) -> None:
    cluster = make_cluster(3, log__segment__bytes="1048576").start()
    cluster.create(topic, PARTITIONS)
    victim = next(one for one in cluster.brokers if one != cluster.controller())
    survivors = [one for one in cluster.brokers if one != victim]
    led = [number for number, part in cluster.partitions(topic).items() if part.leader_id == victim]
    assert len(led) > PARTITIONS // 4
    epochs = {number: part.leader_epoch for number, part in cluster.partitions(topic).items()}
    produce(cluster.bootstrap, topic, [b"before"], led[0])
    cluster.kill(victim)

    def led_again() -> bool:
        return all(part.leader_id in survivors for one in survivors for part in cluster.partitions(topic, one).values())

    record_property("s_until_all_led", round(cluster.wait_until(led_again, "all partitions led"), 3))
    now = cluster.partitions(topic)
    assert all(now[number].leader_epoch > epochs[number] for number in led)
    assert all(now[number].leader_epoch == epochs[number] for number in now if number not in led)
    assert all(set(part.isr_nodes) == set(survivors) for part in now.values())
    produce(cluster.bootstrap, topic, [b"after"], led[0])
    cluster.start(victim)
    record_property("s_until_in_sync", round(cluster.wait_in_sync(topic), 3))
