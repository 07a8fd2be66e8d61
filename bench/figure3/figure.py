"""The whole of the paper's Figure 3 on one machine: clusters, front ends, consumers, mirror, table, stream, page.

    front ends -> balancer -> live clusters -> near-line consumers, online query
                                            -> mirror -> offline cluster -> table
                                                                         -> stream job

Everything that moves a message is a klog command in a process of its own (`part`, `commands`); this process feeds the
front ends and reads the stamps of every tier as they come (`watch`).
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench.figure3 import commands
from bench.figure3.balancer import Balancer
from bench.figure3.clusters import DemoCluster
from bench.figure3.commands import COUNTS, OFFLINE, TABLE, TOPIC, Size
from bench.figure3.deployment import Deployment
from bench.figure3.front_ends import FrontEnd, Traffic
from bench.figure3.gauges import Gauges
from bench.figure3.guard import PARTS_FILE, Guard, end_everything
from bench.figure3.part import Notes, Part
from bench.figure3.proof import Tier, TierRow, prove
from bench.figure3.question import Question
from bench.figure3.watch import LogWatch, TableWatch
from klog.clock import SYSTEM_CLOCK
from klog.coordination.process import python_command
from klog.errors import HostError, KlogError

READY_S: Final = 600.0
"""Spark starts twice, on a machine that may have other things to do."""
CAUGHT_UP_S: Final = 300.0
LOOK_S: Final = 0.05


@dataclass
class Outcome:
    """How it ended. ``caught_up_s``: from the last message until every tier had all; None: not in time."""

    rows: list[TierRow]
    caught_up_s: float | None
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return bool(self.rows) and all(row.is_good for row in self.rows) and not self.problems


class Figure:
    """One deployment. `start`, `await_ready` and `end` in this order; `stop` at any time ends all of it."""

    def __init__(
        self, folder: Path, home: Path, size: Size, *, keep: bool, seed: int, note: Callable[[str], None]
    ) -> None:
        """``folder`` is there and empty; ``keep``: it stays when the demo is killed."""
        names = ["live"] if size.live == 1 else [f"live-{number}" for number in range(1, size.live + 1)]
        live = [DemoCluster(name, folder, home, size.brokers) for name in names]
        self.deployment = Deployment(size, live, DemoCluster(OFFLINE, folder, home, size.brokers))
        self.gauges = Gauges(self.deployment)
        self._folder = folder
        self._home = home
        self._note = note
        self._guard = Guard(folder, home, keep=keep)
        self._notes = Notes(folder / PARTS_FILE)
        self._seed = seed
        self._traffic: Traffic | None = None

    # --- Starting ---

    def start(self) -> None:
        """Every process is there, and messages flow. Errors of what could not be started."""
        with ThreadPoolExecutor(len(self.deployment.clusters)) as pool:
            for starting in [pool.submit(cluster.start) for cluster in self.deployment.clusters]:
                starting.result()
            self._note(f"clusters: {', '.join(f'{one.name} at {one.bootstrap}' for one in self.deployment.clusters)}")
            for making in [pool.submit(self._make_topics, cluster) for cluster in self.deployment.clusters]:
                making.result()
        for cluster in self.deployment.clusters:
            self.deployment.watches[cluster.name] = LogWatch(
                cluster.name, cluster.bootstrap, TOPIC, self.deployment.size.partitions
            )
        self.deployment.watches[TABLE] = TableWatch(TABLE, self._folder / TABLE)
        self.deployment.watches[COUNTS] = LogWatch(COUNTS, self.deployment.offline.bootstrap, COUNTS, 1)
        for watch in self.deployment.watches.values():
            watch.start()
        self._start_readers()
        for cluster in self.deployment.live:
            balancer = Balancer(cluster.name, cluster.bootstrap, self._folder, self._notes)
            self.deployment.balancers.append(balancer)
            for number in range(1, self.deployment.size.front_ends + 1):
                front_end = FrontEnd(cluster.name, number, balancer.address, self._folder, self._notes)
                self.deployment.front_ends.append(front_end.start())
        self._note(f"front ends find their cluster by {self.deployment.balanced_by}")
        self._traffic = Traffic(self.deployment.front_ends, self.deployment.size.rate, self._seed)
        self._traffic.start()
        self.gauges.start()

    def _make_topics(self, cluster: DemoCluster) -> None:
        _klog(commands.create_topic(cluster.bootstrap, TOPIC, self.deployment.size.partitions))
        if cluster is self.deployment.offline:
            _klog(commands.create_topic(cluster.bootstrap, COUNTS, 1))

    def _start_readers(self) -> None:
        folder, notes, offline = self._folder, self._notes, self.deployment.offline.bootstrap
        for cluster in self.deployment.live:
            name = f"near-line-{cluster.name}"
            words = commands.near_line(cluster.bootstrap)
            self.deployment.consumers[name] = Part(name, words, folder, notes, output=self._counting(name)).start()
        for name, words in {
            "mirror": commands.mirror([one.bootstrap for one in self.deployment.live], offline),
            "loader": commands.loader(offline, folder / TABLE, self.deployment.size.table_every_s),
            "stream": commands.stream(offline, folder / "streams"),
        }.items():
            output = self._counting(name) if name == "stream" else None  # one line for each batch
            self.deployment.parts[name] = Part(name, words, folder, notes, output=output).start()
        self.deployment.question = Question(
            self.deployment.live[0].bootstrap, self.deployment.size.query_every_s, folder, notes
        )

    def _counting(self, name: str) -> Callable[[bytes], None]:
        """A part's output, of which the lines count."""
        self.deployment.lines[name] = 0

        def take(chunk: bytes) -> None:
            self.deployment.lines[name] += chunk.count(b"\n")

        return take

    def await_ready(self, asked: threading.Event) -> bool:
        """Until table and stream job have a first batch, so that Spark runs; delays count from here on. HostError.

        ``asked`` ends the wait: False.
        """
        deadline = time.monotonic() + READY_S
        while waiting := [name for name, batches in self.deployment.batches().items() if not batches]:
            if asked.wait(LOOK_S):
                self._note("ended before Spark had a first batch: delays include its start")
                return False
            if time.monotonic() > deadline:
                log_files = ", ".join(str(self.deployment.parts[one].log_file) for one in waiting)
                raise HostError(f"no batch after {READY_S:g} s of: {', '.join(waiting)}", hint=f"logs: {log_files}")
        now_ms = SYSTEM_CLOCK.now_ms()
        for watch in self.deployment.watches.values():
            watch.count_from(now_ms)
        assert self._traffic is not None
        self._traffic.go_on()
        if self.deployment.question is not None:
            self.deployment.question.start()
        self._note(f"ready after {self.deployment.seconds:.0f} s; delays count from here on")
        return True

    # --- Ending ---

    def end(self) -> Outcome:
        """No more messages; when every tier has all, or after a while, the proof."""
        assert self._traffic is not None and self.deployment.question is not None
        problems: list[str] = []
        self.deployment.question.stop()
        if not self._traffic.finish():
            codes = ", ".join(f"{one.host} {one.part.code}" for one in self.deployment.front_ends if one.part.code != 0)
            problems.append(f"front ends did not end well (exit codes: {codes})")
        caught_up_s = self._await_all(self._traffic.given)
        if caught_up_s is None:
            counts = ", ".join(f"{name} {self.deployment.watches[name].messages:,}" for name in self.deployment.tiers)
            problems.append(
                f"after {CAUGHT_UP_S:g} s not every tier has all of {self._traffic.given:,} messages: {counts}"
            )
        self._stop_parts()
        sources = [one.bootstrap for one in self.deployment.live]
        tiers = [Tier(one.name, [one.bootstrap], one.bootstrap) for one in self.deployment.live]
        tiers += [
            Tier(OFFLINE, sources, self.deployment.offline.bootstrap),
            Tier(TABLE, sources, None, self._folder / TABLE),
        ]
        delays = {name: watch.delays.all() for name, watch in self.deployment.watches.items()}
        try:
            rows = asyncio.run(prove(tiers, TOPIC, delays))
        except KlogError as error:
            problems.append(f"the tiers could not be read: {error.message}")
            return Outcome([], caught_up_s, problems)
        sent = sum(row.sent for row in rows[: len(self.deployment.live)])
        if sent != self._traffic.given:
            problems.append(f"front ends took {self._traffic.given:,} messages, and published counts of {sent:,}")
        self.gauges.verdict = table_of(rows)
        return Outcome(rows, caught_up_s, problems)

    def _await_all(self, total: int) -> float | None:
        """How long it took until every tier had all; None: too long."""
        begun = time.monotonic()
        live = [self.deployment.watches[one.name] for one in self.deployment.live]
        while True:
            there = [
                sum(one.messages for one in live),
                *(self.deployment.watches[one].messages for one in (OFFLINE, TABLE)),
            ]
            if min(there) >= total:
                return time.monotonic() - begun
            if time.monotonic() - begun > CAUGHT_UP_S:
                return None
            time.sleep(LOOK_S)

    def _stop_parts(self) -> None:
        parts = [*self.deployment.parts.values(), *self.deployment.consumers.values()]
        for one in parts:
            one.ask_to_stop()
        for one in parts:
            one.stop()

    def stop(self) -> None:
        """All processes have ended, however far `start` has come; the folder stays."""
        self.gauges.stop()
        if self._traffic is not None:
            self._traffic.stop()
        for watch in self.deployment.watches.values():
            watch.stop()
        if self.deployment.question is not None:
            self.deployment.question.stop()
        self._stop_parts()
        for front_end in self.deployment.front_ends:
            front_end.part.stop(2.0)
        for balancer in self.deployment.balancers:
            balancer.stop()
        end_everything(self._folder, self._home)
        self._guard.dismiss()


def _klog(words: Sequence[str]) -> None:
    """A command that ends. HostError with what it said where it failed."""
    command, environment = python_command("klog", *words)
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise HostError(f"klog {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")


def table_of(rows: Sequence[TierRow]) -> list[list[str]]:
    """As texts, the columns' names first."""
    names = [name for name in asdict(rows[0]) if name != "note"]
    cells = [["–" if asdict(row)[name] is None else str(asdict(row)[name]) for name in names] for row in rows]
    return [[name.replace("_ms", " ms") for name in names], *cells]
