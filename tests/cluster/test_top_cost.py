"""Goal: looking costs a cluster next to nothing: `klog top` under 2 % of a core with 1,000 partitions and 100 groups.

Method: real brokers and members, and the processor time of brokers and ZooKeeper with `klog top` and without it, in
turn. `pytest -s -m timed` shows the figures.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.processes import cpu_seconds
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from tests.cli.process import started
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import make_topic, send
from tests.zookeeper_fixture import klog_home

GROUPS = 100
PARTITIONS = 10
"""Of each group's topic: 1,000 in all, 3,000 replicas."""
ROUNDS = 4
WINDOW_S = 30.0
"""Longer than the slowest part of `klog top` waits between two looks."""
LIMIT = 0.02


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """Its own: what others ask of it would be counted."""
    server = embedded.start(tmp_path / "zookeeper", cache=klog_home() / "cache")
    server.await_serving()
    yield server
    server.stop()


@pytest.mark.timed
@pytest.mark.timeout(1800)
def test_a_thousand_partitions_and_a_hundred_groups(
    make_cluster: Callable[..., RunningCluster], zookeeper: ZooKeeperServer
) -> None:
    cluster = make_cluster(3, default__replication__factor="3").start()
    topics = [f"t{number:03d}" for number in range(GROUPS)]
    for topic in topics:
        make_topic(cluster.bootstrap, topic, PARTITIONS)
        send(cluster.bootstrap, topic, b"a message\n" * 200)
    brokers = [one.pid for one in cluster.brokers.values()]
    everybody = [*brokers, zookeeper.identity.pid]
    with members(cluster.bootstrap, topics):
        for topic in topics:
            send(cluster.bootstrap, topic, b"a message\n" * 100)  # their lag
        spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(ROUNDS):
            spent[False].append(cores(brokers, everybody))
            with top(cluster.bootstrap):
                spent[True].append(cores(brokers, everybody))
    without, beside = ([sum(one) / ROUNDS for one in zip(*spent[is_on], strict=True)] for is_on in (False, True))
    cost, of_all = beside[0] - without[0], beside[1] - without[1]
    print(f"brokers: {without[0]:.1%} of a core without top, {beside[0]:.1%} with it: {cost:+.2%}")
    print(f"brokers and ZooKeeper: {without[1]:.1%} without, {beside[1]:.1%} with it: {of_all:+.2%}")
    print("rounds, brokers:", *(f"{b[0] - a[0]:+.2%}" for a, b in zip(spent[False], spent[True], strict=True)))
    assert max(cost, of_all) < LIMIT


def cores(brokers: list[int], everybody: list[int]) -> tuple[float, float]:
    """Processor time per second in the next seconds, of the brokers, and of ZooKeeper beside them."""
    before = cpu_seconds(brokers), cpu_seconds(everybody)
    began = time.monotonic()
    time.sleep(WINDOW_S)
    seconds = time.monotonic() - began
    return (cpu_seconds(brokers) - before[0]) / seconds, (cpu_seconds(everybody) - before[1]) / seconds


@contextmanager
def top(bootstrap: str) -> Iterator[None]:
    """`klog top` in a pipe, once it shows all of it."""
    with started("top", "-o", "jsonl", "-B", bootstrap, stderr=None) as process:
        assert process.stdout is not None
        while True:
            tick = json.loads(process.stdout.readline())
            if len(tick["groups"] or ()) >= GROUPS and len(tick["topics"]) >= GROUPS:
                break
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(process.stdout.read)
            yield
            assert process.poll() is None
            process.terminate()
            assert len(rest.result().splitlines()) > WINDOW_S / 4


@contextmanager
def members(bootstrap: str, topics: list[str]) -> Iterator[None]:
    """A member of a group for each topic, which has committed an offset in each partition, and reads no further."""
    made = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"group-{topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5_000,
                "session.timeout.ms": 45_000,
            }
        )
        for topic in topics
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            list(pool.map(take_part, made, topics))
            yield
        finally:
            list(pool.map(Consumer.close, made))


def take_part(member: Consumer, topic: str) -> None:
    member.subscribe([topic])
    while len(member.assignment()) < PARTITIONS:
        member.poll(0.1)
    mine = member.assignment()
    member.pause(mine)
    member.commit(offsets=[TopicPartition(topic, one.partition, 0) for one in mine], asynchronous=False)
