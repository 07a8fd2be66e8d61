"""One run of what reads: groups, their coordinators, ZooKeeper's streams, commits, lag, and commands that copy."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import bars, commits, copies, groups, lags, streams
from bench.cluster_run import at_most
from bench.cluster_systems import KlogCluster
from bench.commands import tails
from bench.klog_system import Klog
from bench.maven import PeerMissing
from bench.peers import KafkaZooKeeper, kafka
from bench.run import say
from bench.run_record import RunRecord, numbered

DELAYED = "kafka-3.9, its own delay"
ACT_TIMEOUT_S = 300.0
"""For one figure of one system; what hangs is given up and noted, and the rest is measured."""

STREAMS = {"enter": bars.STREAMS_ENTER, "leave": bars.STREAMS_LEAVE, "killed": bars.STREAMS_KILLED}
COORDINATOR = {"raw": bars.COORDINATOR_KILLED, "stock": bars.COORDINATOR_KILLED_STOCK}


@dataclass(frozen=True)
class ConsumerSizes:
    """How much each part does; `smoke` is enough to see that it works, and no measurement."""

    consumers: int = 16
    stream_partitions: int = 64
    groups: int = 100
    members: int = 10
    lag_partitions: int = 100
    tail_messages: int = 1_000_000
    copied_messages: int = 1_000_000
    commits_every_s: float = 5.0

    @classmethod
    def smoke(cls) -> ConsumerSizes:
        return cls(8, 16, 5, 2, 5, 20_000, 20_000, 0.5)


class ConsumersBench:
    """Measures into a record. Everything it starts, and every byte it writes, is gone when `close` returns."""

    def __init__(
        self, record: RunRecord, folder: Path, sizes: ConsumerSizes, rounds: int, names: Sequence[str]
    ) -> None:
        self.record = record
        self._folder = folder
        self._sizes = sizes
        self._rounds = rounds
        self._names = names
        self._running: dict[str, Klog | KafkaZooKeeper] = {}

    def close(self) -> None:
        for system in self._running.values():
            system.stop()
        self._running.clear()

    # --- Systems, each started when it is first needed ---

    def _klog(self, name: str = bars.KLOG) -> Klog:
        system = self._started(name, lambda: Klog(name, self._folder / name / "one", {}))
        assert isinstance(system, Klog)
        return system

    def _kafka(self, name: str) -> KafkaZooKeeper:
        delay_ms = "3000" if name == DELAYED else "0"
        settings = {"group.initial.rebalance.delay.ms": delay_ms}

        def make() -> KafkaZooKeeper:
            made = kafka("kafka-3.9", self._folder / f"kafka-{delay_ms}", settings=settings)
            assert isinstance(made, KafkaZooKeeper)
            return made

        system = self._started(name, make)
        assert isinstance(system, KafkaZooKeeper)
        return system

    def _started(self, name: str, make: Callable[[], Klog | KafkaZooKeeper]) -> Klog | KafkaZooKeeper:
        if name not in self._running:
            system = self._running[name] = make()
            system.prepare()
            system.start("first")
            if name != bars.TARGET:
                self.record.versions[name] = system.version
                self.record.options[name] = system.options
            say(f"{name} {system.version} is up")
        return self._running[name]

    def _peers(self, *names: str) -> dict[str, str]:
        """Of these systems those that are wanted and can be had: name to bootstrap address."""
        found = {}
        for name in names:
            if not any(name.startswith(wanted) for wanted in self._names):
                continue
            try:
                system = self._klog() if name == bars.KLOG else self._kafka(name)
            except PeerMissing as error:
                self._note(f"{name} is left out: {error}")
                continue
            found[name] = f"127.0.0.1:{system.port}"
        return found

    # --- Notes ---

    def _note(self, text: str) -> None:
        say(text)
        self.record.notes.append(text)

    @contextlib.contextmanager
    def noted(self, what: str, system: str) -> Iterator[None]:
        """What goes wrong is said, in the results too, and the rest is measured."""
        try:
            with at_most(ACT_TIMEOUT_S):
                yield
        except Exception as error:
            self._note(f"{what}: {system}: {error!r}")

    def _add(self, what: str, system: str, figures: dict[str, float]) -> None:
        self.record.add(what, system, figures)
        say(f"{what}: {system}: {', '.join(f'{name} {value:.4g}' for name, value in figures.items())}")

    # --- Parts ---

    def members(self) -> None:
        """A group of one, a second member, and one that dies; in turns."""
        peers = self._peers(bars.KLOG, bars.KAFKA_39, DELAYED)
        for number in numbered(self._rounds):
            for name in turned(list(peers), number):
                with self.noted(bars.FIRST_RECORD, name):
                    first_s, joined_s = groups.comes_and_joins(peers[name], self._folder, groups.QUICK_HEARTBEAT_MS)
                    if number >= 0:
                        self._add(bars.FIRST_RECORD, name, {"seconds": first_s})
                        self._add(bars.JOINED, name, {"seconds": joined_s})
        alike = [name for name in peers if name != DELAYED]  # its delay is for groups that are empty
        for number in range(self._rounds):
            for name in turned(alike, number):
                with self.noted(bars.JOINED_DEFAULT, name):
                    _, joined_s = groups.comes_and_joins(peers[name], self._folder, groups.DEFAULT_HEARTBEAT_MS)
                    self._add(bars.JOINED_DEFAULT, name, {"seconds": joined_s})
                with self.noted(bars.MEMBER_KILLED, name):
                    self._add(bars.MEMBER_KILLED, name, {"beyond_s": groups.dies(peers[name], self._folder)})

    def streams(self) -> None:
        klog = self._klog()
        for _ in range(self._rounds):
            with self.noted(bars.STREAMS_ENTER, bars.KLOG):
                streams.settles(
                    copies.bootstrap_of(klog),
                    klog.zookeeper,
                    self._folder,
                    self._sizes.consumers,
                    self._sizes.stream_partitions,
                    lambda what, figures: self._add(STREAMS[what], bars.KLOG, figures),
                )

    def commits(self) -> None:
        peers = self._peers(bars.KLOG, bars.KAFKA_39)
        for number in range(2):  # as many windows on each system before its turn is over as are left of the rounds
            count = self._rounds // 2 if number else self._rounds - self._rounds // 2
            for name in turned(list(peers), number) if count else ():
                with self.noted(bars.COMMITS, name):
                    sizes, pids = self._sizes, self._running[name].broker_pids()
                    load = sizes.groups, sizes.members, sizes.commits_every_s
                    for figures in commits.windows(peers[name], pids, self._folder, *load, count):
                        self._add(bars.COMMITS, name, figures)

    def coordinator(self) -> None:
        """klog's three brokers; another topic, and other groups, each round."""
        system = KlogCluster(self._folder / "three")
        try:
            with self.noted(bars.COORDINATOR_KILLED, system.name):
                system.start()
                self.record.versions[system.name] = system.version
                self.record.options[system.name] = system.options
                for _ in range(self._rounds):
                    commits.coordinator_killed(
                        system, lambda kind, seconds: self._add(COORDINATOR[kind], system.name, {"seconds": seconds})
                    )
        finally:
            system.stop()

    def lag(self) -> None:
        sizes = self._sizes.groups, self._sizes.lag_partitions, self._rounds
        with self.noted(bars.LAG, bars.KLOG):
            for seconds in lags.klog_lags(self._folder / "lag", *sizes):
                self._add(bars.LAG, bars.KLOG, {"seconds": seconds})
            self._klog()  # for its version: the rows above had a broker of their own
        if bars.KAFKA_39 in self._peers(bars.KAFKA_39):
            with self.noted(bars.LAG, bars.KAFKA_39):
                for seconds in lags.kafka_lags(self._kafka(bars.KAFKA_39), *sizes):
                    self._add(bars.LAG, bars.KAFKA_39, {"seconds": seconds})

    def tail(self) -> None:
        klog = self._klog()
        with self.noted(bars.TAIL, bars.KLOG), copies.filled(klog, self._sizes.tail_messages) as (topic, messages):
            for _ in range(self._rounds):
                for name, flags in ((bars.TAIL, ()), (bars.TAIL_JSONL, ("--output", "jsonl"))):
                    figures = tails(klog.folder, copies.bootstrap_of(klog), topic, messages, *flags)
                    self._add(name, bars.KLOG, figures)

    def copied(self) -> None:
        """Replay and mirror, in turns, from the same topic."""
        klog, target = self._klog(), self._klog(bars.TARGET)
        with contextlib.ExitStack() as stack, self.noted(bars.REPLAY, bars.KLOG):
            topic, messages = stack.enter_context(copies.filled(klog, self._sizes.copied_messages))
            for _ in range(self._rounds):
                with self.noted(bars.REPLAY, bars.KLOG):
                    self._add(bars.REPLAY, bars.KLOG, copies.replay(klog, topic, messages))
                with self.noted(bars.MIRROR, bars.KLOG):
                    self._add(bars.MIRROR, bars.KLOG, copies.mirror(klog, target, topic, messages))


def turned(names: list[str], number: int) -> list[str]:
    """In another order each round."""
    shift = number % max(len(names), 1)
    return names[shift:] + names[:shift]


PARTS: dict[str, Callable[[ConsumersBench], None]] = {
    "members": ConsumersBench.members,
    "streams": ConsumersBench.streams,
    "commits": ConsumersBench.commits,
    "coordinator": ConsumersBench.coordinator,
    "lag": ConsumersBench.lag,
    "tail": ConsumersBench.tail,
    "copied": ConsumersBench.copied,
}
"""By name, for a run of some of them."""


def run(
    record: RunRecord,
    folder: Path,
    sizes: ConsumerSizes,
    rounds: int,
    names: Sequence[str],
    parts: Sequence[str] = tuple(PARTS),
) -> None:
    """These parts of it, into the record."""
    bench = ConsumersBench(record, folder, sizes, rounds, names)
    try:
        for part in parts:
            try:
                PARTS[part](bench)
            except Exception as error:  # a system that cannot be started, most likely
                bench._note(f"{part}: {error!r}")
    except KeyboardInterrupt:
        record.notes.append("the run was interrupted: what is missing was not measured")
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
