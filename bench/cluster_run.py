"""One run on clusters of three: produce in turns with every system up, then what happens when brokers go."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench import cluster_klog, stock_failover, wire
from bench import workloads as w
from bench.bars import (
    ALL_KILLED,
    CONTROLLER_KILLED,
    KLOG_3,
    LEADER_KILLED,
    LEADER_PAUSED,
    LED_AGAIN,
    MOVING,
    ROLLING,
    SCRAPE,
    THREE_LOADED,
    THREE_STARTED,
    UP,
    three,
)
from bench.cluster_load import Outcome, SteadyLoad, await_ack
from bench.cluster_systems import BROKERS, Cluster, KafkaCluster, KlogCluster
from bench.cluster_topics import (
    HEAL_TIMEOUT_S,
    LOOK_S,
    admin_of,
    await_in_sync,
    bootstrap_of,
    controller_of,
    port_of_leader,
)
from bench.commands import CommandFailed
from bench.maven import PeerMissing
from bench.processes import StartFailed, cpu_seconds, peak_resident_bytes, resident_bytes
from bench.produce import ProduceFailed, Shape, produce
from bench.run import say
from bench.run_record import RunRecord, numbered
from bench.workloads import Sizes

SHAPES = (
    (w.BATCHED, Shape(None)),
    (w.BATCH_50, Shape(50, queue=50_000)),
    (w.BATCH_1, Shape(1, queue=2000, linger_ms=0)),
)
PARTITIONS = 6
TOPIC_TIMEOUT_S = 60.0
ACT_TIMEOUT_S = 900.0
"""For one figure of one system, whatever it waits for: what hangs is given up, and the rest is measured."""
SUPERVISED_EVERY_S = 3.0
EVEN_S = 1.0
FAILURES = (
    ProduceFailed,
    StartFailed,
    CommandFailed,
    KafkaException,
    wire.NoAnswer,
    wire.Refused,
    TimeoutError,
    OSError,
)


class ClusterBench:
    """Measures into a record. Everything it starts, and every byte it writes, is gone when `close` returns."""

    def __init__(self, record: RunRecord, folder: Path, sizes: Sizes, rounds: int) -> None:
        self.record = record
        self._folder = folder
        self._sizes = sizes
        self._rounds = rounds
        self._even_s = min(EVEN_S, sizes.seconds)
        self._systems: list[Cluster] = []
        self._topics = 0

    def start(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                system = self._open(name)
            except PeerMissing as error:
                self._note(f"{name} is left out: {error}")
                continue
            self._systems.append(system)
            try:
                system.start()
            except FAILURES as error:
                self._note(f"{name} is left out: {error}")
                system.stop()
                self._systems.remove(system)
                continue
            self.record.versions[system.name] = system.version
            self.record.options[system.name] = system.options
            say(f"{system.name} is up")
        time.sleep(self._even_s)
        self._weigh(THREE_STARTED)

    def _open(self, name: str) -> Cluster:
        folder = self._folder / name
        return KlogCluster(folder) if name == "klog" else KafkaCluster(folder)

    def close(self) -> None:
        for system in self._systems:
            system.stop()
        self._systems.clear()

    def _note(self, text: str) -> None:
        say(text)
        self.record.notes.append(text)

    def _weigh(self, what: str) -> None:
        for system in self._systems:
            pids = system.broker_pids()
            self.record.add(
                what,
                system.name,
                {
                    "megabytes": max((resident_bytes([pid]) for pid in pids), default=0) / 1e6,
                    "peak_megabytes": max((peak_resident_bytes([pid]) for pid in pids), default=0) / 1e6,
                    "helper_megabytes": resident_bytes(system.helper_pids()) / 1e6,
                },
            )

    @contextlib.contextmanager
    def _noted(self, what: str, system: Cluster) -> Iterator[None]:
        """Whatever goes wrong is said, in the results too, and the rest is measured, on brokers that all run."""
        try:
            with at_most(ACT_TIMEOUT_S):
                yield
        except Exception as error:
            self._note(f"{what}: {system.name}: {error!r}")
            _start_missing(system)

    # --- Produce ---

    def produce(self) -> None:
        for number in numbered(self._rounds):
            for name, shape in SHAPES:
                shift = number % max(len(self._systems), 1)
                for system in self._systems[shift:] + self._systems[:shift]:
                    with self._noted(name, system), self._topic(system, 1) as topic:
                        os.sync()
                        cpu = cpu_seconds(system.broker_pids())
                        load = produce(port_of_leader(system, topic), topic, shape, self._sizes.seconds)
                        cpu = cpu_seconds(system.broker_pids()) - cpu
                        figures = {
                            "messages_per_s": load.messages / load.seconds,
                            "megabytes_per_s": load.value_bytes / load.seconds / 1e6,
                            "broker_cpu_us": 1e6 * cpu / load.messages,
                        }
                        if number >= 0:
                            self.record.add(three(name), system.name, figures)
                            say(f"{name}: {system.name}: {load.messages / load.seconds:.0f}/s")
        self._weigh(THREE_LOADED)

    # --- What happens when brokers go ---

    def faults(self, rounds: int) -> None:
        for system in list(self._systems):
            for _ in range(rounds):
                for what, act in (
                    (LEADER_KILLED, self._leader_killed),
                    (LEADER_PAUSED, self._leader_paused),
                    (CONTROLLER_KILLED, self._controller_killed),
                    (ALL_KILLED, self._all_killed),
                ):
                    with self._noted(what, system):
                        seconds = act(system)
                        self.record.add(what, system.name, {"seconds": seconds})
                        say(f"{what}: {system.name}: {seconds:.2f} s")

    def _leader_killed(self, system: Cluster) -> float:
        with self._topic(system, PARTITIONS) as topic:
            victim = next(one for one in range(BROKERS) if one + 1 != controller_of(system))
            outcome = self._under_load(system, topic, lambda: system.broker(victim).kill())
            system.start_broker(victim)
            await_in_sync(system, topic)
            return self._worst(LEADER_KILLED, system, outcome)

    def _controller_killed(self, system: Cluster) -> float:
        with self._topic(system, PARTITIONS) as topic:
            victim = controller_of(system) - 1
            outcome = self._under_load(system, topic, lambda: system.broker(victim).kill())
            system.start_broker(victim)
            await_in_sync(system, topic)
            return self._worst(CONTROLLER_KILLED, system, outcome)

    def _leader_paused(self, system: Cluster) -> float:
        with self._topic(system, PARTITIONS) as topic:
            victim = next(one for one in range(BROKERS) if one + 1 != controller_of(system))
            pid = system.broker(victim).pid
            try:
                outcome = self._under_load(system, topic, lambda: os.kill(pid, signal.SIGSTOP))
            finally:
                os.kill(pid, signal.SIGCONT)
            await_in_sync(system, topic)
            return self._worst(LEADER_PAUSED, system, outcome)

    def _worst(self, what: str, system: Cluster, outcome: Outcome) -> float:
        if outcome.failed:
            self._note(f"{what}: {system.name}: {len(outcome.failed)} refused, such as: {outcome.failed[0]}")
        return outcome.worst_s

    def _under_load(self, system: Cluster, topic: str, act: Callable[[], None]) -> Outcome:
        """The load's outcome when ``act`` has been done and every partition acknowledges again."""
        with SteadyLoad(bootstrap_of(system), topic, PARTITIONS, self._sizes.load_pause_s) as load:
            time.sleep(self._even_s)
            load.mark()
            act()
            load.await_all_again(HEAL_TIMEOUT_S)
            time.sleep(self._even_s)
            return load.finish()

    def _all_killed(self, system: Cluster) -> float:
        with self._topic(system, 1) as topic:
            produce(port_of_leader(system, topic), topic, Shape(50), 0.5)
            for number in range(BROKERS):
                system.broker(number).kill()
            began = time.perf_counter()
            for number in range(BROKERS):
                system.start_broker(number)
            _await_ack_with_supervisor(system, topic)
            seconds = time.perf_counter() - began
            await_in_sync(system, topic)
            return seconds

    def many_partitions(self) -> None:
        """A broker of a thousand partitions' replicas killed; then each broker stopped and started under load."""
        for system in list(self._systems):
            with self._noted(LED_AGAIN, system), self._topic(system, self._sizes.partitions) as topic:
                await_in_sync(system, topic)
                victim = next(one for one in range(BROKERS) if one + 1 != controller_of(system))
                seconds = _led_again(system, topic, victim)
                self.record.add(LED_AGAIN, system.name, {"seconds": seconds})
                say(f"{LED_AGAIN}: {system.name}: {seconds:.2f} s")
                system.start_broker(victim)
                await_in_sync(system, topic)
                with self._noted(ROLLING, system):
                    self._rolling(system, topic)

    def _rolling(self, system: Cluster, topic: str) -> None:
        with SteadyLoad(bootstrap_of(system), topic, PARTITIONS, self._sizes.load_pause_s) as load:
            load.mark()
            began = time.perf_counter()
            for number in range(BROKERS):
                system.broker(number).stop()
                system.start_broker(number)
                await_in_sync(system, topic)
            seconds = time.perf_counter() - began
            outcome = load.finish()
        figures = {"seconds": seconds, "failed_requests": float(len(outcome.failed)), "longest_wait_s": outcome.worst_s}
        self.record.add(ROLLING, system.name, figures)
        say(f"{ROLLING}: {system.name}: {seconds:.1f} s, {len(outcome.failed)} refused, {outcome.acknowledged} acked")

    # --- klog alone ---

    def alone(self, rounds: int, parts: Sequence[str]) -> None:
        """What has no peer: throttled moves, the scrape of many partitions' metrics, `klog up`."""
        acts: dict[str, tuple[str, int, Callable[[RunRecord, Path, Sizes, int], None]]] = {
            "moving": (MOVING, self._rounds, cluster_klog.moving),
            "scrape": (SCRAPE, rounds, cluster_klog.scrape),
            "up": (UP, rounds, cluster_klog.up),
        }
        for part, (what, times, act) in acts.items():
            if part in parts:
                try:
                    with at_most(ACT_TIMEOUT_S):
                        act(self.record, self._folder, self._sizes, times)
                except Exception as error:
                    self._note(f"{what}: {KLOG_3}: {error!r}")

    def stock(self, kills: int) -> None:
        try:
            stock_failover.measure(self.record, self._folder, kills, self._sizes.partitions)
        except Exception as error:
            self._note(f"stock clients: {KLOG_3}: {error!r}")

    # --- Topics ---

    @contextlib.contextmanager
    def _topic(self, system: Cluster, partitions: int) -> Iterator[str]:
        """A fresh topic of factor 3, deleted afterwards."""
        self._topics += 1
        name = f"bench-{self._topics}"
        admin = admin_of(system)
        topic = NewTopic(name, partitions, BROKERS)
        admin.create_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
        await_in_sync(system, name)
        try:
            yield name
        finally:
            # By another client: this one may know of brokers that have died since, and wait for them. And what was
            # measured stands, whether its topic goes or not.
            again = admin_of(system)
            with contextlib.suppress(KafkaException, TimeoutError):
                again.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)


def _await_ack_with_supervisor(system: Cluster, topic: str) -> None:
    """Until a message is acknowledged; brokers that end at their start are started again, as a supervisor does.

    Kafka's does where the session of its former self still holds its id.
    """
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while True:
        try:
            await_ack(bootstrap_of(system), topic, SUPERVISED_EVERY_S)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
        _start_missing(system)


def _start_missing(system: Cluster) -> None:
    for number in range(BROKERS):
        if not system.broker(number).running:
            system.start_broker(number)


def _led_again(system: Cluster, topic: str, victim: int) -> float:
    """Seconds from the kill until a survivor's Metadata shows every partition led by another broker."""
    survivor = system.ports[(victim + 1) % BROKERS]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{survivor}", "log_level": 0})
    admin.list_topics(topic, timeout=10)
    began = time.perf_counter()
    system.broker(victim).kill()
    while True:
        with contextlib.suppress(KafkaException):
            partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if all(one.leader not in (-1, victim + 1) for one in partitions.values()):
                return time.perf_counter() - began
        if time.perf_counter() - began > HEAL_TIMEOUT_S:
            raise TimeoutError(f"{topic}: not all partitions are led after {HEAL_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """TimeoutError in the main thread when the time is over. One within another goes by its own, which is as long."""

    def over(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"given up after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)
        signal.signal(signal.SIGALRM, before)


PARTS = ("produce", "faults", "many", "moving", "scrape", "up", "stock")
"""By name, for a run of some of them; the last four are klog's alone, each on a cluster of its own."""


def run(
    record: RunRecord,
    folder: Path,
    sizes: Sizes,
    rounds: int,
    fault_rounds: int,
    names: Sequence[str],
    parts: Sequence[str] = PARTS,
    kills: int = 20,
) -> None:
    """These parts of it, into the record."""
    bench = ClusterBench(record, folder, sizes, rounds)
    try:
        if {"produce", "faults", "many"} & set(parts):
            bench.start(names)
        if "produce" in parts:
            bench.produce()
        if "faults" in parts:
            bench.faults(fault_rounds)
        if "many" in parts and sizes.partitions:
            bench.many_partitions()
        bench.close()
        if "klog" in names:
            bench.alone(fault_rounds, parts)
            if "stock" in parts:
                bench.stock(kills)
    except KeyboardInterrupt:
        record.notes.append("the run was interrupted: what is missing was not measured")
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
