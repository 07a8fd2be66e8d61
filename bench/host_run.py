"""`scripts/bench --processes`: one host's cores, used by one broker or by several broker processes.

Two clients, a process each, send ready-made requests to a partition each. With one broker it leads both partitions;
with two processes each leads one. Everything shares the cores of the machine, so the figures say what a host of so
many cores gives, clients included.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from bench import bars
from bench.klog_system import Klog
from bench.maven import PeerMissing
from bench.peers import System, kafka
from bench.processes import StartFailed, cpu_seconds, resident_bytes
from bench.produce import Load, pump
from bench.results import shown
from bench.run import FAILURES, say
from bench.run_record import RunRecord, numbered
from bench.topics import TIMEOUT_S, admin_client, fresh_topic

CLIENTS: Final = 2
VALUE_BYTES: Final = 200
LOOK_S: Final = 0.02
SHAPES: Final = {
    bars.HOST_BATCHED: (4500, 5),
    bars.HOST_50: (50, 200),
    bars.HOST_1: (1, 1000),
}
"""Row -> messages a request, requests in flight of each client."""
NAMES: Final = (bars.KLOG, bars.KLOG_2, bars.KAFKA)


def open_system(name: str, folder: Path) -> System:
    """Not started; PeerMissing where it cannot be had."""
    if name.startswith("klog"):
        return Klog(name, folder, {}, processes=2 if name == bars.KLOG_2 else 1)
    return kafka(name, folder)


def run(record: RunRecord, folder: Path, seconds: float, rounds: int, names: Sequence[str]) -> None:
    """Fills the record; everything that was started has ended."""
    systems: list[System] = []
    try:
        for number, name in enumerate(names):
            try:
                system = open_system(name, folder / f"system-{number}")
                systems.append(system)
                system.prepare()
                system.start("first")
            except (PeerMissing, StartFailed) as error:
                record.notes.append(f"{name} is left out: {error}")
                systems = [one for one in systems if one.name != name]
                continue
            record.versions[name] = system.version
            record.options[name] = system.options
            pids = system.broker_pids()
            record.add(bars.HOST_MEMORY, name, {"megabytes": resident_bytes(pids) / len(pids) / 1e6})
        with ProcessPoolExecutor(CLIENTS, multiprocessing.get_context("spawn")) as clients:
            for row, (batch, in_flight) in SHAPES.items():
                for number in numbered(rounds):
                    shift = number % max(len(systems), 1)
                    for system in systems[shift:] + systems[:shift]:
                        _measure(record, clients, system, row, batch, in_flight, seconds, counts=number >= 0)
        _on_paper(record)
    finally:
        for system in systems:
            system.stop()


def _on_paper(record: RunRecord) -> None:
    """What brokers with more cores would take, by the processor time that a message costs them."""
    cores_of_one = max((record.median(row, bars.KLOG, "broker_cores") or 0.0 for row in SHAPES), default=0.0)
    if not cores_of_one:
        return
    lines = [
        f"One broker used at most {cores_of_one:.2f} cores. By the processor time of a message with two, and with",
        "nothing else in the way (clients on other hosts; a network and disks that take as much):",
        "",
        f"{'cores':>5}  {'processes':>9}  " + "  ".join(f"{row.partition(', ')[2]:>24}" for row in SHAPES),
    ]
    for cores in (4, 16, 64):
        cells = []
        for row in SHAPES:
            cpu_us = record.median(row, bars.KLOG_2, "broker_cpu_us")
            rate = cores * 1e6 / cpu_us if cpu_us else 0.0
            cells.append(f"{shown(rate):>8}/s {rate * VALUE_BYTES / 1e6:>8,.0f} MB/s")
        lines.append(f"{cores:>5}  {math.ceil(cores / cores_of_one):>9}  " + "  ".join(f"{one:>24}" for one in cells))
    record.remarks.append(["On paper: hosts with more cores", *lines])


def _ports_of_leaders(admin: AdminClient, topic: str) -> list[int]:
    """Asked until each partition is led: a broker may hear of a new topic later than the one that made it answers."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_topics(topic, timeout=10)
        leaders = [one.leader for one in found.topics[topic].partitions.values()]
        if len(leaders) == CLIENTS and all(leader in found.brokers for leader in leaders):
            return [found.brokers[leader].port for leader in leaders]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} has no leaders after {TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)


def _measure(
    record: RunRecord,
    clients: ProcessPoolExecutor,
    system: System,
    row: str,
    batch: int,
    in_flight: int,
    seconds: float,
    *,
    counts: bool,
) -> None:
    admin = admin_client(system.port)
    try:
        with fresh_topic(admin, CLIENTS) as topic:
            ports = _ports_of_leaders(admin, topic)
            before = cpu_seconds(system.broker_pids())
            running = [
                clients.submit(pump, port, topic, batch, VALUE_BYTES, in_flight, seconds, partition)
                for partition, port in enumerate(ports)
            ]
            loads: list[Load] = [one.result() for one in running]
            cpu = cpu_seconds(system.broker_pids()) - before
    except FAILURES as error:
        record.notes.append(f"{row}: {system.name}: {error}")
        return
    messages, longest = sum(one.messages for one in loads), max(one.seconds for one in loads)
    figures = {
        "messages_per_s": messages / longest,
        "megabytes_per_s": sum(one.value_bytes for one in loads) / longest / 1e6,
        "broker_cpu_us": 1e6 * cpu / messages,
        "broker_cores": cpu / longest,
    }
    if counts:
        record.add(row, system.name, figures)
        say(f"{row}: {system.name}: {figures['messages_per_s']:,.0f} messages/s, {figures['broker_cores']:.2f} cores")
