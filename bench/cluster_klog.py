"""What is measured of klog's clusters alone: a throttled move under load, a scrape of many partitions, `klog up`."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka.admin import NewTopic

from bench.bars import KLOG_3, MOVING, SCRAPE, UP
from bench.cluster_load import await_ack
from bench.cluster_systems import BROKERS, KlogCluster
from bench.cluster_topics import HEAL_TIMEOUT_S, LOOK_S, admin_of, await_in_sync, bootstrap_of, port_of_leader
from bench.commands import klog_seconds
from bench.klog_system import environment, klog_version
from bench.peers import START_TIMEOUT_S
from bench.processes import Process, StartFailed, ports_in_a_row
from bench.produce import Shape, fill, produce
from bench.run import say
from bench.run_record import RunRecord, numbered
from bench.workloads import FILL_MESSAGES, Sizes

PHASES = 3
"""Times `Sizes.seconds` for which producers run undisturbed, and as long while a topic is moved."""
SCRAPES = 7
TOPIC_TIMEOUT_S = 120.0


@contextlib.contextmanager
def _cluster(record: RunRecord, folder: Path, *, metrics: bool = False) -> Iterator[KlogCluster]:
    system = KlogCluster(folder, metrics=metrics)
    try:
        system.start()
        record.versions.setdefault(system.name, system.version)
        record.options.setdefault(system.name, system.options)
        yield system
    finally:
        system.stop()
        shutil.rmtree(folder, ignore_errors=True)


# --- A throttled move -------------------------------------------------------------------------------------------------


def moving(record: RunRecord, folder: Path, sizes: Sizes, rounds: int) -> None:
    """Producers before, while and after a replica of another topic is copied to a broker that they write to too.

    The bar: what they lose is no more than what the throttle lets the copy have.
    """
    with _cluster(record, folder / "moving") as system:
        for number in numbered(rounds):
            figures = _moved_under_load(system, folder, number + 1, sizes)
            if number >= 0:
                record.add(MOVING, KLOG_3, figures)
                say(f"{MOVING}: {figures}")


def _moved_under_load(system: KlogCluster, folder: Path, number: int, sizes: Sizes) -> dict[str, float]:
    seconds, throttle_bytes_s = PHASES * sizes.seconds, sizes.throttle_bytes_s
    moved, load = f"moved-{number}", f"load-{number}"
    admin = admin_of(system)
    wanted = [
        NewTopic(moved, 1, replica_assignment=[[1, 2]]),
        NewTopic(load, 1, replica_assignment=[[1, 2, 3]]),
    ]
    for one in admin.create_topics(wanted, operation_timeout=TOPIC_TIMEOUT_S).values():
        one.result(TOPIC_TIMEOUT_S)
    await_in_sync(system, load)
    fill(system.ports[0], moved, FILL_MESSAGES, 200, int(throttle_bytes_s * (seconds + sizes.headroom_s)))
    port = port_of_leader(system, load)

    def rate() -> float:
        done = produce(port, load, Shape(None), seconds)
        return done.value_bytes / done.seconds / 1e6

    before = rate()
    plan = folder / "moving" / f"{moved}.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": moved, "partition": 0, "replicas": [1, 3]}]}))
    throttle = ("--throttle", f"{throttle_bytes_s / 1e6:g}MB/s")
    at = ("-B", bootstrap_of(system))
    klog_seconds(system.folder, "reassign", "execute", str(plan), *throttle, "-y", *at)
    target = folder / "moving" / "data-3" / f"{moved}-0"
    _await(target.exists, f"{target} is there")
    began, bytes_then = time.perf_counter(), _bytes(target)
    meanwhile = rate()
    moved_s, moved_bytes = time.perf_counter() - began, _bytes(target) - bytes_then
    source = folder / "moving" / "data-1" / f"{moved}-0"
    if _bytes(target) >= _bytes(source):
        raise TimeoutError(f"{moved}: all of it was moved before the producers had ended: nothing is told by this")
    klog_seconds(system.folder, "reassign", "cancel", str(plan), "-y", *at)
    after = rate()
    for one in admin.delete_topics([moved, load], operation_timeout=TOPIC_TIMEOUT_S).values():
        one.result(TOPIC_TIMEOUT_S)
    undisturbed = statistics.mean((before, after))
    return {
        "undisturbed_megabytes_per_s": undisturbed,
        "meanwhile_megabytes_per_s": meanwhile,
        "throttle_megabytes_per_s": throttle_bytes_s / 1e6,
        "moved_megabytes_per_s": moved_bytes / moved_s / 1e6,
        "slowed_of_throttle": (undisturbed - meanwhile) / (throttle_bytes_s / 1e6),
    }


def _bytes(partition: Path) -> int:
    """Of the segments of a replica."""
    return sum(one.stat().st_size for one in partition.glob("*.log"))


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {HEAL_TIMEOUT_S:.0f} s: {what}")
        time.sleep(LOOK_S)


# --- Metrics ----------------------------------------------------------------------------------------------------------


def scrape(record: RunRecord, folder: Path, sizes: Sizes, rounds: int) -> None:
    """One broker's metrics read over HTTP, with a thousand partitions on each of three brokers."""
    with _cluster(record, folder / "scrape", metrics=True) as system:
        topic = NewTopic("many", sizes.partitions, BROKERS)
        admin = admin_of(system)
        admin.create_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)["many"].result(TOPIC_TIMEOUT_S)
        await_in_sync(system, "many")
        for number in range(-1, max(rounds, SCRAPES)):
            for port in system.metrics_ports:
                began = time.perf_counter()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    body = answer.read()
                took_ms = 1000 * (time.perf_counter() - began)
                if number >= 0:
                    record.add(SCRAPE, KLOG_3, {"scrape_ms": took_ms, "scrape_kilobytes": len(body) / 1000})
        say(f"{SCRAPE}: {record.median(SCRAPE, KLOG_3, 'scrape_ms'):.1f} ms")


# --- klog up ----------------------------------------------------------------------------------------------------------


def up(record: RunRecord, folder: Path, sizes: Sizes, rounds: int) -> None:
    """`klog up --brokers 3` on an empty folder, to the first message that all in-sync replicas have."""
    for number in range(rounds):
        home = folder / f"up-{number}"
        home.mkdir(parents=True)
        port = ports_in_a_row(BROKERS)
        command = [
            *(sys.executable, "-m", "klog", "up", "--dir", f"{home}/local"),
            *("--brokers", str(BROKERS), "--port", str(port)),
        ]
        began = time.perf_counter()
        process = Process("klog up --brokers 3", command, home / "up.log", environment(home))
        try:
            bootstrap = ",".join(f"127.0.0.1:{port + one}" for one in range(BROKERS))
            try:
                await_ack(bootstrap, "first", START_TIMEOUT_S)
            except TimeoutError as error:
                raise StartFailed(f"{error}\n{process.log_tail()}") from error
            seconds = time.perf_counter() - began
        finally:
            process.stop()
        record.versions.setdefault(KLOG_3, klog_version())
        record.add(UP, KLOG_3, {"seconds": seconds})
        say(f"{UP}: {seconds:.2f} s")
        shutil.rmtree(home, ignore_errors=True)
