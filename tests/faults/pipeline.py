"""Exports by Spark under faults: after each, the next run makes the export whole, message for message (`exported`).

What a run is told of the log or the disk, the same every time, is in `tests/spark/test_export_*.py`: retention, a topic
made again, a full disk, a second exporter. Here is what comes at a random moment.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.worker_memory import python_workers
from klog.errors import KlogError
from klog.export.root import ExportRoot
from klog.export.run import STEPS
from klog.export.verify import verify
from klog.spark.export import run_export
from klog.spark.running.session import start_session
from tests.broker_fixture import RunningBroker, own_broker
from tests.faults import pipeline_report
from tests.faults.exported import Difference, Exported, Log, compare
from tests.faults.pipeline_report import PipelineResult
from tests.spark import killed_export
from tests.spark.conftest import Message, TopicOnBroker
from tests.spark.quick_java import spark_environment

PARTITIONS = 3
MESSAGES_MAX = 12_000
"""A round produces up to so many."""
NAMED = (*STEPS, "writing")
BY_TIME = "by time"
TIME_S = 4.0
"""So much after the beginning of its write step, which is mostly Spark's start, a driver is killed at the latest."""
TRIES = 30
"""A kill that comes when the run is over already does not count; so often it is tried."""
AWAY_S = 1.0
"""A killed broker is started again after so long."""


class Bed:
    """A topic, its export's root, and what both are held against. A session of Spark runs in this process."""

    def __init__(self, broker: RunningBroker, folder: Path, draw: random.Random, name: str, messages_max: int) -> None:
        self.broker = broker
        self.draw = draw
        self.name = name
        self.root = folder / name
        self.result = PipelineResult(name)
        self.topic = TopicOnBroker(broker.bootstrap, name, PARTITIONS)
        self.messages_max = messages_max
        self._log = Log(broker.bootstrap, name, PARTITIONS)
        self._exported = Exported(self.root)

    def close(self) -> None:
        self._log.close()

    def produce(self, least: int = 1) -> None:
        """Some more, of all kinds that there are."""
        for partition in range(PARTITIONS):
            count = self.draw.randrange(least, max(self.messages_max // PARTITIONS, least + 1))
            codec = self.draw.choice(("none", "gzip", "snappy", "lz4", "zstd"))
            self.topic.produce([self._message(i) for i in range(count)], partition, codec)

    def _message(self, number: int) -> Message:
        kind = self.draw.randrange(10)
        value = None if kind == 0 else self.draw.randbytes(0 if kind == 1 else self.draw.randrange(1, 400))
        headers = ((("h", b"%d" % number), ("h", None)),) if kind == 2 else ((),)
        return Message(None if kind == 3 else b"%d" % number, value, *headers)

    def run(self, **options: Any) -> None:
        """One run in this process."""
        run_export(self.topic.bootstrap, [self.name], str(self.root), **options)

    def compare(self) -> Difference:
        return compare(self._log.read(), self._exported.read())

    def expect_beginning(self, what: str) -> None:
        """After a fault: what is committed is right, however little it is."""
        found = self.compare()
        if not found.is_a_beginning:
            self.problem(f"{what}: {found}")

    def expect_whole(self, what: str) -> None:
        """The next run makes it whole."""
        try:
            self.run()
        except KlogError as error:
            self.problem(f"{what}: the next run: {error!r}")
        found, result = self.compare(), self.result
        result.runs += 1
        result.messages = found.messages
        result.missing += found.missing
        result.doubled += found.doubled
        result.changed += found.changed

    def verify(self) -> None:
        """By klog's own command, and nothing is left lying about."""
        wrong = [row for row in verify(self.topic.bootstrap, str(self.root)) if row.state != "ok"]
        if wrong:
            self.problem(f"verify: {wrong}")
        self.run()
        ExportRoot(str(self.root)).discard_stale(0)
        if left := list((self.root / "_staging").iterdir()):
            self.problem(f"left in _staging: {[one.name for one in left]}")

    def problem(self, text: str) -> None:
        self.result.problems.append(text)

    def add(self, where: str) -> None:
        self.result.faults += 1
        self.result.where[where] += 1


# --- The driver -------------------------------------------------------------------------------------------------------


def driver(bed: Bed, times: int) -> None:
    """Every named step as often as goes into half of the kills; the others at random times of the writing."""
    points = [*NAMED * (times // 2 // len(NAMED)), *bed.draw.sample(NAMED, len(NAMED))][: times // 2]
    points += [BY_TIME] * (times - len(points))
    bed.draw.shuffle(points)
    kill_drivers(bed, points)


def kill_drivers(bed: Bed, points: list[str]) -> None:
    """One killed at each point; by time is again until it met a run."""
    todo = list(points)
    for _ in range(len(points) + TRIES):
        if not todo:
            return
        bed.produce()
        point = f"{bed.draw.uniform(0, TIME_S):.3f}" if todo[-1] == BY_TIME else todo[-1]
        if not killed_export.kill_at(bed.topic.bootstrap, bed.name, bed.root, point):
            bed.expect_whole("not killed")
            continue  # it was over before its time
        bed.add(todo.pop())
        bed.expect_beginning(f"killed at {point}")
        bed.expect_whole(f"killed at {point}")
        say(f"{bed.name}: {bed.result.faults} killed, at {point}")


# --- During a run -----------------------------------------------------------------------------------------------------


def worker(bed: Bed, times: int) -> None:
    def kill() -> str:
        hit = ""
        for daemon in python_workers(os.getpid()):
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in psutil.Process(daemon).children():  # the daemon itself is a child of the JVM
                    one.kill()
                    hit = "all workers"
        return hit

    _during(bed, times, kill, lambda: None)


def broker(bed: Bed, times: int) -> None:
    def kill() -> str:
        bed.broker.kill()
        return "the broker"

    def heal() -> None:
        time.sleep(bed.draw.uniform(0, AWAY_S))
        bed.broker.start()

    _during(bed, times, kill, heal)


def _during(bed: Bed, times: int, fault: Callable[[], str], heal: Callable[[], None]) -> None:
    """``fault`` (what it hit; "": nothing) at a random moment of the write step of a run in this process."""
    tried = 0
    while bed.result.faults < times and tried < times + TRIES:
        tried += 1
        bed.produce(bed.messages_max // PARTITIONS - 1)
        staged, written = threading.Event(), threading.Event()
        said: list[str] = []

        def on_step(step: str, staged: threading.Event = staged, written: threading.Event = written) -> None:
            if step in ("staged", "written"):
                (staged if step == "staged" else written).set()

        def run(said: list[str] = said, on_step: Callable[[str], None] = on_step) -> None:
            try:
                bed.run(on_step=on_step)
                said.append("the run went on")
            except KlogError as error:
                said.extend((f"the run ended: {type(error).__name__}", error.message))

        running = threading.Thread(target=run)
        running.start()
        staged.wait(60)
        met = not written.wait(bed.draw.uniform(0.02, 0.8))
        hit = fault() if met else ""
        in_time = not written.is_set()
        if hit:
            heal()
        running.join()
        if not hit or not in_time:
            continue
        bed.add(f"{hit}; {said[0]}")
        bed.expect_beginning(said[0])
        bed.expect_whole(said[0])
        say(f"{bed.name}: {bed.result.faults} of {times}: {hit}; {': '.join(said)}")


# --- All of them ------------------------------------------------------------------------------------------------------

CELLS: dict[str, tuple[Callable[[Bed, int], None], int]] = {
    "driver": (driver, 50),
    "worker": (worker, 10),
    "broker": (broker, 10),
}
"""And how often each is done."""


def run_cell(
    name: str, broker: RunningBroker, folder: Path, draw: random.Random, times: int, messages_max: int
) -> PipelineResult:
    """A topic and a root of its own; a session of Spark stays up in this process."""
    began = time.monotonic()
    bed = Bed(broker, folder, draw, f"faults-{name}", messages_max)
    bed.result.cell = name
    try:
        CELLS[name][0](bed, times)
        bed.verify()
    except Exception as error:
        bed.problem(f"broke off: {error!r} {traceback.format_exc()[-800:]}")
    finally:
        bed.close()
    if bed.result.faults < times:
        bed.problem(f"{bed.result.faults} of {times} faults were met")
    bed.result.seconds = time.monotonic() - began
    return bed.result


def run_all(names: list[str], kills: int | None, seed: int, folder: Path, *, write: bool) -> int:
    """One after the other on one broker; the exit code, 1 where one was bad."""
    os.environ |= spark_environment()
    bad = []
    with own_broker(folder) as broker_process:
        broker_process.start()
        session = start_session("local[2,4]")
        for name in names:
            times = CELLS[name][1] if kills is None or name != "driver" else kills
            result = run_cell(name, broker_process, folder, random.Random(seed), times, MESSAGES_MAX)
            pipeline_report.say(result)
            if write:
                pipeline_report.keep(result, seed)
            if not result.is_good:
                bad.append(name)
        session.stop()
    return 1 if bad else 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
