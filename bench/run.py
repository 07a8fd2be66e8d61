"""One run: the systems up side by side, each workload on each of them in turns, then starts and restarts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench import bars, library, wire
from bench.commands import CommandFailed, export, klog_seconds, tails
from bench.consume import ConsumeFailed
from bench.klog_system import COMPILED, RELEASES, Klog, KlogUp, compiled, release
from bench.latency import LatencyFailed
from bench.maven import PeerMissing
from bench.null_broker import FETCHED_BATCHES, FETCHED_MESSAGES
from bench.peers import System, kafka
from bench.processes import (
    Process,
    StartFailed,
    free_port,
    peak_resident_bytes,
    resident_bytes,
    wait_for_port,
)
from bench.produce import Load, ProduceFailed, fill
from bench.results import CEILING
from bench.run_record import RunRecord, numbered
from bench.workloads import FILL_MESSAGES, MANY_PARTITIONS, MOVED, TO_CONSUMER, Sizes, Workload

FAILURES = (
    CommandFailed,
    ProduceFailed,
    ConsumeFailed,
    LatencyFailed,
    wire.NoAnswer,
    wire.Refused,
    StartFailed,
    KafkaException,
)
"""What a workload may end with on one system without ending the run."""

TOPIC_TIMEOUT_S = 60.0
SETTLE_S = 1.0
WARM_UPS = 2
FLUSHING = "-flush"
EXPORT_PARTITIONS = 4


def open_system(name: str, folder: Path) -> System:
    """A system by its name, not started; PeerMissing where it cannot be had."""
    if name == bars.KLOG:
        return Klog(name, folder, {})
    if name == bars.NO_FLUSH:
        return Klog(name, folder, {"log.flush.interval.messages": str((1 << 63) - 1)})
    if name == COMPILED:
        return Klog(name, folder, {}, sources=compiled(folder / "sources"))
    if name in RELEASES:
        return Klog(name, folder, {}, sources=release(name, folder / "sources"))
    return kafka(name, folder)


class Bench:
    """Measures into a record. Everything it starts, and every byte it writes, is gone when `close` returns."""

    def __init__(self, record: RunRecord, folder: Path, sizes: Sizes, rounds: int) -> None:
        self.record = record
        self._folder = folder
        self._sizes = sizes
        self._rounds = rounds
        self._systems: list[System] = []
        self._topics = 0
        self._moved_mb: defaultdict[str, float] = defaultdict(float)

    def start(self, names: Sequence[str]) -> None:
        """Starts what can be had; the rest is noted and left out."""
        for name in names:
            try:
                system = open_system(name, self._folder / name)
                self._systems.append(system)
                system.prepare()
                system.start("first")
            except (PeerMissing, StartFailed) as error:
                self._note(f"{name} is left out: {error}")
                self._systems = [system for system in self._systems if system.name != name]
                continue
            self.record.versions[name] = system.version
            self.record.options[name] = system.options
            say(f"{name} {system.version} is up")
        time.sleep(SETTLE_S)
        self.weigh(bars.MEMORY_IDLE)

    def warm(self, workload: Workload) -> None:
        """Runs it on every system and keeps nothing: Java compiles what it has seen often, and is slow before."""
        for system in self._systems * WARM_UPS:
            with self._noted(workload, system):
                self._one(workload, system, None)

    def close(self) -> None:
        for system in self._systems:
            system.stop()
        self._systems.clear()

    def _note(self, text: str) -> None:
        say(text)
        self.record.notes.append(text)

    def weigh(self, what: str) -> None:
        """The memory of every system as it is now."""
        for system in self._systems:
            figures = {
                "megabytes": resident_bytes(system.broker_pids()) / 1e6,
                "peak_megabytes": peak_resident_bytes(system.broker_pids()) / 1e6,
            }
            if moved := self._moved_mb[system.name]:
                figures["moved_gigabytes"] = moved / 1000
            if helpers := system.helper_pids():
                figures["helper_megabytes"] = resident_bytes(helpers) / 1e6
            self.record.add(what, system.name, figures)

    # --- Workloads ---

    def measure(self, workloads: Sequence[Workload]) -> None:
        for workload in workloads:
            if workload.name == MANY_PARTITIONS:
                self.weigh(bars.MEMORY_LOADED)
            self._ceiling(workload)
            self._in_turns(workload)
            if workload.name == MANY_PARTITIONS:
                self.weigh(bars.MEMORY_PARTITIONS)

    def _in_turns(self, workload: Workload) -> None:
        standing: dict[str, tuple[str, int]] = {}
        systems = [one for one in self._systems if not (workload.reads_only and one.name.endswith(FLUSHING))]
        with contextlib.ExitStack() as stack:
            for system in systems:
                if not workload.fresh_topic:
                    with self._noted(workload, system):
                        topic = stack.enter_context(self._topic(system, workload.partitions(self._sizes)))
                        standing[system.name] = topic, workload.prepare(system, topic, self._sizes)
            for number in numbered(self._rounds):
                shift = number % max(len(systems), 1)
                for system in systems[shift:] + systems[:shift]:
                    if not workload.fresh_topic and system.name not in standing:
                        continue
                    with self._noted(workload, system):
                        figures = self._one(workload, system, standing.get(system.name))
                        self._moved_mb[system.name] += figures.pop(MOVED, 0)
                        if number >= 0:
                            self.record.add(workload.name, system.name, figures)
                            say(f"{workload.name}: {system.name}: {_line(figures)}")

    def _one(self, workload: Workload, system: System, standing: tuple[str, int] | None) -> dict[str, float]:
        os.sync()  # or one system's unwritten pages would be written in the next one's time
        if standing is not None:
            topic, prepared = standing
            return dict(workload.run(system, topic, self._sizes, prepared))
        with self._topic(system, workload.partitions(self._sizes)) as topic:
            return dict(workload.run(system, topic, self._sizes, 0))

    @contextlib.contextmanager
    def _noted(self, workload: Workload, system: System) -> Iterator[None]:
        with self._failing(workload.name, system):
            yield

    @contextlib.contextmanager
    def _failing(self, what: str, system: System) -> Iterator[None]:
        """What fails on one system is noted, and the run goes on."""
        try:
            yield
        except FAILURES as error:
            self._note(f"{what}: {system.name}: {error}")
            if system in self._systems and not system.broker_pids():
                self._note(f"{system.name}: its broker had ended and was started again")
                system.start("first")

    @contextlib.contextmanager
    def _topic(self, system: System, partitions: int) -> Iterator[str]:
        """A fresh topic, deleted afterwards."""
        self._topics += 1
        name = f"bench-{self._topics}"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{system.port}", "log_level": 4})
        topic = NewTopic(name, partitions, 1)
        admin.create_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
        try:
            yield name
        finally:
            with contextlib.suppress(KafkaException):
                admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)

    def _ceiling(self, workload: Workload) -> None:
        """What the client reaches against a server that does nothing; it has no such consumer of single messages."""
        if workload.name == TO_CONSUMER:
            return
        with null_system(self._folder) as system, self._noted(workload, system):
            prepared = workload.prepare(system, "null", self._sizes)
            prepared -= prepared % (FETCHED_BATCHES * FETCHED_MESSAGES)
            self.record.add(workload.name, CEILING, workload.run(system, "null", self._sizes, prepared))

    # --- klog's library ---

    def library(self, rounds: int) -> None:
        """`klog.Producer` and `klog.Consumer` as they are, and what they are built on, against the running klog."""
        klog = next((system for system in self._systems if isinstance(system, Klog)), None)
        if klog is None:
            return
        port, seconds = klog.port, self._sizes.seconds
        sends: tuple[tuple[str, str, Callable[[str], Load]], ...] = (
            (bars.LIBRARY_ASYNC, klog.name, lambda topic: library.send(port, topic, seconds, "async")),
            (bars.LIBRARY_ASYNC, CEILING, lambda topic: library.send_alone(port, topic, seconds)),
            (bars.LIBRARY_SETS, klog.name, lambda topic: library.send(port, topic, seconds, "async", set_of=50)),
            (bars.LIBRARY_SYNC, klog.name, lambda topic: library.send(port, topic, seconds, "sync")),
            (bars.LIBRARY_SYNC_8, klog.name, lambda topic: library.send(port, topic, seconds, "sync", threads=8)),
        )
        for number in numbered(rounds):
            for name, system, send in sends:
                with self._failing(name, klog), self._topic(klog, 1) as topic:
                    self._loaded(name, system, number, send(topic))
        with self._failing(bars.LIBRARY_STREAM, klog), self._topic(klog, 1) as topic:
            messages = fill(port, topic, FILL_MESSAGES, 200, self._sizes.consume_bytes)
            for number in numbered(rounds):
                self._loaded(bars.LIBRARY_STREAM, klog.name, number, library.stream(klog.zookeeper, topic, messages))
                self._loaded(bars.LIBRARY_STREAM, CEILING, number, library.stream_alone(port, topic, messages))

    def _loaded(self, name: str, system: str, number: int, load: Load) -> None:
        figures = {
            "messages_per_s": load.messages / load.seconds,
            "megabytes_per_s": load.value_bytes / load.seconds / 1e6,
        }
        if number >= 0:
            self.record.add(name, system, figures)
            say(f"{name}: {system}: {_line(figures)}")

    # --- klog's commands ---

    def commands(self, rounds: int) -> None:
        """The times of some commands against the running klog, and of an export by Spark."""
        klog = next((system for system in self._systems if system.name == bars.KLOG), None)
        if klog is None:
            return
        folder, bootstrap = self._folder / bars.KLOG, f"127.0.0.1:{klog.port}"
        timed = (
            (bars.VERSION, ["--version"]),
            (bars.HELP, ["--help"]),
            (bars.LIST, ["topic", "list", "-B", bootstrap]),
        )
        for number in numbered(rounds):  # the first one warms the page cache too
            for name, arguments in timed:
                with self._failing(name, klog):
                    seconds = klog_seconds(folder, *arguments)
                    if number >= 0:
                        self.record.add(name, klog.name, {"seconds": seconds})
        with self._failing(bars.TAIL, klog), self._topic(klog, 1) as topic:
            messages = fill(klog.port, topic, FILL_MESSAGES, 200, self._sizes.tail_messages * 200)
            for number in numbered(rounds):
                for name, flags in ((bars.TAIL, ()), (bars.TAIL_JSONL, ("--output", "jsonl"))):
                    figures = tails(folder, bootstrap, topic, messages, *flags)
                    if number >= 0:
                        self.record.add(name, klog.name, figures)
                        say(f"{name}: {_line(figures)}")
        if self._sizes.export_messages:
            with self._failing(bars.EXPORT, klog), self._topic(klog, EXPORT_PARTITIONS) as topic:
                share = self._sizes.export_messages * 200 // EXPORT_PARTITIONS
                counts = [fill(klog.port, topic, FILL_MESSAGES, 200, share, one) for one in range(EXPORT_PARTITIONS)]
                figures = export(folder, bootstrap, topic, folder / "export", sum(counts))
                self.record.add(bars.EXPORT, klog.name, figures)
                say(f"{bars.EXPORT}: {_line(figures)}")

    # --- Starts ---

    def starts(self, names: Sequence[str], rounds: int) -> None:
        """From the first process to the first acknowledged message, on an empty data folder."""
        for number in range(rounds):
            for name in names:
                self._alone(bars.START, name, number, lambda system: _timed(lambda: system.start("first")))

    def restarts(self, names: Sequence[str], rounds: int) -> None:
        """With so many bytes of log in one partition, the broker killed with -9, to the next acknowledged message."""

        def restart(system: System) -> float:
            system.start("first")
            fill(system.port, "first", 8, 2000, self._sizes.restart_bytes)
            system.kill()
            return _timed(lambda: system.start("first"))

        for number in range(rounds):
            for name in names:
                self._alone(bars.RESTART, name, number, restart)

    def _alone(self, what: str, name: str, number: int, measure: Callable[[System], float]) -> None:
        """Measures seconds on a system of its own, stopped and removed afterwards; what goes wrong is noted."""
        folder = self._folder / f"alone-{name}-{number}"
        try:
            system = KlogUp(name, folder) if name == bars.KLOG and what == bars.START else open_system(name, folder)
        except PeerMissing as error:
            self._note(f"{what}: {name} is left out: {error}")
            return
        try:
            with self._failing(what, system):
                system.prepare()
                os.sync()
                seconds = measure(system)
                self.record.add(what, name, {"seconds": seconds})
                say(f"{what}: {name}: {seconds:.2f} s")
        finally:
            system.stop()
            shutil.rmtree(folder, ignore_errors=True)


class NullSystem:
    """The server that does nothing, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.name = CEILING
        self.folder = folder
        self.version = ""
        self.port = free_port()
        self.options: dict[str, str] = {}
        command = [sys.executable, "-m", "bench.null_broker", str(self.port)]
        environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = Process("null broker", command, folder / "null.log", environment)

    def prepare(self) -> None:
        pass

    def start(self, first_topic: str) -> None:
        wait_for_port(self.port, self._process, timeout_s=10)

    def stop(self) -> None:
        self._process.kill()

    def kill(self) -> None:
        self._process.kill()

    def broker_pids(self) -> Sequence[int]:
        return []

    def helper_pids(self) -> Sequence[int]:
        return []


@contextlib.contextmanager
def null_system(folder: Path) -> Iterator[NullSystem]:
    system = NullSystem(folder)
    try:
        system.start("")
        yield system
    finally:
        system.stop()


def _timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _line(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def say(text: str) -> None:
    """Progress, for whoever waits; the results go to files."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
