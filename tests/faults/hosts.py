"""Faults of hosts: three of them with two broker processes each, under one parent a host (`--processes`).

    FOLDER/h<n>/data/        the log dir of the host's first broker; `broker.ID` in it is that of the second one
    FOLDER/h<n>/broker.log   the lines of all processes of the host

A host is an address of its own (127.0.0.1, 127.0.0.2, ...). No two replicas of a partition are on one, as klog places
them. Each cell repeats its fault on one host after the other, and waits until every replica is in sync in between.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import ports_in_a_row
from klog.coordination import embedded
from klog.coordination.process import ProcessId
from klog.server.processes import MODULE
from tests.broker_fixture import ROOT, RunningBroker
from tests.faults.history import Ended, Fault, Replica
from tests.faults.plan import STEADY_S, Plan
from tests.faults.replica_files import read_partition
from tests.faults.run import FACTOR, HEAL_S, MIN_INSYNC, NOISE, PARTITIONS, SETTINGS, TOPIC, Result, judged
from tests.faults.workload import Workload
from tests.until import until
from tests.zookeeper_fixture import klog_home

HOSTS: Final = 3
PROCESSES: Final = 2
ROUNDS: Final = 3
ENDED_WITHIN_S: Final = 30.0
AWAY_S: Final = 8.0
"""How long a host is away: longer than the session of its brokers."""

WHAT: Final[Mapping[str, str]] = {
    "host/process": "one process of a host killed with -9; its parent starts it again",
    "host/kill": "all processes of a host killed with -9, the parent too; started again after 8 s",
    "host/pause": "all processes of a host stopped by SIGSTOP for 8 s",
    "host/parent": "the parent killed with -9: its brokers stop in order; started again",
    "host/stop": "the parent stopped by SIGTERM, and started again",
    "host/restart": "`klog broker restart --host`",
}


class Host:
    """One parent with its broker processes."""

    def __init__(self, number: int, folder: Path, zookeeper: str) -> None:
        self.address = f"127.0.0.{number}"
        self.first_id = 10 * number
        self.parent = RunningBroker(folder / f"h{number}", zookeeper, self.first_id, **SETTINGS)
        self._listen = f"{self.address}:{ports_in_a_row(PROCESSES)}"
        self.parent.extra_arguments = ["--processes", str(PROCESSES)]

    @property
    def brokers(self) -> range:
        return range(self.first_id, self.first_id + PROCESSES)

    @property
    def bootstrap(self) -> str:
        host, _, port = self._listen.rpartition(":")
        return ",".join(f"{host}:{int(port) + number}" for number in range(PROCESSES))

    def start(self) -> None:
        self.parent.listen = self._listen
        self.parent.start()

    def processes(self) -> list[ProcessId]:
        children = psutil.Process(self.parent.pid).children()
        with contextlib.suppress(psutil.Error):
            return [found for one in children if MODULE in one.cmdline() and (found := ProcessId.of(one.pid))]
        return []

    def signal_all(self, number: signal.Signals) -> None:
        """The parent first, so that it starts nothing meanwhile."""
        children = self.processes()
        self.parent.send(number)
        for one in children:
            one.send(number)

    def kill(self) -> None:
        children = self.processes()
        self.parent.send(signal.SIGSTOP)
        for one in children:
            one.send(signal.SIGKILL)
        self.parent.kill()

    def kill_parent(self) -> None:
        children = self.processes()
        self.parent.kill()
        for one in children:
            assert one.wait(ENDED_WITHIN_S), f"a broker of {self.address} outlives its parent by {ENDED_WITHIN_S:g} s"

    def partition_folder(self, broker: int, partition: int) -> Path:
        data = self.parent.folder / "data"
        return (data if broker == self.first_id else data / f"broker.{broker}") / f"{TOPIC}-{partition}"


def run(name: str, seed: int, folder: Path, *, rounds: int = ROUNDS, keep: Path | None = None) -> Result:
    """One cell of `WHAT`; ``keep`` is where the history is written to."""
    result = Result(Plan(name, seed, (), brokers=HOSTS * PROCESSES))
    chance = random.Random(f"{seed} {name}")
    server = embedded.start(folder / "zookeeper", cache=klog_home() / "cache")
    server.await_serving()
    hosts = [Host(number, folder, f"{server.address}/hosts") for number in range(1, HOSTS + 1)]
    try:
        for host in hosts:
            host.start()
        bootstrap = ",".join(host.bootstrap for host in hosts)
        workload = Workload(bootstrap, TOPIC, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, FACTOR, config={"min.insync.replicas": str(MIN_INSYNC)})
        admin.create_topics([topic], operation_timeout=20, request_timeout=25)[TOPIC].result(30)
        replicas = _replicas(admin)
        home = {broker: host for host in hosts for broker in host.brokers}
        for partition, brokers in replicas.items():
            if len({home[one].address for one in brokers}) < FACTOR:
                result.problems.append(f"{TOPIC}-{partition} is on brokers {brokers}, which share a host")
        workload.start()
        try:
            workload.await_acks(PARTITIONS)
            time.sleep(STEADY_S)
            for _ in range(rounds):
                _one_fault(name.partition("/")[2], chance.choice(hosts), bootstrap, workload, result, chance)
                missing = _await_whole(admin)
                result.problems += [f"not whole after {HEAL_S:g} s: {one}" for one in missing[:3]]
        finally:
            workload.stop_sending()
        if not workload.read_to_the_end():
            result.problems.append("the last catching up did not come to the end")
        workload.stop_reading()
        for host in reversed(hosts):
            code = host.parent.stop(60)
            if code != 0:
                result.problems.append(f"the brokers of {host.address} ended with {code} when asked to stop")
        for partition, brokers in replicas.items():
            for broker in brokers:
                batches, unreadable = read_partition(home[broker].partition_folder(broker, partition))
                workload.record.add(Replica(workload.record.now(), broker, partition, batches, unreadable))
        said = [(host.address, line) for host in hosts for line in host.parent.log_text.splitlines()]
        result.problems += [f"{address}: {line[:200]}" for address, line in said if NOISE.search(line)]
    finally:
        for host in hosts:
            if host.parent.process is not None and host.parent.process.poll() is None:
                host.kill()
        server.stop()
    return judged(result, workload, keep)


def _one_fault(
    fault: str, host: Host, bootstrap: str, workload: Workload, result: Result, chance: random.Random
) -> None:
    record = workload.record
    at = record.now()
    record.add(Fault(at, fault, host.address, False))
    _FAULTS[fault](host, bootstrap, chance)
    healed = record.now()
    record.add(Fault(healed, fault, host.address, True))
    result.done.append(f"{at:.1f} s {fault} of {host.address} for {healed - at:.1f} s")
    deadline = time.monotonic() + HEAL_S
    while time.monotonic() < deadline:
        acks = [event.at for event in list(record.events) if isinstance(event, Ended) and event.outcome == "ok"]
        first = next((one for one in reversed(acks) if one > healed), None)
        if first is not None:
            result.first_ack_s = max(result.first_ack_s or 0.0, min(one for one in acks if one > healed) - healed)
            return
        time.sleep(0.05)
    result.problems.append(f"nothing was acknowledged after {fault} of {host.address}")


def _process(host: Host, bootstrap: str, chance: random.Random) -> None:
    victim = chance.choice(host.processes())
    victim.send(signal.SIGKILL)
    until(lambda: len(host.processes()) >= PROCESSES and victim.wait(0), timeout_s=ENDED_WITHIN_S)


def _kill(host: Host, bootstrap: str, chance: random.Random) -> None:
    host.kill()
    time.sleep(AWAY_S)
    host.start()


def _pause(host: Host, bootstrap: str, chance: random.Random) -> None:
    host.signal_all(signal.SIGSTOP)
    time.sleep(AWAY_S)
    host.signal_all(signal.SIGCONT)


def _parent(host: Host, bootstrap: str, chance: random.Random) -> None:
    host.kill_parent()
    host.start()


def _stop(host: Host, bootstrap: str, chance: random.Random) -> None:
    assert host.parent.stop(60) == 0, host.parent.log_text[-2000:]
    host.start()


def _restart(host: Host, bootstrap: str, chance: random.Random) -> None:
    words = ["broker", "restart", "--host", host.address, "-B", bootstrap, "-o", "json"]
    subprocess.run([sys.executable, "-m", "klog", *words], cwd=ROOT, check=True, capture_output=True, timeout=120)


_FAULTS: Final[Mapping[str, Callable[[Host, str, random.Random], None]]] = {
    "process": _process,
    "kill": _kill,
    "pause": _pause,
    "parent": _parent,
    "stop": _stop,
    "restart": _restart,
}


def _replicas(admin: AdminClient) -> dict[int, list[int]]:
    partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return {number: list(one.replicas) for number, one in sorted(partitions.items())}


def _await_whole(admin: AdminClient) -> list[str]:
    """Until every replica is in sync; what was not, when the time is up."""
    deadline = time.monotonic() + HEAL_S
    missing = ["nothing answered"]
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):  # a broker that is away: another look
            partitions = admin.list_topics(TOPIC, timeout=2).topics[TOPIC].partitions
            missing = [
                f"{TOPIC}-{number}: leader {one.leader}, ISR {one.isrs} of {one.replicas}"
                for number, one in partitions.items()
                if one.leader not in one.isrs or set(one.isrs) != set(one.replicas)
            ]
            if not missing:
                return []
        time.sleep(0.1)
    return missing
