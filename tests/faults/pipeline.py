"""Exports by Spark under faults: after each, the next run makes the export whole, message for message (`exported`).

driver      the exporting process killed with -9, at its named steps, while it writes, at random times; in a row
worker      Spark's Python workers killed with -9 while they write: Spark makes their tasks again
broker      the broker killed with -9 while it is read, and started again
two         two exporters of one root at once, and one of them killed
retention   the log's start passes what was exported, between two runs and during one
remade      the topic deleted, and made again under its name
disk        the export's file system full
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.worker_memory import python_workers
from klog.errors import KlogError, OffsetOutOfRange, Refused
from klog.export.root import ExportRoot
from klog.export.run import STEPS
from klog.export.verify import verify
from klog.spark.export import run_export
from klog.spark.running.session import start_session
from tests.broker_fixture import RunningBroker, own_broker
from tests.faults import pipeline_report
from tests.faults.cluster import can_mount
from tests.faults.exported import Difference, Exported, Log, compare
from tests.faults.pipeline_report import PipelineResult
from tests.spark import killed_export
from tests.spark.conftest import Message, TopicOnBroker
from tests.spark.quick_java import spark_environment

PARTITIONS = 3
MESSAGES_MAX = 12_000
"""A round produces up to so many."""
NEVER = "999999"
"""Seconds after which nobody waits any more."""
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
        self.produced: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.messages_max = messages_max
        self._log = Log(broker.bootstrap, name, PARTITIONS)
        self._exported = Exported(self.root)

    def close(self) -> None:
        self._log.close()

    def make_again(self) -> None:
        """The topic; what was produced is forgotten."""
        self.topic = self.topic.made_again()
        self.produced = {partition: [] for partition in range(PARTITIONS)}
        self._log.close()
        self._log = Log(self.broker.bootstrap, self.name, PARTITIONS)

    def go_to(self, root: Path) -> None:
        """Exports go there from now on."""
        self.root = root
        self._exported = Exported(root)

    def committed(self) -> list[tuple[int, int, int]]:
        return Exported(self.root).read()

    def produce(self, least: int = 0) -> None:
        """Some more, of all kinds that there are."""
        for partition, offsets in self.produced.items():
            count = self.draw.randrange(least, max(self.messages_max // PARTITIONS, least + 1))
            codec = self.draw.choice(("none", "gzip", "snappy", "lz4", "zstd"))
            offsets += self.topic.produce([self._message(i) for i in range(count)], partition, codec)

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

    def expect_whole(self, what: str, **options: Any) -> None:
        """The next run makes it whole."""
        try:
            self.run(**options)
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
        bed.produce(1)
        point = f"{bed.draw.uniform(0, TIME_S):.3f}" if todo[-1] == BY_TIME else todo[-1]
        if not killed_export.kill_at(bed.topic.bootstrap, bed.name, bed.root, point):
            bed.expect_whole("not killed")
            continue  # it was over before its time
        bed.add(todo.pop())
        bed.expect_beginning(f"killed at {point}")
        bed.expect_whole(f"killed at {point}")
        say(f"{bed.name}: {bed.result.faults} killed, at {point}")


def two(bed: Bed, times: int) -> None:
    """Both begin together; every other time one is killed at a step."""
    for number in range(times):
        bed.produce(1)
        point = bed.draw.choice(NAMED) if number % 2 else NEVER
        other = killed_export.start(bed.topic.bootstrap, bed.name, bed.root, NEVER)
        dead = killed_export.kill_at(bed.topic.bootstrap, bed.name, bed.root, point)
        _, errors = other.communicate()
        if other.returncode:
            bed.problem(f"of two the one that was left: {errors.decode()[-500:]}")
        bed.add(f"one killed at {point}" if dead else "both ended")
        bed.expect_beginning("two at once")
        bed.expect_whole("two at once")
        say(f"{bed.name}: {number + 1} of {times}")


# --- During a run -----------------------------------------------------------------------------------------------------


def worker(bed: Bed, times: int) -> None:
    def kill() -> str:
        there = python_workers(os.getpid())
        workers = [one for one in there if _parent(one) in there]  # not the daemons, whose parent is the JVM
        for one in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        return "all workers" if workers else ""

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


def _parent(pid: int) -> int:
    """-1 where it has gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return -1


# --- The log changes --------------------------------------------------------------------------------------------------


def retention(bed: Bed, times: int) -> None:
    """Refused, and nothing changes, until a gap is allowed; then exactly what the log still has, and the gap named."""
    for number in range(times):
        bed.produce()
        bed.run()
        bed.expect_beginning("before retention")
        bed.produce(200)
        partition = bed.draw.randrange(PARTITIONS)
        cut = bed.produced[partition][-bed.draw.randrange(50, 200)]
        during = bool(number % 2)

        def on_step(step: str, cut: int = cut, partition: int = partition, during: bool = during) -> None:
            if during and step == "staged":
                bed.topic.delete_before(cut, partition)

        if not during:
            bed.topic.delete_before(cut, partition)
        before = bed.committed()
        try:
            bed.run(on_step=on_step)
            bed.problem("a run over what is gone ended well")
        except OffsetOutOfRange:
            bed.add("passed during a run" if during else "passed between two runs")
        if bed.committed() != before:
            bed.problem("something was committed over what is gone")
        bed.expect_whole("a gap is allowed", fail_on_data_loss=False)
    root = ExportRoot(str(bed.root))
    gaps = sum(len(root.manifest(one)[0].gaps) for one in root.batches())
    if gaps != times:
        bed.problem(f"{times} gaps were made, {gaps} are in the manifests")


def remade(bed: Bed, times: int) -> None:
    """Refused, and what was exported stays; another root gets all of the new topic."""
    for number in range(times):
        bed.produce(1)
        bed.run()
        before = bed.committed()
        bed.topic.delete()
        bed.make_again()
        bed.produce(1)
        try:
            bed.run()
            bed.problem("a run of another topic under the same name ended well")
        except Refused:
            bed.add("refused")
        if bed.committed() != before:
            bed.problem("something was committed of another topic")
        bed.go_to(bed.root.with_name(f"{bed.name}-{number}"))
        bed.expect_whole("made again")


def disk(bed: Bed, times: int) -> None:
    """The export's file system is full while the run writes; given room, the next one goes on."""
    bed.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(bed.root)], check=True)
    try:
        for _ in range(times):
            bed.produce(1000)
            used = shutil.disk_usage(bed.root).used
            _remount(bed.root, used + 64 * 1024)
            try:
                bed.run()
                bed.problem("a run without room ended well")
            except KlogError as error:
                bed.add(f"the run ended: {type(error).__name__}")
            bed.expect_beginning("a full disk")
            _remount(bed.root, 64 << 20)
            bed.expect_whole("a full disk")
        bed.verify()
    finally:
        subprocess.run(["umount", "--lazy", str(bed.root)], check=True)


def _remount(path: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(path)], check=True)


# --- All of them ------------------------------------------------------------------------------------------------------

CELLS: dict[str, tuple[Callable[[Bed, int], None], int]] = {
    "driver": (driver, 50),
    "worker": (worker, 10),
    "broker": (broker, 10),
    "two": (two, 6),
    "retention": (retention, 6),
    "remade": (remade, 3),
    "disk": (disk, 3),
}
"""And how often each is done."""

NEEDS: dict[str, Callable[[], str]] = {"disk": can_mount}
"""What a cell needs of the machine: "" where it is there."""

ENDS_WITH_VERIFY = {"driver", "worker", "broker", "two", "retention"}


def run_cell(
    name: str, broker: RunningBroker, folder: Path, draw: random.Random, times: int, messages_max: int
) -> PipelineResult:
    """A topic and a root of its own; a session of Spark stays up in this process."""
    began = time.monotonic()
    bed = Bed(broker, folder, draw, f"faults-{name}", messages_max)
    bed.result.cell = name
    try:
        CELLS[name][0](bed, times)
        if name in ENDS_WITH_VERIFY:
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
            if missing := NEEDS.get(name, lambda: "")():
                say(f"{name}: not run: {missing}")
                continue
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
