"""What proves and shows a cluster, with one broker of three harmed: `topic verify`, `status`, `check`, `lost`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from klog.admin import brokers, partitions, topics
from klog.admin.quarantine import list_lost
from klog.client.cluster import Cluster
from klog.protocol.apis import ApiKey
from klog.tools.verify_replicas import ReplicaRow, verify_replicas
from tests.cli.example_lines import example
from tests.cli.runner import klog
from tests.cluster.load import load
from tests.cluster.replica_bytes import flip, folder_of
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import check, read, run, send

VALUES = b"".join(b"%06d %s\n" % (number, b"x" * 100) for number in range(3_000))


def verified(cluster: RunningCluster, *names: str, **options: float) -> list[ReplicaRow]:
    return run(cluster.bootstrap, lambda connected: verify_replicas(connected, names, **options))  # type: ignore[arg-type]


def segment(cluster: RunningCluster, broker_id: int, topic: str, partition: int = 0) -> Path:
    """The one file of a replica."""
    (path,) = folder_of(cluster, broker_id, topic, partition).glob("*.log")
    return path


def filled(cluster: RunningCluster, topic: str, partitions_: int = 1, **settings: str) -> str:
    cluster.create(topic, partitions_, **settings)
    assert send(cluster.bootstrap, topic, VALUES, batch_messages=100).is_complete
    return topic


def test_flipped_bits_are_found_where_they_are_at_a_rate(three: RunningCluster, topic: str) -> None:
    """In the leader's replica, and in two followers' at once, each at a place of its own."""
    filled(three, topic)
    leader = three.leader_of(topic)
    one, two = (broker for broker in (1, 2, 3) if broker != leader)
    paths = {broker: segment(three, broker, topic) for broker in (1, 2, 3)}
    size = paths[leader].stat().st_size

    async def timed(cluster: Cluster) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await verify_replicas(cluster, [topic], rate_bytes=size * 2)
        return loop.time() - began

    for places in ({leader: size // 2}, {one: size // 3, two: size // 2}):
        for broker, at in places.items():
            flip(paths[broker], at)
        rows = {row.broker: row for row in verified(three, topic)}
        assert {broker: row.first_difference for broker, row in rows.items() if row.state == "damaged"} == places
        assert [row.state for row in rows.values()].count("ok") == 3 - len(places)
        ran = klog("topic", "verify", topic, "-B", three.bootstrap)
        assert ran.code == 1 and all(str(at) in ran.stdout for at in places.values())
        for broker, at in places.items():
            flip(paths[broker], at)
    rows = {row.broker: row for row in verified(three, topic)}
    assert {row.state for row in rows.values()} == {"ok"} and len({(row.bytes, row.crc) for row in rows.values()}) == 1
    assert run(three.bootstrap, timed) >= 0.45
    assert klog("topic", "verify", topic, "-B", three.bootstrap).code == 0


def test_with_one_broker_dead_nothing_fails_and_everything_is_said(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3, default__replication__factor="3", min__insync__replicas="2").start()
    filled(cluster, "t")
    cluster.create("alone", assignment=[[3]], min_insync_replicas="1")
    cluster.create("pair", assignment=[[1, 3]])
    victim = 3
    cluster.kill(victim)
    cluster.wait_until(lambda: cluster.isr_of("t") == {1, 2}, "broker 3 is out of the ISR")
    cluster.wait_until(lambda: cluster.leader_of("alone") == -1, "nobody leads")
    cluster.wait_until(lambda: cluster.isr_of("pair") == {1}, "broker 1 is alone in the ISR")

    rows = {(row.topic, row.broker): row for row in verified(cluster)}
    assert {broker: rows["t", broker].state for broker in (1, 2, 3)} == {1: "ok", 2: "ok", 3: "error"}
    assert rows["t", 3].error == "CANNOT_CONNECT"

    listed = {row.broker: row for row in run(cluster.bootstrap, brokers.list_brokers)}
    assert {number: row.state == "dead" for number, row in listed.items()} == {1: False, 2: False, 3: True}
    assert (listed[3].host, listed[3].leaders, listed[3].since) == (None, 0, None)

    said = klog("status", "-B", cluster.bootstrap, "-o", "json")
    about = json.loads(said.stdout)
    assert said.code == 1 and about["verdict"] == "BROKEN"
    assert {one["broker"]: one["state"] for one in about["brokers"]} == {1: "up", 2: "up", 3: "dead"}
    assert about["partitions"]["offline"] == 1 and about["partitions"]["refusing"] == 1

    everything = {row.topic: row for row in run(cluster.bootstrap, partitions.list_partitions)}
    assert (set(everything["t"].isr), everything["t"].messages) == ({1, 2}, 3_000)
    assert (everything["alone"].leader, everything["alone"].messages, everything["alone"].replicas) == (
        None,
        None,
        (3,),
    )

    def chosen(**filters: bool) -> set[str]:
        return {row.topic for row in run(cluster.bootstrap, lambda one: partitions.list_partitions(one, **filters))}

    assert chosen(offline=True) == {"alone"}
    assert chosen(under_replicated=True) >= {"t"}
    assert chosen(under_min_isr=True) == {"pair"}
    assert "pair" not in chosen(at_min_isr=True)
    assert {row.topic for row in run(cluster.bootstrap, partitions.list_partitions)} > chosen(at_min_isr=True) > set()
    receipt = send(cluster.bootstrap, "pair", b"a\n", librdkafka={"message.timeout.ms": "1000"})
    assert (receipt.messages, receipt.failed) == (0, 1)
    assert "pair-0" in (receipt.first_error or "") and "min.insync.replicas" in (receipt.first_error or "")
    summary = {row.topic: row for row in run(cluster.bootstrap, topics.list_topics)}
    assert (summary["t"].under_replicated, summary["t"].messages, summary["alone"].messages) == (1, 3_000, None)

    found = {one.kind for one in asyncio.run(check(cluster.bootstrap, None))}
    assert {"dead-broker", "under-replicated", "under-min-isr", "offline-partitions"} <= found
    lost = run(cluster.bootstrap, list_lost)
    assert [(row.broker, row.error) for row in lost] == [(3, "CANNOT_CONNECT")]
    for words in (["topic", "list"], ["topic", "describe", "alone"], ["broker", "list"], ["zk", "tree"]):
        assert klog(*words, "-B", cluster.bootstrap).code == 0, words

    cluster.start(3)
    cluster.wait_in_sync("t")
    cluster.wait_in_sync("alone")
    assert {row.state for row in verified(cluster, "t")} == {"ok"}
    assert asyncio.run(check(cluster.bootstrap, None, ["topics", "zookeeper"], wait_s=20)) == []
    assert {one.kind for one in asyncio.run(check(cluster.bootstrap, None, ["brokers"]))} <= {"unpreferred-leaders"}


def test_what_an_unclean_election_cuts_off_is_listed_shown_and_sent_again(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]], unclean_leader_election_enable="true", min_insync_replicas="1")
    again = three.create(f"{topic}-again", assignment=[[3]], min_insync_replicas="1")
    everybody = b"".join(b"both %d\n" % number for number in range(20))
    assert send(three.bootstrap, topic, everybody).is_complete
    three.wait_in_sync(topic)
    three.kill(2)
    three.wait_until(lambda: three.isr_of(topic) == {1}, "broker 2 is out of the ISR")
    alone = b"".join(b"alone %d\n" % number for number in range(30))
    assert send(three.bootstrap, topic, alone).is_complete
    three.kill(1)
    three.start(2)
    three.wait_until(lambda: three.leader_of(topic) == 2, "broker 2 leads, though it was not in sync")
    assert send(three.bootstrap, topic, b"after\n").is_complete
    three.start(1)
    three.wait_in_sync(topic)

    assert {row.state for row in verified(three, topic)} == {"ok"}
    rows = [row for row in run(three.bootstrap, list_lost) if row.topic == topic]
    assert {(row.partition, row.broker, row.error) for row in rows} == {(0, 1, None)}
    assert sum(row.messages or 0 for row in rows) == 30
    at = ["-B", three.bootstrap]
    shown = klog("lost", "show", topic, *at)
    assert (shown.code, shown.stdout.encode()) == (0, alone)
    assert "lost" in {one.kind for one in asyncio.run(check(three.bootstrap, None, ["topics"]))}
    planned = klog("lost", "replay", topic, "--to", again, "--dry-run", "-o", "json", *at)
    assert (planned.code, [row["messages"] for row in planned.rows]) == (0, [30])
    assert klog("topic", "list", again, "-o", "json", *at).rows[0]["messages"] == 0
    by_example = example("klog lost show clicks -p 0 --broker 1", clicks=topic)
    assert klog(*by_example, *at) == shown
    replayed = klog("lost", "replay", topic, "--to", again, *at)
    assert replayed.code == 0, replayed.stderr
    written, _ = read(three.bootstrap, again, last=100, until_end=True)
    assert written == alone
    back = example("klog lost replay clicks -p 0 --broker 1 --to clicks", clicks=topic)
    assert klog(*back, *at).code == 0
    written, _ = read(three.bootstrap, topic, last=30, until_end=True)
    assert written == alone


def test_under_load_and_while_a_log_begins_later_no_replica_is_accused(three: RunningCluster, topic: str) -> None:
    filled(three, topic, segment_bytes="20000")
    small = sum(row.bytes or 0 for row in verified(three, topic)[:1])
    end = run(three.bootstrap, lambda one: partitions.describe_topics(one, [topic]))[0].log_end_offset or 0
    with load(three.bootstrap, topic):

        async def while_records_go(cluster: Cluster) -> list[ReplicaRow]:
            proving = asyncio.create_task(verify_replicas(cluster, [topic], rate_bytes=small))
            await asyncio.sleep(0.3)  # a third of the way
            leader = (await cluster.topic(topic)).partitions[0].leader
            assert leader is not None
            asked = {"name": topic, "partitions": [{"partition_index": 0, "offset": end * 3 // 4}]}
            answer = await cluster.to_broker(leader, ApiKey.DELETE_RECORDS, 2, topics=[asked], timeout=5_000)
            assert answer.topics[0].partitions[0].error_code.value == 0
            return await proving

        rows = run(three.bootstrap, while_records_go)
        assert {row.state for row in rows} == {"ok"}, rows
        assert len({(row.bytes, row.crc) for row in rows}) == 1
        for _ in range(3):
            assert {row.state for row in verified(three, topic)} == {"ok"}
