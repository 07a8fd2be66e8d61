"""A replica that was not in sync leads where its topic allows it, and nowhere else."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from klog.admin.settings import describe_settings
from klog.client.cluster import Cluster
from tests.cluster.load import produce, read
from tests.cluster.replica_bytes import folder_of
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import run


def test_a_brokers_setting_lets_no_stale_replica_lead(make_cluster: Callable[..., RunningCluster]) -> None:
    """Kafka 0.8's files have it as true. What was acknowledged by those in sync is waited for, and is there."""
    cluster = make_cluster(2, unclean__leader__election__enable="true").start()
    safe = cluster.create("safe", assignment=[[1, 2]])
    given_up = cluster.create("given-up", assignment=[[1, 2]], unclean_leader_election_enable="true")
    assert cluster.brokers[1].logged("WARNING", "unclean.leader.election.enable")
    for topic in (safe, given_up):
        produce(cluster.bootstrap, topic, [b"both"])
    cluster.kill(2)
    for topic in (safe, given_up):
        cluster.wait_until(lambda topic=topic: cluster.isr_of(topic) == {1}, "broker 2 is out of the ISR")  # type: ignore[misc]
        produce(cluster.bootstrap, topic, [b"one alone"])
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_until(lambda: cluster.leader_of(given_up) == 2, "its topic lets it lead")
    assert cluster.leader_of(safe) == -1  # both were settled at once, when broker 2 came
    assert cluster.isr_of(safe) == {1}

    async def shown(running: Cluster) -> list[str | None]:
        found = await describe_settings(running, [safe, given_up], names=["unclean.leader.election.enable"])
        return [found[topic][0].value for topic in (safe, given_up)]

    assert run(cluster.brokers[2].bootstrap, shown) == ["false", "true"]
    folder = folder_of(cluster, 1, safe)
    kept = shutil.move(folder, cluster.folder / "kept")
    cluster.start(1)
    cluster.wait_in_sync(given_up)  # by then the controller has heard of all that broker 1 has
    assert (cluster.leader_of(safe), cluster.isr_of(safe), folder.exists()) == (-1, {1}, False), "emptied: nobody leads"
    cluster.kill(1)
    shutil.move(kept, folder)
    cluster.start(1)
    cluster.wait_in_sync(safe)
    assert [value for _, value in read(cluster.bootstrap, safe)[0]] == [b"both", b"one alone"]
    assert [value for _, value in read(cluster.bootstrap, given_up)[0]] == [b"both"]
