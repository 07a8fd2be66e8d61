"""Streams by Spark under kill -9: after all of them, each window is in the target once, with the exact count. The
target is a topic, or a table.

driver      the process of `klog stream run`, and its JVM with it; started again at once
worker      one of the Python processes below it: Spark repeats the task, or the stream starts itself again
broker      the only broker, which leads the source and the target; started again after a second

Messages are produced between the faults, with times that rise. The last one closes all windows.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from klog.client.positions import LATEST
from klog.client.raw_fetch import RawCluster
from klog.export.verify import verify
from klog.names import TopicPartition
from klog.record.provenance_header import mark_of
from tests.broker_fixture import ROOT, RunningBroker, own_broker
from tests.spark.conftest import NOW_MS, Message, TopicOnBroker
from tests.spark.quick_java import spark_environment
from tests.spark.test_tables import read

PARTITIONS = 3
MINUTE_MS = 60_000
COUNTRIES = ("de", "fr", "it", "pl", "se")
QUERY = (
    "SELECT unix_millis(window.start) AS start, country, count(*) AS count"
    " FROM views GROUP BY window(timestamp, '1 minute'), country"
)
CAUGHT_UP_S = 600.0
"""On a machine with much else to do."""
BROKER_AWAY_S = 1.0
WORKER_S = 120.0
"""A driver that was killed has left a batch in hand: it counts as begun while Spark still starts."""
KILLS = 30
KINDS = ("driver", "worker", "broker")


@dataclass
class StreamsResult:
    """Of one run. ``killed``: by kind. ``windows``: rows that the target must have."""

    killed: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    windows: int = 0
    missing: int = 0
    doubled: int = 0
    changed: int = 0
    starts: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.doubled or self.changed or self.problems)


class Bed:
    """A source, a target, and a stream between them that a process of its own runs."""

    def __init__(self, broker: RunningBroker, folder: Path, draw: random.Random, table: str | None = None) -> None:
        self.broker = broker
        self._table = table
        self._root = folder / "counts"
        self.draw = draw
        self.result = StreamsResult(dict.fromkeys(KINDS, 0))
        name = f"{draw.getrandbits(32):08x}"
        self.source = TopicOnBroker(broker.bootstrap, f"views-{name}", PARTITIONS)
        self.target = TopicOnBroker(broker.bootstrap, f"counts-{name}", PARTITIONS)
        self.folder = folder
        self._expected: collections.Counter[tuple[int, str]] = collections.Counter()
        self._minute = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._orphans: list[psutil.Process] = []
        """Below drivers that were killed: the JVM ends by itself, and may write meanwhile, beside the next one."""

    # --- The stream ---

    def start(self) -> None:
        self.result.starts += 1
        command = [sys.executable, "-m", "klog", "-B", self.broker.bootstrap, "stream", "run"]
        command += ["-e", QUERY.replace("views", self.source.name.replace("-", "_")), "--late", "3 minutes"]
        command += ["--from", f"{self.source.name}:json=country string", "--name", "counts"]
        if self._table is None:
            command += ["--to", f"topic:{self.target.name}", "--key", "country"]
        else:
            command += ["--to", f"export:{self._root}", "--table", self._table]
        command += ["--state", str(self.folder / "streams")]
        environment = os.environ | spark_environment()
        with (self.folder / "stream.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def below(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def end(self) -> None:
        """Everything of the stream, at once."""
        if self._process is None:
            return
        _, left = psutil.wait_procs(self._orphans, 30)
        for one in [*left, *self.below()]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.kill()
        self._process.wait()

    # --- Messages ---

    def produce(self, count: int) -> None:
        """So many, over two minutes behind those before."""
        for partition in range(PARTITIONS):
            messages = []
            for _ in range(count // PARTITIONS):
                minute, country = self._minute + self.draw.randrange(2), self.draw.choice(COUNTRIES)
                self._expected[minute, country] += 1
                messages.append(self._message(minute, country))
            self.source.produce(messages, partition)
            self.result.messages += len(messages)
        self._minute += 1

    def _message(self, minute: int, country: str) -> Message:
        at_ms = NOW_MS // MINUTE_MS * MINUTE_MS - 600 * MINUTE_MS + minute * MINUTE_MS
        at_ms += self.draw.randrange(MINUTE_MS)
        return Message(None, json.dumps({"country": country}).encode(), (), at_ms)

    def close_windows(self) -> None:
        self.source.produce([self._message(self._minute + 10, "end")])

    # --- Faults ---

    def fault(self, kind: str) -> None:
        """When something has come to the target, or after a while of a batch."""
        self._wait_a_moment()
        if kind == "driver":
            self._orphans += self.below()
            self.process.kill()
            self.process.wait()
            self.start()
        elif kind == "worker":
            deadline = time.monotonic() + WORKER_S
            while not (workers := [one for one in self.below() if _is_python(one)]):
                if time.monotonic() > deadline:
                    return
                time.sleep(0.02)
            with suppress(psutil.NoSuchProcess):
                self.draw.choice(workers).send_signal(signal.SIGKILL)
        else:
            self.broker.kill()
            time.sleep(BROKER_AWAY_S)
            self.broker.start()
        self.result.killed[kind] += 1

    def _wait_a_moment(self) -> None:
        """Until the source is read: then at once, or a while into the batch, or when its first rows are written."""
        before = self._ends()
        deadline = time.monotonic() + CAUGHT_UP_S
        pause_s = self.draw.choice((0.0, self.draw.uniform(0, 3), None, None))
        while not self._has_begun():
            assert time.monotonic() < deadline, (self.folder / "stream.log").read_text()[-3000:]
            self._check_alive()
            time.sleep(0.02)
        if pause_s is not None:
            time.sleep(pause_s)
            return
        until = time.monotonic() + 30
        while self._ends() == before and time.monotonic() < until:
            time.sleep(0.002)

    def _check_alive(self) -> None:
        if self.process.poll() is not None:
            said = (self.folder / "stream.log").read_text()[-3000:]
            self.result.problems.append(f"the stream has ended by itself, with {self.process.returncode}: {said}")
            self.start()

    def _has_begun(self) -> bool:
        """Whether there is a batch that Spark has not committed."""
        checkpoint = self.folder / "streams/counts/checkpoint"
        offsets, commits = (
            [int(one.name) for one in (checkpoint / kind).glob("[0-9]*")] for kind in ("offsets", "commits")
        )
        return max(offsets, default=-1) > max(commits, default=-1)

    def _ends(self) -> list[int]:
        """What grows with the target."""
        if self._table is not None:
            return [len(list((self._root / "_klog/commits").glob("*")))]
        with RawCluster(self.broker.bootstrap) as cluster:
            names = {TopicPartition(self.target.name, one): LATEST for one in range(PARTITIONS)}
            return list(cluster.offsets(names).values())

    # --- The verdict ---

    def verify(self) -> None:
        """Wait until the target has all that is expected, stop the stream, and compare."""
        self.result.windows = len(self._expected)
        deadline = time.monotonic() + CAUGHT_UP_S
        while len(self._found()) < len(self._expected) and time.monotonic() < deadline:
            self._check_alive()
            time.sleep(0.2)
        self.process.send_signal(signal.SIGTERM)
        try:
            if (code := self.process.wait(120)) != 0:
                self.result.problems.append(f"stopped with {code}")
        except subprocess.TimeoutExpired:
            self.result.problems.append("has not stopped within 120 s")
        found = self._found()
        for key, count in self._expected.items():
            counts = found.pop(key, [])
            self.result.missing += not counts
            self.result.doubled += max(0, len(counts) - 1)
            self.result.changed += any(one != count for one in counts)
        self.result.changed += len(found)
        if self._table is not None:
            self.result.problems += [str(one) for one in verify(None, str(self._root)) if one.state != "ok"]
            return
        marks = [mark_of(one) for one in self.target.messages()]
        if len(set(marks)) != len(marks):
            self.result.problems.append("two messages have one place in the query's result")

    def _found(self) -> dict[tuple[int, str], list[int]]:
        found: dict[tuple[int, str], list[int]] = {}
        first = NOW_MS // MINUTE_MS * MINUTE_MS - 600 * MINUTE_MS
        for row in self._rows():
            found.setdefault(((row["start"] - first) // MINUTE_MS, row["country"]), []).append(row["count"])
        return found

    def _rows(self) -> list[dict[str, Any]]:
        if self._table is None:
            return [json.loads(one.value or b"") for one in self.target.messages()]
        return read(self._root, self._table).to_pylist() if self._ends() != [0] else []


def _is_python(process: psutil.Process) -> bool:
    """Not the shells by which Spark starts its JVM: without them the driver has no Spark."""
    with suppress(psutil.Error):
        return process.name().startswith("python")
    return False


def run(
    broker: RunningBroker,
    folder: Path,
    draw: random.Random,
    kills: int,
    *,
    kinds: tuple[str, ...] = KINDS,
    messages: int = 3000,
    table: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> StreamsResult:
    """``kills`` faults, the kinds in turn, and the verdict. ``table``: the target is one of this format."""
    bed = Bed(broker, folder, draw, table)
    try:
        bed.start()
        for number in range(kills):
            bed.produce(messages)
            bed.fault(kinds[number % len(kinds)])
            say(f"{number + 1} of {kills}: {kinds[number % len(kinds)]}; {bed.result}")
        bed.produce(messages)
        bed.close_windows()
        bed.verify()
    finally:
        bed.end()
    return bed.result


def run_all(kills: int | None, seed: int, folder: Path) -> int:
    """``kills`` faults (30) on one broker; the exit code, 1 where a window was wrong."""
    with own_broker(folder) as broker:
        result = run(broker.start(), folder, random.Random(seed), KILLS if kills is None else kills, say=_say)
    _say(str(result))
    return 0 if result.is_good else 1


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
