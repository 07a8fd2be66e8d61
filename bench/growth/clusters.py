"""Curves of several brokers: their number, the replication factor by kind of acks, many replicated partitions."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, KafkaException

from bench.cluster_systems import BROKERS, SETTINGS, Cluster, KafkaCluster, KlogCluster, KraftCluster
from bench.cluster_topics import HEAL_TIMEOUT_S, LOOK_S, await_in_sync, bootstrap_of, controller_of, port_of_leader
from bench.growth.growing import (
    IDLE_S,
    SECONDS,
    SETTLE_S,
    Figures,
    Points,
    admin_at,
    command_costs,
    drop_topic,
    make_topic,
    make_topics,
    many_topics,
    timed,
)
from bench.processes import cpu_seconds, resident_bytes
from bench.produce import Shape, produce

ACKS = {"none": "0", "leader": "1", "all": "all"}
COMMANDS = {
    "list": ("topic", "list"),
    "partitions": ("topic", "describe"),
    "brokers": ("broker", "list"),
    "check": ("status",),
}
"""What asks about all of a cluster. ``klog status``, which was ``check``, exits with 1 where it has found something."""
ALL_IN_SYNC_TIMEOUT_S = 240.0


@contextlib.contextmanager
def cluster(system: str, folder: Path, brokers: int) -> Iterator[Cluster]:
    """As many brokers of a system, running, each partition of them replicated as often as there are, three at most."""
    settings = SETTINGS if brokers >= BROKERS else {"default.replication.factor": str(brokers)}
    kinds = {"klog": KlogCluster, "kafka-4.1": KraftCluster, "kafka-3.9": KafkaCluster}
    running = kinds[system](folder, brokers=brokers, settings=settings)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def brokers(system: str, folder: Path, values: Sequence[int]) -> Points:
    """A cluster of its own for each point: two partitions a broker, each on three brokers where there are as many."""
    for number in values:
        began = time.perf_counter()
        with cluster(system, folder / str(number), number) as running:
            started_s = time.perf_counter() - began
            topic = make_topic(bootstrap_of(running), 2 * number, min(BROKERS, number))
            await_in_sync(running, topic)
            time.sleep(SETTLE_S)
            idle = cpu_seconds(running.broker_pids())
            time.sleep(IDLE_S)
            idle = cpu_seconds(running.broker_pids()) - idle
            cpu = cpu_seconds(running.broker_pids())
            load = produce(running.ports[0], topic, Shape(None, partitions=2 * number), SECONDS)
            cpu = cpu_seconds(running.broker_pids()) - cpu
            figures: Figures = {
                "messages_per_s": load.messages / load.seconds,
                "started_s": started_s,
                "cpu_us": 1e6 * cpu / load.messages,
                "idle_cores": idle / IDLE_S,
                "megabytes": resident_bytes(running.broker_pids()) / 1e6 / number,
            }
            if pids := running.helper_pids():
                figures["helper_megabytes"] = resident_bytes(pids) / 1e6
            yield number, figures


def factors(system: str, folder: Path, values: Sequence[int]) -> Points:
    """One partition on so many of three brokers; batches of 50 messages of 200 bytes, by librdkafka."""
    with cluster(system, folder, BROKERS) as running:
        for factor in values:
            topic = make_topic(bootstrap_of(running), 1, factor)
            await_in_sync(running, topic)
            time.sleep(SETTLE_S)
            figures: Figures = {}
            port = port_of_leader(running, topic)
            produce(port, topic, Shape(50, queue=50_000), SETTLE_S)  # lets Java compile
            for name, acks in ACKS.items():
                load = produce(port, topic, Shape(50, acks=acks, queue=50_000), SECONDS)
                figures[f"{name}_per_s"] = load.messages / load.seconds
            yield factor, figures
            drop_topic(bootstrap_of(running), topic)


def three(system: str, folder: Path, values: Sequence[int]) -> Points:
    """So many partitions on all of three brokers: made, weighed, listed, and a broker killed that leads a third."""
    with cluster(system, folder, BROKERS) as running:
        there = 0
        made: list[str] = []
        for wanted in values:
            bootstrap = bootstrap_of(running)
            new = many_topics(wanted - there, BROKERS)
            figures: Figures = {}
            figures["made_per_s"] = (wanted - there) / timed(partial(make_topics, bootstrap, new))
            there, made = wanted, [*made, *(one.topic for one in new)]
            _await_all(running, made)
            time.sleep(IDLE_S)
            figures["megabytes"] = resident_bytes(running.broker_pids()) / 1e6 / BROKERS
            if pids := running.helper_pids():
                figures["helper_megabytes"] = resident_bytes(pids) / 1e6
            if isinstance(running, KlogCluster):
                for name, command in COMMANDS.items():
                    figures |= command_costs(name, running, *command, "-B", bootstrap)
            _spread_leaders(bootstrap)
            _await_all(running, made)
            victim = _victim(running)
            survivors = [running.broker(one).pid for one in range(BROKERS) if one != victim]
            used_s = cpu_seconds(survivors)
            figures["led_again_s"] = _led_again(running, made, victim)
            figures["led_again_cpu_s"] = cpu_seconds(survivors) - used_s
            began = time.perf_counter()
            running.start_broker(victim)
            _await_all(running, made)
            figures["back_s"] = time.perf_counter() - began
            yield wanted, figures


def _victim(running: Cluster) -> int:
    """A broker that is not the controller. Kafka 4.1 tells a client any broker in its place."""
    controller = 0 if isinstance(running, KraftCluster) else controller_of(running) - 1
    return next(one for one in range(BROKERS) if one != controller)


def _spread_leaders(bootstrap: str) -> None:
    """Each partition's first replica leads: the broker that was killed before has none since."""
    admin = admin_at(bootstrap)  # held while it works
    for partition, error in admin.elect_leaders(ElectionType.PREFERRED, None).result(60).items():
        if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
            raise KafkaException(error, str(partition))


def _await_all(running: Cluster, made: Sequence[str]) -> None:
    """Until the first broker says that each replica of these topics is in sync."""
    deadline = time.monotonic() + ALL_IN_SYNC_TIMEOUT_S
    admin = admin_at(f"127.0.0.1:{running.ports[0]}")
    for topic in made:
        while True:
            with contextlib.suppress(KafkaException):
                partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
                if partitions and all(one.leader > 0 and len(one.isrs) == BROKERS for one in partitions.values()):
                    break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: not all replicas are in sync after {ALL_IN_SYNC_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_S)


def _led_again(running: Cluster, made: Sequence[str], victim: int) -> float:
    """Seconds from the kill until a survivor's Metadata shows every partition led by another broker.

    Topic after topic: to ask for all at once again and again would be a load of its own.
    """
    survivor = next(one for one in range(BROKERS) if one != victim)
    admin = admin_at(f"127.0.0.1:{running.ports[survivor]}")
    admin.list_topics(made[0], timeout=10)
    began = time.perf_counter()
    running.broker(victim).kill()
    for topic in made:
        while True:
            with contextlib.suppress(KafkaException):
                partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
                if all(one.leader not in (-1, victim + 1) for one in partitions.values()):
                    break
            if time.perf_counter() - began > HEAL_TIMEOUT_S:
                raise TimeoutError(f"{topic}: not all partitions are led after {HEAL_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_S)
    return time.perf_counter() - began
